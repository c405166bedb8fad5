//! The body of an entry point: declarations, labels and instructions with their operands.

use super::entry::{Entry, Span};
use super::error::ParseError;
use super::lex::{Kind, Token};
use super::lower;
use super::parse::{self, Parser, wrong};
use super::scope::{Named, Register, Scope};
use super::types::Ty;
use std::collections::HashMap;

/// An instruction as written, with its registers resolved.
#[derive(Debug)]
pub(crate) struct Statement<'t> {
    pub(crate) opcode: Token<'t>,
    pub(crate) guard: Option<(Register, bool)>,
    pub(crate) operands: Vec<Operand<'t>>,
    pub(crate) span: Span,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'t> {
    Register(Register),
    /// `d|p`.
    Two(Register, Register),
    Number(Number),
    /// The address of a shared variable.
    Shared(u32),
    /// A label or parameter.
    Name(Token<'t>),
    /// `[base + offset]`.
    Address(Box<Operand<'t>>, i64),
    /// `{a, b}`.
    List(Vec<Operand<'t>>),
    /// `_`.
    Sink,
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    F32(u32),
    F64(u64),
}

/// A body before it is lowered.
#[derive(Debug, Default)]
pub(crate) struct Body<'t> {
    pub(crate) statements: Vec<Statement<'t>>,
    /// The statement that follows each label.
    pub(crate) labels: HashMap<&'t str, u32>,
    /// The labels of each branch table.
    pub(crate) tables: HashMap<&'t str, Vec<Token<'t>>>,
}

/// Reads a body with its braces, and lowers it.
pub(crate) fn read(p: &mut Parser<'_>, entry: &mut Entry) -> Result<(), ParseError> {
    let mut body = Body::default();
    let mut scope = Scope::new();
    p.expect("{")?;
    let mut depth = 1;
    while depth > 0 {
        if p.took("{") {
            scope.open();
            depth += 1;
        } else if p.took("}") {
            scope.close();
            depth -= 1;
        } else {
            statement(p, &mut body, &mut scope)?;
        }
    }
    (entry.registers, entry.predicates) = (scope.registers, scope.predicates);
    entry.names = std::mem::take(&mut scope.names);
    entry.shared = std::mem::take(&mut scope.shared);
    lower::entry(&body, entry)
}

fn statement<'t>(p: &mut Parser<'t>, body: &mut Body<'t>, scope: &mut Scope<'t>) -> Result<(), ParseError> {
    if p.took(";") {
        return Ok(());
    }
    let start = p.token.start;
    let mut guard = None;
    if p.took("@") {
        let negated = p.took("!");
        let name = p.word("a predicate")?;
        let register = scope.register(name, "is no predicate")?;
        if register.ty != Ty::PREDICATE {
            return Err(wrong(name, "is no predicate"));
        }
        guard = Some((register, negated));
    }
    let opcode = p.word("an instruction")?;
    if guard.is_none() {
        if p.took(":") {
            return label(p, body, opcode);
        }
        if opcode.text.starts_with('.') {
            return declaration(p, scope, opcode);
        }
    }
    if !opcode.text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(wrong(opcode, "expected an instruction"));
    }
    let mut operands = Vec::new();
    if p.token.text != ";" {
        operands.push(operand(p, scope)?);
        while p.took(",") {
            operands.push(operand(p, scope)?);
        }
    }
    let span = Span { line: opcode.line, start, end: p.end };
    p.expect(";")?;
    body.statements.push(Statement { opcode, guard, operands, span });
    Ok(())
}

fn label<'t>(p: &mut Parser<'t>, body: &mut Body<'t>, name: Token<'t>) -> Result<(), ParseError> {
    if p.took(".branchtargets") {
        let mut targets = vec![p.word("a label")?];
        while p.took(",") {
            targets.push(p.word("a label")?);
        }
        p.expect(";")?;
        return match body.tables.insert(name.text, targets) {
            None => Ok(()),
            Some(_) => Err(wrong(name, "a second table of this name")),
        };
    }
    match body.labels.insert(name.text, body.statements.len() as u32) {
        None => Ok(()),
        Some(_) => Err(wrong(name, "a second label of this name")),
    }
}

/// Reads `.reg .b32 %r<9>, tmp;`, `.shared .align 16 .b8 name[64];`, and declarations that do not affect
/// results.
fn declaration<'t>(
    p: &mut Parser<'t>,
    scope: &mut Scope<'t>,
    directive: Token<'t>,
) -> Result<(), ParseError> {
    match directive.text {
        ".reg" => {
            let name = p.word("a type")?;
            let ty = name.text.strip_prefix('.').and_then(Ty::parse).filter(|ty| ty.bits != 8);
            let ty = ty.ok_or_else(|| wrong(name, "registers of this type are not implemented"))?;
            loop {
                let name = p.word("a register")?;
                let mut count = None;
                if p.took("<") {
                    count = Some(p.count("a number of registers")?);
                    p.expect(">")?;
                }
                scope.declare(name, ty, count)?;
                if !p.took(",") {
                    break;
                }
            }
        }
        ".shared" => {
            let variable = parse::variable(p)?;
            scope.share(variable.name, variable.bytes, variable.align)?;
        }
        ".pragma" => {
            let text = p.take();
            // It tells the assembler not to unroll a loop.
            if text.kind != Kind::Text || text.text != "nounroll" {
                return Err(wrong(text, "this pragma is not implemented"));
            }
        }
        _ => return Err(wrong(directive, "in a body this is not implemented")),
    }
    p.expect(";")
}

fn operand<'t>(p: &mut Parser<'t>, scope: &Scope<'t>) -> Result<Operand<'t>, ParseError> {
    if p.took("[") {
        let base = simple(p, scope)?;
        if !matches!(base, Operand::Register(_) | Operand::Shared(_) | Operand::Name(_)) {
            return Err(p.wrong("expected a register, a variable or a parameter as an address"));
        }
        let mut offset = 0;
        if p.took("+") || p.token.text == "-" {
            let token = p.token;
            let Number::Int(value) = number(p)? else { return Err(wrong(token, "expected an offset")) };
            offset = i64::from(i32::try_from(value).map_err(|_| wrong(token, "an offset beyond 32 bits"))?);
        }
        p.expect("]")?;
        return Ok(Operand::Address(Box::new(base), offset));
    }
    if p.took("{") {
        let mut list = vec![simple(p, scope)?];
        while p.took(",") {
            list.push(simple(p, scope)?);
        }
        p.expect("}")?;
        return Ok(Operand::List(list));
    }
    simple(p, scope)
}

/// Reads an operand that contains no others.
fn simple<'t>(p: &mut Parser<'t>, scope: &Scope<'t>) -> Result<Operand<'t>, ParseError> {
    if p.token.kind == Kind::Number || p.token.text == "-" {
        return Ok(Operand::Number(number(p)?));
    }
    let name = p.word("an operand")?;
    if name.text == "_" {
        return Ok(Operand::Sink);
    }
    let register = match scope.find(name)? {
        Some(Named::Register(register)) => register,
        Some(Named::Shared(address)) => return Ok(Operand::Shared(address)),
        None if name.text.starts_with('%') => {
            return Err(wrong(name, "is a register that nothing declares"));
        }
        None => return Ok(Operand::Name(name)),
    };
    if p.took("|") {
        let second = p.word("a predicate")?;
        return Ok(Operand::Two(register, scope.register(second, "is no register")?));
    }
    Ok(Operand::Register(register))
}

/// Reads a constant with its sign.
pub(crate) fn number(p: &mut Parser<'_>) -> Result<Number, ParseError> {
    let negative = p.took("-");
    let token = p.take();
    let bad = || wrong(token, "expected a constant");
    if token.kind != Kind::Number {
        return Err(bad());
    }
    let text = token.text;
    let hex = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| bad());
    let (prefix, rest) = text.split_at(text.len().min(2));
    let exact = |digits: usize| !negative && rest.len() == digits;
    Ok(match prefix {
        "0f" | "0F" if exact(8) => Number::F32(hex(rest)? as u32),
        "0d" | "0D" if exact(16) => Number::F64(hex(rest)?),
        "0x" | "0X" => signed(negative, hex(rest.trim_end_matches('U'))?),
        "0b" | "0B" => {
            signed(negative, u64::from_str_radix(rest.trim_end_matches('U'), 2).map_err(|_| bad())?)
        }
        _ => {
            let digits = text.trim_end_matches('U');
            let octal = digits.len() > 1 && digits.starts_with('0');
            let value = u64::from_str_radix(digits, if octal { 8 } else { 10 }).map_err(|_| bad())?;
            signed(negative, value)
        }
    })
}

fn signed(negative: bool, value: u64) -> Number {
    Number::Int(if negative { -i128::from(value) } else { i128::from(value) })
}

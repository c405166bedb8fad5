//! Parses a module: directives and entry points.

use super::body::{self, Number};
use super::entry::{Entry, Param};
use super::error::ParseError;
use super::lex::{Kind, Lexer, Token};
use super::types::Ty;
use crate::launch::Parameter;

/// Maximum number of parameter bytes of a kernel (sm_70 and later with PTX 8.1; 4352 including what is not a
/// parameter).
const MAX_PARAM_BYTES: u32 = 32764;

/// Maximum number of bytes of an array: more than any space takes.
const MAX_ARRAY: u32 = 1 << 24;

/// Reads tokens, with one token of lookahead.
#[derive(Debug)]
pub(crate) struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next token.
    pub(crate) token: Token<'t>,
    /// End of the previous token, in bytes.
    pub(crate) end: usize,
}

impl<'t> Parser<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut lexer = Lexer::new(text);
        let token = lexer.next();
        Parser { lexer, token, end: 0 }
    }

    /// Takes the next token.
    pub(crate) fn take(&mut self) -> Token<'t> {
        let taken = self.token;
        self.end = taken.start + taken.text.len();
        self.token = self.lexer.next();
        taken
    }

    /// Takes the next token if it is this mark or word, and returns whether it was.
    pub(crate) fn took(&mut self, text: &str) -> bool {
        let found = matches!(self.token.kind, Kind::Word | Kind::Mark) && self.token.text == text;
        if found {
            self.take();
        }
        found
    }

    /// Takes this mark or word; an error if something else follows.
    pub(crate) fn expect(&mut self, text: &str) -> Result<(), ParseError> {
        if self.took(text) { Ok(()) } else { Err(self.wrong(format!("expected `{text}`"))) }
    }

    /// Takes a word; an error if something else follows.
    pub(crate) fn word(&mut self, what: &str) -> Result<Token<'t>, ParseError> {
        if self.token.kind == Kind::Word {
            Ok(self.take())
        } else {
            Err(self.wrong(format!("expected {what}")))
        }
    }

    /// Takes a nonnegative number that fits; an error if something else follows.
    pub(crate) fn count(&mut self, what: &str) -> Result<u32, ParseError> {
        let token = self.token;
        match body::number(self)? {
            Number::Int(value) => {
                u32::try_from(value).map_err(|_| wrong(token, format!("{value} is no {what}")))
            }
            _ => Err(wrong(token, format!("expected {what}"))),
        }
    }

    /// Returns an error at the next token.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> ParseError {
        wrong(self.token, what)
    }
}

/// Returns an error at a token.
pub(crate) fn wrong(token: Token<'_>, what: impl Into<String>) -> ParseError {
    ParseError { line: token.line, token: token.text.to_owned(), what: what.into() }
}

/// Reads all entry points of a module.
pub(crate) fn module(text: &str) -> Result<Vec<Entry>, ParseError> {
    let mut p = Parser::new(text);
    let mut entries: Vec<Entry> = Vec::new();
    let (mut version, mut target, mut address) = (false, false, false);
    while p.token.kind != Kind::End {
        let token = p.word("a directive")?;
        match token.text {
            ".version" => {
                let number = p.take();
                let major = number.text.split('.').next().and_then(|major| major.parse::<u32>().ok());
                if number.kind != Kind::Number || !major.is_some_and(|major| (6..=9).contains(&major)) {
                    return Err(wrong(number, "expected a version of PTX from 6.0 to 9.x"));
                }
                version = true;
            }
            ".target" => {
                let name = p.word("a processor")?;
                let digits = name.text.strip_prefix("sm_").map(|rest| rest.trim_end_matches(['a', 'f']));
                if !digits.is_some_and(|digits| digits.parse::<u32>().is_ok_and(|sm| sm >= 70)) {
                    return Err(wrong(name, "expected sm_70 or later"));
                }
                if p.token.text == "," {
                    return Err(p.wrong("a second target is not implemented"));
                }
                target = true;
            }
            ".address_size" => {
                let token = p.token;
                if p.count("a size")? != 64 {
                    return Err(wrong(token, "addresses that are not of 64 bits are not implemented"));
                }
                address = true;
            }
            ".visible" | ".weak" => {}
            ".entry" => {
                if !(version && target && address) {
                    return Err(wrong(token, "expected .version, .target and .address_size before it"));
                }
                let entry = entry(&mut p)?;
                if entries.iter().any(|other| other.name == entry.name) {
                    return Err(wrong(token, format!("a second entry point `{}`", entry.name)));
                }
                entries.push(entry);
            }
            _ => return Err(wrong(token, "outside of entry points this is not implemented")),
        }
    }
    if entries.is_empty() {
        return Err(p.wrong("expected an entry point"));
    }
    Ok(entries)
}

fn entry(p: &mut Parser<'_>) -> Result<Entry, ParseError> {
    let name = p.word("a name")?;
    let mut entry = Entry { name: name.text.to_owned(), ..Entry::default() };
    if p.took("(") && !p.took(")") {
        loop {
            let param = param(p, entry.param_bytes)?;
            entry.param_bytes = param.place.offset + param.place.size;
            if entry.param_bytes > MAX_PARAM_BYTES {
                return Err(p.wrong(format!("more than {MAX_PARAM_BYTES} bytes of parameters")));
            }
            if entry.params.iter().any(|other| other.name == param.name) {
                return Err(p.wrong(format!("a second parameter `{}`", param.name)));
            }
            entry.params.push(param);
            if p.took(")") {
                break;
            }
            p.expect(",")?;
        }
    }
    while p.token.text != "{" {
        let directive = p.word("a body")?;
        match directive.text {
            ".reqntid" => entry.required = Some(three(p)?),
            ".maxntid" => entry.most = Some(three(p)?),
            // Hints on registers and blocks for speed: no result depends on them.
            ".maxnreg" | ".minnctapersm" => {
                p.count("a number")?;
            }
            _ => return Err(wrong(directive, "between parameters and body this is not implemented")),
        }
    }
    body::read(p, &mut entry)?;
    Ok(entry)
}

/// Reads `x`, `x, y` or `x, y, z`.
fn three(p: &mut Parser<'_>) -> Result<[u32; 3], ParseError> {
    let mut sizes = [p.count("a number of threads")?, 1, 1];
    for size in &mut sizes[1..] {
        if !p.took(",") {
            break;
        }
        *size = p.count("a number of threads")?;
    }
    Ok(sizes)
}

/// Reads `.param .align 8 .b8 name[16]` or `.param .u64 .ptr .global .align 1 name`.
fn param(p: &mut Parser<'_>, at: u32) -> Result<Param, ParseError> {
    p.expect(".param")?;
    let Variable { name, bytes, align } = variable(p)?;
    let offset = at.next_multiple_of(align);
    Ok(Param { name: name.text.to_owned(), place: Parameter { offset, size: bytes } })
}

/// A variable of a state space.
pub(crate) struct Variable<'t> {
    pub(crate) name: Token<'t>,
    pub(crate) bytes: u32,
    pub(crate) align: u32,
}

/// Reads `.align 8 .b8 name[16]` and the like.
pub(crate) fn variable<'t>(p: &mut Parser<'t>) -> Result<Variable<'t>, ParseError> {
    let mut align = p.took(".align").then(|| alignment(p)).transpose()?;
    let name = p.word("a type")?;
    let ty = name.text.strip_prefix('.').and_then(Ty::parse).filter(|ty| *ty != Ty::PREDICATE);
    let ty = ty.ok_or_else(|| wrong(name, "expected a type of a variable"))?;
    if p.took(".ptr") {
        // What it points to: ignored, because the emulator checks each access.
        p.took(".global");
        if p.took(".align") {
            alignment(p)?;
        }
    } else if p.took(".align") {
        align = Some(alignment(p)?);
    }
    let name = p.word("a name")?;
    let mut size = ty.bytes();
    if p.took("[") {
        let token = p.token;
        let count = p.count("a number of elements")?;
        let bytes = size.checked_mul(count).filter(|bytes| (1..=MAX_ARRAY).contains(bytes));
        size = bytes.ok_or_else(|| wrong(token, "expected the length of an array"))?;
        p.expect("]")?;
    }
    Ok(Variable { name, bytes: size, align: align.unwrap_or(1).max(ty.bytes()) })
}

fn alignment(p: &mut Parser<'_>) -> Result<u32, ParseError> {
    let token = p.token;
    let align = p.count("an alignment")?;
    let known = align.is_power_of_two() && align <= 256;
    if known { Ok(align) } else { Err(wrong(token, "expected a power of two up to 256")) }
}

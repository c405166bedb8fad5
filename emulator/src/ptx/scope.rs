//! Names of registers, and their slots.

use super::entry::{Declared, SPECIAL};
use super::error::ParseError;
use super::lex::Token;
use super::parse::wrong;
use super::types::Ty;
use std::collections::HashMap;

/// Maximum number of registers of an entry point: far more than any assembler accepts.
const MAX: u32 = 1 << 16;

/// A register: its type, and its slot among the registers or among the predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) slot: u32,
    pub(crate) ty: Ty,
}

/// Declarations visible while a body is read. A block in braces hides its own.
#[derive(Debug)]
pub(crate) struct Scope<'t> {
    blocks: Vec<HashMap<&'t str, (Register, Option<u32>)>>,
    /// Slots taken.
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    pub(crate) names: Vec<Declared>,
}

impl<'t> Scope<'t> {
    pub(crate) fn new() -> Self {
        Scope {
            blocks: vec![HashMap::new()],
            registers: SPECIAL.len() as u32,
            predicates: 0,
            names: Vec::new(),
        }
    }

    pub(crate) fn open(&mut self) {
        self.blocks.push(HashMap::new());
    }

    pub(crate) fn close(&mut self) {
        self.blocks.pop();
    }

    /// Declares a register, or `count` registers with this prefix.
    pub(crate) fn declare(&mut self, name: Token<'t>, ty: Ty, count: Option<u32>) -> Result<(), ParseError> {
        let predicate = ty == Ty::PREDICATE;
        let next = if predicate { &mut self.predicates } else { &mut self.registers };
        let slots = count.unwrap_or(1);
        if slots > MAX - *next {
            return Err(wrong(name, format!("more than {MAX} registers")));
        }
        let register = Register { slot: *next, ty };
        *next += slots;
        let block = self.blocks.last_mut().ok_or_else(|| wrong(name, "outside of a body"))?;
        if block.insert(name.text, (register, count)).is_some() {
            return Err(wrong(name, "is declared twice"));
        }
        self.names.push(Declared { name: name.text.to_owned(), predicate, first: register.slot, count });
        Ok(())
    }

    /// Returns the register with this name, if there is one.
    pub(crate) fn find(&self, name: Token<'_>) -> Result<Option<Register>, ParseError> {
        let text = name.text;
        let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
        for block in self.blocks.iter().rev() {
            if let Some((register, None)) = block.get(text) {
                return Ok(Some(*register));
            }
            // `%r<9>` declares %r0 … %r8. A name may itself end in digits.
            for end in stem.len()..text.len() {
                let (prefix, digits) = text.split_at(end);
                let Some((register, Some(count))) = block.get(prefix) else { continue };
                return match digits.parse::<u32>() {
                    Ok(number) if number < *count && (number == 0 || !digits.starts_with('0')) => {
                        Ok(Some(Register { slot: register.slot + number, ty: register.ty }))
                    }
                    _ => Err(wrong(name, format!("{prefix} has {count} registers"))),
                };
            }
        }
        let special = SPECIAL.iter().position(|special| *special == text);
        Ok(special.map(|slot| Register { slot: slot as u32, ty: Ty::U32 }))
    }
}

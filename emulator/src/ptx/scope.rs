//! Names of registers and shared variables, with their slots and addresses.

use super::entry::{Declared, SPECIAL};
use super::error::ParseError;
use super::lex::Token;
use super::parse::wrong;
use super::types::Ty;
use crate::memory::{SHARED_BASE, SHARED_BYTES};
use std::collections::HashMap;
use std::ops::Range;

/// Maximum number of registers of an entry point: far more than any assembler accepts.
const MAX: u32 = 1 << 16;

/// A register: its type, and its slot among the registers or among the predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) slot: u32,
    pub(crate) ty: Ty,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    Register(Register),
    /// A variable in shared memory: its address.
    Shared(u32),
}

/// Declarations visible while a body is read. A block in braces hides its own.
#[derive(Debug)]
pub(crate) struct Scope<'t> {
    /// With the number of registers, where a name is the prefix of several.
    blocks: Vec<HashMap<&'t str, (Named, Option<u32>)>>,
    /// Addresses of all shared variables, whether visible or not.
    pub(crate) shared: Vec<Range<u32>>,
    /// Slots taken.
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    pub(crate) names: Vec<Declared>,
}

impl<'t> Scope<'t> {
    pub(crate) fn new() -> Self {
        Scope {
            blocks: vec![HashMap::new()],
            shared: Vec::new(),
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
        self.insert(name, Named::Register(register), count)?;
        self.names.push(Declared { name: name.text.to_owned(), predicate, first: register.slot, count });
        Ok(())
    }

    /// Declares a variable in shared memory, after all others.
    pub(crate) fn share(&mut self, name: Token<'t>, bytes: u32, align: u32) -> Result<(), ParseError> {
        let start = self.shared.last().map_or(SHARED_BASE, |last| last.end).next_multiple_of(align);
        let end = start.checked_add(bytes).filter(|end| end - SHARED_BASE <= SHARED_BYTES);
        let Some(end) = end else {
            return Err(wrong(name, format!("more than {SHARED_BYTES} bytes of shared memory")));
        };
        self.shared.push(start..end);
        self.insert(name, Named::Shared(start), None)
    }

    fn insert(&mut self, name: Token<'t>, named: Named, count: Option<u32>) -> Result<(), ParseError> {
        let block = self.blocks.last_mut().ok_or_else(|| wrong(name, "outside of a body"))?;
        match block.insert(name.text, (named, count)) {
            None => Ok(()),
            Some(_) => Err(wrong(name, "is declared twice")),
        }
    }

    /// Returns the register with this name; an error with `what` if there is none.
    pub(crate) fn register(&self, name: Token<'_>, what: &str) -> Result<Register, ParseError> {
        match self.find(name)? {
            Some(Named::Register(register)) => Ok(register),
            _ => Err(wrong(name, what)),
        }
    }

    /// Returns what this name stands for, if something declares it.
    pub(crate) fn find(&self, name: Token<'_>) -> Result<Option<Named>, ParseError> {
        let text = name.text;
        let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
        for block in self.blocks.iter().rev() {
            if let Some((named, None)) = block.get(text) {
                return Ok(Some(*named));
            }
            // `%r<9>` declares %r0 … %r8. A name may itself end in digits.
            for end in stem.len()..text.len() {
                let (prefix, digits) = text.split_at(end);
                let Some((Named::Register(register), Some(count))) = block.get(prefix) else { continue };
                return match digits.parse::<u32>() {
                    Ok(number) if number < *count && (number == 0 || !digits.starts_with('0')) => {
                        let register = Register { slot: register.slot + number, ty: register.ty };
                        Ok(Some(Named::Register(register)))
                    }
                    _ => Err(wrong(name, format!("{prefix} has {count} registers"))),
                };
            }
        }
        let special = SPECIAL.iter().position(|special| *special == text);
        Ok(special.map(|slot| Named::Register(Register { slot: slot as u32, ty: Ty::U32 })))
    }
}

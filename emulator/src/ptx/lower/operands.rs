//! Converts operands, one after the other, to slots.

use super::super::body::{Number, Operand, Statement};
use super::super::entry::SPECIAL;
use super::super::error::ParseError;
use super::super::op::NONE;
use super::super::parse::wrong;
use super::super::scope::Register;
use super::super::types::Ty;
use super::Lower;

/// The remaining operands of a statement.
pub(crate) struct Operands<'l, 'b, 't> {
    pub(crate) lower: &'l mut Lower<'b, 't>,
    pub(crate) statement: &'l Statement<'t>,
    at: usize,
}

impl<'l, 'b, 't> Operands<'l, 'b, 't> {
    pub(crate) fn new(lower: &'l mut Lower<'b, 't>, statement: &'l Statement<'t>) -> Self {
        Operands { lower, statement, at: 0 }
    }

    /// Returns an error in this statement.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> ParseError {
        wrong(self.statement.opcode, what)
    }

    /// Takes the next operand.
    pub(crate) fn next(&mut self) -> Result<&'l Operand<'t>, ParseError> {
        let operand = self.statement.operands.get(self.at);
        self.at += 1;
        operand.ok_or_else(|| self.wrong(format!("operand {} is missing", self.at)))
    }

    /// Returns the next operand without taking it.
    pub(crate) fn peek(&self) -> Option<&'l Operand<'t>> {
        self.statement.operands.get(self.at)
    }

    /// Checks that no operand is left.
    pub(crate) fn finish(&self) -> Result<(), ParseError> {
        let left = self.statement.operands.len().saturating_sub(self.at);
        if left == 0 { Ok(()) } else { Err(self.wrong(format!("{left} operands too many"))) }
    }

    /// Takes a register to write, as wide as its type.
    pub(crate) fn target(&mut self, ty: Ty) -> Result<u32, ParseError> {
        let operand = self.next()?;
        self.target_slot(operand, ty)
    }

    pub(crate) fn target_slot(&mut self, operand: &Operand<'t>, ty: Ty) -> Result<u32, ParseError> {
        match operand {
            Operand::Register(register) => {
                self.writable(*register)?;
                self.same(*register, ty)
            }
            // Written and never read.
            Operand::Sink => {
                let slots = &mut self.lower.entry;
                let next = if ty == Ty::PREDICATE { &mut slots.predicates } else { &mut slots.registers };
                *next += 1;
                Ok(*next - 1)
            }
            _ => Err(self.wrong(format!("operand {}: expected a register", self.at))),
        }
    }

    /// Takes a register to write that may be wider than the type: its slot and its width.
    pub(crate) fn target_wider(&mut self, ty: Ty) -> Result<(u32, u8), ParseError> {
        let operand = self.next()?;
        self.target_slot_wider(operand, ty)
    }

    pub(crate) fn target_slot_wider(
        &mut self,
        operand: &Operand<'t>,
        ty: Ty,
    ) -> Result<(u32, u8), ParseError> {
        match operand {
            Operand::Register(register) => {
                self.writable(*register)?;
                self.wider(*register, ty)
            }
            Operand::Sink => Ok((self.target_slot(operand, Ty::U64)?, ty.bits)),
            _ => Err(self.wrong(format!("operand {}: expected a register", self.at))),
        }
    }

    /// Takes a value to read: a register as wide as its type, or a constant.
    pub(crate) fn source(&mut self, ty: Ty) -> Result<u32, ParseError> {
        let operand = self.next()?;
        self.source_slot(operand, ty)
    }

    pub(crate) fn source_slot(&mut self, operand: &Operand<'t>, ty: Ty) -> Result<u32, ParseError> {
        match operand {
            Operand::Register(register) => self.same(*register, ty),
            Operand::Number(number) => self.constant(*number, ty),
            _ => Err(self.wrong(format!("operand {}: expected a register or a constant", self.at))),
        }
    }

    /// Takes a value to read from a register that may be wider than the type.
    pub(crate) fn source_wider(&mut self, ty: Ty) -> Result<u32, ParseError> {
        let operand = self.next()?;
        self.source_slot_wider(operand, ty)
    }

    pub(crate) fn source_slot_wider(&mut self, operand: &Operand<'t>, ty: Ty) -> Result<u32, ParseError> {
        match operand {
            Operand::Register(register) => Ok(self.wider(*register, ty)?.0),
            Operand::Number(number) => self.constant(*number, ty),
            _ => Err(self.wrong(format!("operand {}: expected a register or a constant", self.at))),
        }
    }

    /// Takes a predicate to read.
    pub(crate) fn predicate(&mut self) -> Result<u32, ParseError> {
        match self.next()? {
            Operand::Register(register) => self.same(*register, Ty::PREDICATE),
            Operand::Number(Number::Int(value)) => {
                let value = *value != 0;
                let entry = &mut self.lower.entry;
                let slot = *self.lower.predicate_constants.entry(value).or_insert_with(|| {
                    entry.predicates += 1;
                    entry.predicate_constants.push((entry.predicates - 1, value));
                    entry.predicates - 1
                });
                Ok(slot)
            }
            _ => Err(self.wrong(format!("operand {}: expected a predicate", self.at))),
        }
    }

    /// Takes `d` or `d|p`: the slots of a register and of a predicate, `NONE` if there is none.
    pub(crate) fn target_two(&mut self, ty: Ty) -> Result<(u32, u32), ParseError> {
        match self.next()? {
            Operand::Two(register, predicate) => {
                self.writable(*register)?;
                Ok((self.same(*register, ty)?, self.same(*predicate, Ty::PREDICATE)?))
            }
            operand => Ok((self.target_slot(operand, ty)?, NONE)),
        }
    }

    /// Takes a constant number.
    pub(crate) fn immediate(&mut self) -> Result<i128, ParseError> {
        match self.next()? {
            Operand::Number(Number::Int(value)) => Ok(*value),
            _ => Err(self.wrong(format!("operand {}: expected a constant", self.at))),
        }
    }

    fn writable(&self, register: Register) -> Result<(), ParseError> {
        if register.ty != Ty::PREDICATE && register.slot < SPECIAL.len() as u32 {
            return Err(self.wrong(format!("operand {}: a special register is written", self.at)));
        }
        Ok(())
    }

    fn same(&self, register: Register, ty: Ty) -> Result<u32, ParseError> {
        if register.ty.bits != ty.bits || !register.ty.agrees(ty) {
            return Err(self.wrong(format!("operand {}: expected a register of {} bits", self.at, ty.bits)));
        }
        Ok(register.slot)
    }

    fn wider(&self, register: Register, ty: Ty) -> Result<(u32, u8), ParseError> {
        if register.ty.bits < ty.bits || !register.ty.agrees(ty) {
            let what = format!("operand {}: expected a register of {} or more bits", self.at, ty.bits);
            return Err(self.wrong(what));
        }
        Ok((register.slot, register.ty.bits))
    }

    /// Returns the slot that always holds this value.
    pub(crate) fn constant(&mut self, number: Number, ty: Ty) -> Result<u32, ParseError> {
        use super::super::types::Kind::Float;
        let bits = u32::from(ty.bits);
        let value = match number {
            Number::F32(value) if bits == 32 => u64::from(value),
            Number::F64(value) if bits == 64 => value,
            Number::Int(value) if ty.kind != Float => {
                if value < -(1_i128 << (bits - 1)) || value >= 1_i128 << bits {
                    return Err(self.wrong(format!("{value} has more than {bits} bits")));
                }
                (value as u64) & (u64::MAX >> (64 - bits))
            }
            _ => return Err(self.wrong(format!("operand {}: a constant of another type", self.at))),
        };
        let entry = &mut self.lower.entry;
        let slot = *self.lower.constants.entry(value).or_insert_with(|| {
            entry.registers += 1;
            entry.constants.push((entry.registers - 1, value));
            entry.registers - 1
        });
        Ok(slot)
    }

    /// Stores a list of slots; returns where it begins.
    pub(crate) fn list(&mut self, slots: &[u32]) -> u32 {
        let lists = &mut self.lower.entry.lists;
        lists.extend(slots);
        (lists.len() - slots.len()) as u32
    }
}

//! Registers of a warp. Each slot records which lanes wrote it: a lane that computes with an unwritten value
//! is a fault.
//!
//! LLVM leaves registers unwritten on paths that do not use them, and lets `mov` and `selp` copy them. These
//! two therefore propagate the unwritten state, and every other instruction faults. (`and` and `or` of
//! predicates need only one operand if it determines the result: LLVM writes nested conditions this way.)

use super::super::entry::Entry;
use super::super::op::NONE;
use super::{Done, LANES, Lanes, Stop, lanes};
use crate::fault::FaultKind;

/// The register file of a warp.
#[derive(Debug)]
pub(crate) struct Registers<'e> {
    entry: &'e Entry,
    /// Values, zero-extended from their registers' widths.
    values: Vec<Lanes>,
    written: Vec<u32>,
    /// A bit for each lane.
    predicates: Vec<u32>,
    predicates_written: Vec<u32>,
    /// The carry of each lane, and which lanes have one.
    carry: u32,
    carry_written: u32,
}

impl<'e> Registers<'e> {
    pub(crate) fn new(entry: &'e Entry) -> Self {
        let (registers, predicates) = (entry.registers as usize, entry.predicates as usize);
        let mut file = Registers {
            entry,
            values: vec![[0; LANES]; registers],
            written: vec![0; registers],
            predicates: vec![0; predicates],
            predicates_written: vec![0; predicates],
            carry: 0,
            carry_written: 0,
        };
        for (slot, value) in &entry.constants {
            file.values[*slot as usize] = [*value; LANES];
        }
        file.clear();
        file
    }

    /// Resets for the next warp: only constants are written.
    pub(crate) fn clear(&mut self) {
        self.written.fill(0);
        self.predicates_written.fill(0);
        self.carry_written = 0;
        for (slot, _) in &self.entry.constants {
            self.written[*slot as usize] = u32::MAX;
        }
        for (slot, value) in &self.entry.predicate_constants {
            self.predicates_written[*slot as usize] = u32::MAX;
            self.predicates[*slot as usize] = if *value { u32::MAX } else { 0 };
        }
    }

    /// Returns the values of a slot that all lanes of the mask wrote.
    #[inline(always)]
    pub(crate) fn get(&self, slot: u32, mask: u32) -> Result<&Lanes, Box<Stop>> {
        let missing = mask & !self.written[slot as usize];
        if missing != 0 {
            return Err(self.unwritten(slot, missing, false));
        }
        Ok(&self.values[slot as usize])
    }

    /// Writes the lanes of the mask.
    #[inline(always)]
    pub(crate) fn put(&mut self, slot: u32, mask: u32, values: &Lanes) -> Done {
        let target = &mut self.values[slot as usize];
        if mask == u32::MAX {
            *target = *values;
        } else {
            for lane in 0..LANES {
                let all = u64::from(mask >> lane & 1).wrapping_neg();
                target[lane] = (values[lane] & all) | (target[lane] & !all);
            }
        }
        self.written[slot as usize] |= mask;
        Ok(())
    }

    /// Copies a slot: unwritten lanes stay unwritten.
    pub(crate) fn copy(&mut self, to: u32, from: u32, mask: u32) -> Done {
        let (values, written) = (self.values[from as usize], self.written[from as usize]);
        self.put(to, mask, &values)?;
        self.written[to as usize] &= written | !mask;
        Ok(())
    }

    /// Copies a predicate in the same way.
    pub(crate) fn copy_predicate(&mut self, to: u32, from: u32, mask: u32) -> Done {
        let written = self.predicates_written[from as usize];
        self.put_predicate(to, mask, self.predicates[from as usize])?;
        self.predicates_written[to as usize] &= written | !mask;
        Ok(())
    }

    /// Selects one of two slots for each lane: `yes` holds the lanes of the first. The other need not be
    /// written.
    pub(crate) fn select(&mut self, to: u32, [a, b]: [u32; 2], yes: u32, mask: u32) -> Done {
        let written = (self.written[a as usize] & yes) | (self.written[b as usize] & !yes);
        let (first, second) = (&self.values[a as usize], &self.values[b as usize]);
        let mut values = [0; LANES];
        for lane in 0..LANES {
            let all = u64::from(yes >> lane & 1).wrapping_neg();
            values[lane] = (first[lane] & all) | (second[lane] & !all);
        }
        self.put(to, mask, &values)?;
        self.written[to as usize] &= written | !mask;
        Ok(())
    }

    /// Writes a special register in all lanes.
    pub(crate) fn put_special(&mut self, slot: u32, values: Lanes) {
        self.values[slot as usize] = values;
        self.written[slot as usize] = u32::MAX;
    }

    /// Returns a predicate that all lanes of the mask wrote, as a bit per lane.
    #[inline(always)]
    pub(crate) fn predicate(&self, slot: u32, mask: u32) -> Result<u32, Box<Stop>> {
        let missing = mask & !self.predicates_written[slot as usize];
        if missing != 0 {
            return Err(self.unwritten(slot, missing, true));
        }
        Ok(self.predicates[slot as usize])
    }

    /// Computes `a & b` or `a | b`: if one determines the result, the other need not be written.
    pub(crate) fn either(&self, a: u32, b: u32, or: bool, mask: u32) -> Result<u32, Box<Stop>> {
        // The determining value: false for and, true for or.
        let settles = |slot: u32| {
            let value = self.predicates[slot as usize];
            self.predicates_written[slot as usize] & if or { value } else { !value }
        };
        let (first, second) = (settles(a), settles(b));
        self.predicate(a, mask & !second)?;
        self.predicate(b, mask & !first)?;
        Ok(if or { first | second } else { !(first | second) })
    }

    #[inline(always)]
    pub(crate) fn put_predicate(&mut self, slot: u32, mask: u32, values: u32) -> Done {
        let target = &mut self.predicates[slot as usize];
        *target = (values & mask) | (*target & !mask);
        self.predicates_written[slot as usize] |= mask;
        Ok(())
    }

    /// Returns the carry of the last `.cc` instruction.
    pub(crate) fn carry(&self, mask: u32) -> Result<u32, Box<Stop>> {
        match lanes(mask & !self.carry_written).next() {
            None => Ok(self.carry),
            Some(lane) => Err(Stop::of(FaultKind::UnwrittenRegister("CC.CF".into()), Some(lane as u32))),
        }
    }

    pub(crate) fn put_carry(&mut self, mask: u32, carry: u32) {
        self.carry = (carry & mask) | (self.carry & !mask);
        self.carry_written |= mask;
    }

    /// Returns the lanes of `active` that pass a guard.
    #[inline(always)]
    pub(crate) fn guarded(&self, guard: u32, active: u32) -> Result<u32, Box<Stop>> {
        if guard == NONE {
            return Ok(active);
        }
        let negated = (guard & 1).wrapping_neg();
        Ok((self.predicate(guard / 2, active)? ^ negated) & active)
    }

    #[cold]
    fn unwritten(&self, slot: u32, missing: u32, predicate: bool) -> Box<Stop> {
        let kind = FaultKind::UnwrittenRegister(self.entry.register(slot, predicate));
        Stop::of(kind, lanes(missing).next().map(|lane| lane as u32))
    }
}

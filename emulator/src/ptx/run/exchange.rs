//! Shuffles, votes and reductions: exchanges between lanes of a warp.

use super::super::entry::Entry;
use super::super::op::{Int2, NONE, Shuffle, Step, Vote};
use super::super::types::IntTy;
use super::int::int2;
use super::registers::Registers;
use super::{Done, LANES, Stop, lanes};
use crate::fault::FaultKind;

/// Returns the member mask that the first lane of `mask` names, and the lanes of `mask` that name the same
/// one.
pub(crate) fn members(r: &Registers<'_>, slot: u32, mask: u32) -> Result<(u32, u32), Box<Stop>> {
    let masks = r.get(slot, mask)?;
    let first = masks[mask.trailing_zeros() as usize & 31] as u32;
    let mut here = 0;
    for lane in lanes(mask).filter(|lane| masks[*lane] as u32 == first) {
        if first >> lane & 1 == 0 {
            let why = format!("lane {lane} executes it and is not in its own mask {first:#x}");
            return Err(missing(1 << lane, why, lane));
        }
        here |= 1 << lane;
    }
    Ok((first, here))
}

#[cold]
fn missing(missing: u32, why: String, lane: usize) -> Box<Stop> {
    Stop::of(FaultKind::Missing { missing: u64::from(missing), why }, Some(lane as u32))
}

/// shfl.sync, with all its lanes present.
pub(crate) fn shuffle(r: &mut Registers<'_>, entry: &Entry, step: &Step, mode: Shuffle, mask: u32) -> Done {
    let predicate = entry.lists[step.extra as usize + 1];
    let (a, b, c) = (r.get(step.a, mask)?, r.get(step.b, mask)?, r.get(step.c, mask)?);
    let (mut values, mut inside) = ([0; LANES], 0);
    for lane in lanes(mask) {
        let (at, amount) = (lane as i32, (b[lane] & 31) as i32);
        let (clamp, segment) = ((c[lane] & 31) as i32, (c[lane] >> 8 & 31) as i32);
        let last = (at & segment) | (clamp & !segment);
        let first = at & segment;
        let (from, within) = match mode {
            Shuffle::Up => (at - amount, at - amount >= last),
            Shuffle::Down => (at + amount, at + amount <= last),
            Shuffle::Butterfly => (at ^ amount, at ^ amount <= last),
            Shuffle::Index => {
                let from = first | (amount & !segment);
                (from, from <= last)
            }
        };
        let from = if within { from as usize & 31 } else { lane };
        if mask >> from & 1 == 0 {
            let why = format!("lane {lane} reads a word of lane {from}, which does not take part");
            return Err(missing(1 << from, why, lane));
        }
        values[lane] = a[from];
        inside |= u32::from(within) << lane;
    }
    r.put(step.d, mask, &values)?;
    if predicate == NONE { Ok(()) } else { r.put_predicate(predicate, mask, inside) }
}

/// vote.sync, with all its lanes present.
pub(crate) fn vote(r: &mut Registers<'_>, step: &Step, mode: Vote, mask: u32) -> Done {
    let yes = r.predicate(step.a, mask)? & mask;
    let value = match mode {
        Vote::Ballot => return r.put(step.d, mask, &[u64::from(yes); LANES]),
        Vote::All => yes == mask,
        Vote::Any => yes != 0,
        Vote::Uniform => yes == mask || yes == 0,
    };
    r.put_predicate(step.d, mask, if value { u32::MAX } else { 0 })
}

/// redux.sync, with all its lanes present. Integers: the order does not matter.
pub(crate) fn reduce(r: &mut Registers<'_>, step: &Step, op: Int2, ty: IntTy, mask: u32) -> Done {
    let values = r.get(step.a, mask)?;
    let words = lanes(mask).map(|lane| values[lane]);
    let fold = |f: &dyn Fn(u64, u64) -> u64| words.reduce(f).unwrap_or_default();
    let all = match ty {
        IntTy::S32 => int2!(op, i32, |f| fold(&f)),
        _ => int2!(op, u32, |f| fold(&f)),
    };
    r.put(step.d, mask, &[all; LANES])
}

//! Loads and stores of a warp.

use super::super::entry::Entry;
use super::super::op::{Access, Step};
use super::registers::Registers;
use super::{Done, LANES, Lanes, Stop, lanes};
use crate::counts::Counts;
use crate::fault::{self, FaultKind};
use crate::memory::{Space, View, clash};

/// ld.param: one value for all lanes.
pub(crate) fn load_param(
    r: &mut Registers<'_>,
    step: &Step,
    access: Access,
    params: &[u8],
    mask: u32,
) -> Done {
    let (at, size) = (step.extra as usize, usize::from(access.bytes));
    let mut bytes = [0; 16];
    // Lowering and launch have checked that the parameter exists.
    let from = params.get(at..at + size).unwrap_or_default();
    bytes[..from.len()].copy_from_slice(from);
    r.put(step.d, mask, &[value(&bytes, 0, access); LANES])
}

/// ld.global, ld.shared.
pub(crate) fn load(
    r: &mut Registers<'_>,
    entry: &Entry,
    step: &Step,
    access: Access,
    view: &mut View<'_>,
    counts: &mut Counts,
    mask: u32,
) -> Done {
    let addresses = addresses(r, step, mask)?;
    let size = access.bytes * access.count;
    if access.count == 1 {
        let mut values = [0; LANES];
        match size {
            1 => each(view, &addresses, mask, |lane, [byte]| values[lane] = u64::from(byte))?,
            2 => each(view, &addresses, mask, |lane, bytes| values[lane] = u16::from_le_bytes(bytes).into())?,
            4 => each(view, &addresses, mask, |lane, bytes| values[lane] = u32::from_le_bytes(bytes).into())?,
            _ => each(view, &addresses, mask, |lane, bytes| values[lane] = u64::from_le_bytes(bytes))?,
        }
        if access.sign_to != 0 {
            values = values.map(|value| signed(value, access));
        }
        r.put(step.d, mask, &values)?;
    } else {
        let mut found = [[0; 16]; LANES];
        match size {
            2 => each(view, &addresses, mask, |lane, bytes: [u8; 2]| found[lane] = filled(bytes))?,
            4 => each(view, &addresses, mask, |lane, bytes: [u8; 4]| found[lane] = filled(bytes))?,
            8 => each(view, &addresses, mask, |lane, bytes: [u8; 8]| found[lane] = filled(bytes))?,
            _ => each(view, &addresses, mask, |lane, bytes: [u8; 16]| found[lane] = bytes)?,
        }
        for which in 0..usize::from(access.count) {
            let values = found.map(|bytes| value(&bytes, which, access));
            r.put(entry.lists[step.d as usize + which], mask, &values)?;
        }
    }
    count(view, counts, &addresses, size, mask);
    Ok(())
}

/// Counts a request of global memory that succeeded: invalid addresses have no sectors.
#[inline]
fn count(view: &View<'_>, counts: &mut Counts, addresses: &Lanes, size: u8, mask: u32) {
    if view.space() == Space::Global {
        counts.request(lanes(mask).map(|lane| (addresses[lane], u32::from(size))));
    }
}

/// Loads `N` bytes for each lane.
#[inline]
fn each<const N: usize>(
    view: &mut View<'_>,
    addresses: &Lanes,
    mask: u32,
    mut put: impl FnMut(usize, [u8; N]),
) -> Done {
    for lane in lanes(mask) {
        match view.load::<N>(addresses[lane]) {
            Ok(bytes) => put(lane, bytes),
            Err(kind) => return Err(Stop::of(kind, Some(lane as u32))),
        }
    }
    Ok(())
}

/// st.global, st.shared.
pub(crate) fn store(
    r: &Registers<'_>,
    entry: &Entry,
    step: &Step,
    access: Access,
    view: &mut View<'_>,
    counts: &mut Counts,
    mask: u32,
) -> Done {
    let addresses = addresses(r, step, mask)?;
    let size = access.bytes * access.count;
    let mut stores = [(0, 0, [0; 16]); LANES];
    let mut many = 0;
    for lane in lanes(mask) {
        stores[many] = (lane as u32, addresses[lane], [0; 16]);
        many += 1;
    }
    let stores = &mut stores[..many];
    for which in 0..usize::from(access.count) {
        let slot = if access.count == 1 { step.d } else { entry.lists[step.d as usize + which] };
        let values = r.get(slot, mask)?;
        let width = usize::from(access.bytes);
        for (lane, _, bytes) in &mut *stores {
            let value = values[*lane as usize].to_le_bytes();
            bytes[which * width..(which + 1) * width].copy_from_slice(&value[..width]);
        }
    }
    // An address near the end of the address space would overflow where clash adds the size: no memory is
    // there.
    if let Some((lane, address, _)) = stores.iter().find(|(_, address, _)| *address > u64::MAX - 16) {
        let (access, nearest) = (fault::Access::Store, "at the end of the address space".to_owned());
        let kind = FaultKind::OutOfBounds { access, address: *address, size: u32::from(size), nearest };
        return Err(Stop::of(kind, Some(*lane)));
    }
    clash(stores, u32::from(size)).map_err(|(lane, kind)| Stop::of(kind, Some(lane)))?;
    for (lane, at, bytes) in stores {
        let stored = match size {
            1 => view.store::<1>(*at, first(bytes)),
            2 => view.store::<2>(*at, first(bytes)),
            4 => view.store::<4>(*at, first(bytes)),
            8 => view.store::<8>(*at, first(bytes)),
            _ => view.store::<16>(*at, *bytes),
        };
        stored.map_err(|kind| Stop::of(kind, Some(*lane)))?;
    }
    count(view, counts, &addresses, size, mask);
    Ok(())
}

fn addresses(r: &Registers<'_>, step: &Step, mask: u32) -> Result<Lanes, Box<Stop>> {
    let mut addresses = *r.get(step.a, mask)?;
    for address in &mut addresses {
        *address = address.wrapping_add_signed(step.extra);
    }
    Ok(addresses)
}

/// Returns value number `which` of the bytes, as a register holds it.
#[inline(always)]
fn value(bytes: &[u8; 16], which: usize, access: Access) -> u64 {
    let width = usize::from(access.bytes);
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[which * width..(which + 1) * width]);
    signed(u64::from_le_bytes(word), access)
}

/// Sign-extends a value to the register's width.
#[inline(always)]
fn signed(value: u64, access: Access) -> u64 {
    if access.sign_to == 0 {
        return value;
    }
    let spare = 64 - 8 * u32::from(access.bytes);
    (((value << spare) as i64) >> spare) as u64 & (u64::MAX >> (64 - access.sign_to))
}

fn filled<const N: usize>(bytes: [u8; N]) -> [u8; 16] {
    let mut all = [0; 16];
    all[..N].copy_from_slice(&bytes);
    all
}

fn first<const N: usize>(bytes: &[u8; 16]) -> [u8; N] {
    let mut some = [0; N];
    some.copy_from_slice(&bytes[..N]);
    some
}

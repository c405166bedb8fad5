//! Loads and stores of global memory, and of the arguments.

use super::operands::blend;
use super::registers::{Lanes, Registers};
use super::stop::{Done, Stop, Stops, stop};
use super::waits::Counter;
use crate::counts::Counts;
use crate::fault::{Access, FaultKind};
use crate::gfx942::code::inst::{Inst, Src};
use crate::gfx942::code::op::Op;
use crate::memory::{Memory, View, clash};

/// Address of the arguments: above all of [`Memory`].
pub(super) const KERNARG: u64 = 0x7000_0000_0000;

/// Arguments of a launch.
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    pub(super) bytes: Vec<u8>,
    /// Which bytes belong to an argument: the rest is padding.
    pub(super) written: Vec<bool>,
}

/// A wave's view of memory.
pub(super) struct World<'m> {
    pub(super) memory: &'m mut Memory,
    pub(super) arguments: &'m Arguments,
    pub(super) counts: &'m mut Counts,
    pub(super) team: u64,
    /// Stores of one instruction.
    pub(super) stores: Vec<(u32, u64, [u8; 16])>,
}

impl World<'_> {
    fn view(&mut self) -> View<'_> {
        self.memory.team(self.team)
    }

    /// Returns a word of the arguments, and whether all of it is written; `None` for an address elsewhere.
    fn argument(&self, address: u64) -> Option<Result<(u32, bool), FaultKind>> {
        let at = address.checked_sub(KERNARG).filter(|at| *at < 1 << 20)? as usize;
        let Some(bytes) = self.arguments.bytes.get(at..at + 4) else {
            let len = self.arguments.bytes.len();
            let nearest = format!("past the arguments of {len} bytes");
            return Some(Err(FaultKind::OutOfBounds { access: Access::Load, address, size: 4, nearest }));
        };
        let written = self.arguments.written[at..at + 4].iter().all(|written| *written);
        Some(Ok((u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), written)))
    }

    /// `s_load_dword…`
    pub(super) fn scalar_load(&mut self, r: &mut Registers, i: &Inst) -> Done {
        let base = r.scalar64(i.src[0])?;
        let address = base.wrapping_add_signed(i.imm.into());
        let count = usize::from(i.words());
        if address % 4 != 0 {
            return stop(FaultKind::Misaligned { access: Access::Load, address, size: 4 * count as u32 });
        }
        let (mut words, mut known) = ([0; 16], 0u32);
        for (at, word) in words[..count].iter_mut().enumerate() {
            let address = address.wrapping_add(4 * at as u64);
            let (value, written) = match self.argument(address) {
                Some(found) => found.or_else(stop)?,
                None => match self.view().load::<4>(address) {
                    Ok(bytes) => (u32::from_le_bytes(bytes), true),
                    Err(kind) => return stop(kind),
                },
            };
            *word = value;
            known |= u32::from(written) << at;
        }
        if address < KERNARG {
            self.counts.request(std::iter::once((address, 4 * count as u32)));
        }
        r.fill_scalar(i.dst, &words[..count], known)
    }

    /// `global_load_…`, `global_store_…`
    pub(super) fn global(&mut self, r: &mut Registers, i: &Inst) -> Done {
        let addresses = addresses(r, i)?;
        let exec = r.exec;
        let size = match i.op {
            Op::GLoadU8 | Op::GLoadI8 | Op::GStoreX8 => 1,
            Op::GLoadU16 | Op::GLoadI16 | Op::GStoreX16 | Op::GStoreHi16 => 2,
            _ => 4 * u32::from(i.words()),
        };
        let active = (0..64u32).filter(move |lane| exec >> lane & 1 == 1);
        self.counts.request(active.map(|lane| (addresses[lane as usize], size)));
        if i.stores() { self.store(r, i, &addresses, size) } else { self.load(r, i, &addresses) }
    }

    fn load(&mut self, r: &mut Registers, i: &Inst, addresses: &[u64; 64]) -> Done {
        let exec = r.exec;
        let mut out: [Lanes; 4] = [[0; 64]; 4];
        for lane in (0..64usize).filter(|lane| exec >> lane & 1 == 1) {
            let (address, at) = (addresses[lane], lane as u32);
            let mut view = self.memory.team(self.team);
            match i.op {
                Op::GLoadU8 => out[0][lane] = u32::from(u8::from_le_bytes(view.load(address).lane(at)?)),
                Op::GLoadI8 => {
                    out[0][lane] = i32::from(i8::from_le_bytes(view.load(address).lane(at)?)).cast_unsigned()
                }
                Op::GLoadU16 => out[0][lane] = u32::from(u16::from_le_bytes(view.load(address).lane(at)?)),
                Op::GLoadI16 => {
                    out[0][lane] = i32::from(i16::from_le_bytes(view.load(address).lane(at)?)).cast_unsigned()
                }
                _ => {
                    for word in 0..usize::from(i.words()) {
                        let address = address.wrapping_add(4 * word as u64);
                        out[word][lane] = match self.argument(address) {
                            Some(found) => match found.lane(at)? {
                                (value, true) => value,
                                _ => return Err(FaultKind::Unwritten { address, size: 4, byte: 0 }).lane(at),
                            },
                            // LLVM reads the upper half of a word and the lower half of the next at once:
                            // amdhsa allows it.
                            None if address % 4 == 2 => {
                                let low = u16::from_le_bytes(self.view().load(address).lane(at)?);
                                let high = u16::from_le_bytes(self.view().load(address + 2).lane(at)?);
                                u32::from(high) << 16 | u32::from(low)
                            }
                            None => u32::from_le_bytes(self.view().load(address).lane(at)?),
                        };
                    }
                }
            }
        }
        let words = i.words();
        r.fill(Counter::Vm, i.dst, words, exec)?;
        for word in 0..usize::from(words) {
            blend(&mut r.v[usize::from(i.dst) + word], &out[word], exec);
        }
        Ok(())
    }

    fn store(&mut self, r: &mut Registers, i: &Inst, addresses: &[u64; 64], size: u32) -> Done {
        let Src::V(data) = i.src[2] else { return stop(FaultKind::Unimplemented(i.to_string())) };
        let exec = r.exec;
        r.have(data, i.words(), exec)?;
        self.stores.clear();
        for lane in (0..64usize).filter(|lane| exec >> lane & 1 == 1) {
            let mut bytes = [0; 16];
            for word in 0..usize::from(i.words()) {
                bytes[4 * word..4 * word + 4]
                    .copy_from_slice(&r.v[usize::from(data) + word][lane].to_le_bytes());
            }
            if i.op == Op::GStoreHi16 {
                bytes.copy_within(2..4, 0);
            }
            self.stores.push((lane as u32, addresses[lane], bytes));
        }
        if let Err((lane, kind)) = clash(&self.stores, size) {
            return Err(Box::new(Stop { kind, lane: Some(lane) }));
        }
        let mut view = self.memory.team(self.team);
        for (lane, address, bytes) in &self.stores {
            let word = |at: usize| [bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]];
            match size {
                1 => view.store(*address, [bytes[0]]).lane(*lane)?,
                2 => view.store(*address, [bytes[0], bytes[1]]).lane(*lane)?,
                _ => {
                    // The hardware requires words to be aligned.
                    for at in 0..size as usize / 4 {
                        view.store(address.wrapping_add(4 * at as u64), word(at)).lane(*lane)?;
                    }
                }
            }
        }
        r.begin_store();
        Ok(())
    }
}

/// Base in scalar registers plus 32 bits per lane, or 64 bits per lane; plus the offset.
fn addresses(r: &Registers, i: &Inst) -> Done<[u64; 64]> {
    let Src::V(number) = i.src[0] else { return stop(FaultKind::Unimplemented(i.to_string())) };
    let at = usize::from(number);
    let mut out = [0; 64];
    if let Src::S(_) = i.src[1] {
        let base = r.scalar64(i.src[1])?.wrapping_add_signed(i.imm.into());
        r.have(number, 1, r.exec)?;
        for lane in 0..64 {
            out[lane] = base.wrapping_add(u64::from(r.v[at][lane]));
        }
    } else {
        r.have(number, 2, r.exec)?;
        for lane in 0..64 {
            let own = u64::from(r.v[at][lane]) | u64::from(r.v[at + 1][lane]) << 32;
            out[lane] = own.wrapping_add_signed(i.imm.into());
        }
    }
    Ok(out)
}

//! Moves between lanes, and between lanes and scalar registers.

use super::operands::blend;
use super::registers::{Lanes, Registers};
use super::stop::{Done, Stop, stop};
use super::waits::{Counter, Pending};
use crate::fault::FaultKind;
use crate::gfx942::code::inst::{Inst, Src};
use crate::gfx942::code::op::Op;

impl Registers {
    pub(super) fn between_lanes(&mut self, i: &Inst) -> Done {
        match (i.op, i.src[0]) {
            (Op::VReadfirstlane, Src::V(number)) => {
                // If no lane is active, lane 0.
                let lane = if self.exec == 0 { 0 } else { self.exec.trailing_zeros() };
                self.have(number, 1, 1 << lane)?;
                let value = self.v[usize::from(number)][lane as usize];
                self.set32(i.dst, value)
            }
            (Op::VReadlane, Src::V(number)) => {
                let lane = self.scalar32(i.src[1])? & 63;
                self.have(number, 1, 1 << lane)?;
                let value = self.v[usize::from(number)][lane as usize];
                self.set32(i.dst, value)
            }
            (Op::VWritelane, value) => {
                let (value, lane) = (self.scalar32(value)?, self.scalar32(i.src[1])? & 63);
                self.wrote(i.dst, 1, 1 << lane)?;
                self.v[usize::from(i.dst)][lane as usize] = value;
                Ok(())
            }
            _ => stop(FaultKind::Unimplemented(i.to_string())),
        }
    }

    /// `ds_bpermute_b32`: each active lane reads the lane that its address names; `ds_permute_b32`: writes to
    /// it. The hardware reads 0 from an inactive lane; here that is a fault, because Lockstep never intends
    /// it.
    pub(super) fn permute(&mut self, i: &Inst) -> Done {
        let [Src::V(address), Src::V(data), _] = i.src else {
            return stop(FaultKind::Unimplemented(i.to_string()));
        };
        let exec = self.exec;
        self.have(address, 1, exec)?;
        let other = |lane: usize| {
            (self.v[usize::from(address)][lane].wrapping_add(i.imm.cast_unsigned()) >> 2 & 63) as usize
        };
        let mut out: Lanes = [0; 64];
        let mut lanes = exec;
        if i.op == Op::DsPermute {
            self.have(data, 1, exec)?;
            lanes = 0;
            for lane in (0..64).filter(|lane| exec >> lane & 1 == 1) {
                let to = other(lane);
                if lanes >> to & 1 == 1 {
                    return stop(FaultKind::Unimplemented(format!("{i} to lane {to} from two lanes")));
                }
                out[to] = self.v[usize::from(data)][lane];
                lanes |= 1 << to;
            }
            if lanes != exec {
                return stop(FaultKind::Missing {
                    missing: exec ^ lanes,
                    why: "each active lane is written once".into(),
                });
            }
        } else {
            let (mut sources, mut reader, mut missing) = (0u64, 0, 0u64);
            for lane in 0..64 {
                if exec >> lane & 1 == 1 {
                    let from = other(lane);
                    sources |= 1 << from;
                    if exec >> from & 1 == 0 {
                        if missing == 0 {
                            reader = lane as u32;
                        }
                        missing |= 1 << from;
                    }
                    out[lane] = self.v[usize::from(data)][from];
                }
            }
            if missing != 0 {
                let why = format!("lane {reader} reads from one that is not active");
                return Err(Box::new(Stop { kind: FaultKind::Missing { missing, why }, lane: Some(reader) }));
            }
            self.have(data, 1, sources)?;
        }
        self.fill(Counter::Lgkm, i.dst, 1, lanes)?;
        blend(&mut self.v[usize::from(i.dst)], &out, lanes);
        Ok(())
    }

    /// A DPP operation: its first source comes from other lanes; lanes that read none are left out, or read
    /// 0.
    pub(super) fn across(&mut self, i: &Inst) -> Done {
        let Src::V(number) = i.src[0] else { return stop(FaultKind::Unimplemented(i.to_string())) };
        let exec = self.exec;
        let (mut sources, mut active) = (0u64, 0u64);
        for lane in (0..64u8).filter(|lane| exec >> lane & 1 == 1) {
            if i.dpp.rows >> (lane / 16) & 1 == 0 || i.dpp.banks >> (lane / 4 % 4) & 1 == 0 {
                continue;
            }
            let from = i.dpp.source(lane).filter(|from| exec >> from & 1 == 1);
            if from.is_some() || i.dpp.zero {
                active |= 1 << lane;
            }
            sources |= from.map_or(0, |from| 1 << from);
            let value = from.map_or(0, |from| self.v[usize::from(number)][usize::from(from)]);
            self.crossed[usize::from(lane)] = value;
        }
        self.have(number, 1, sources)?;
        self.exec = active;
        let done = self.integer(i);
        self.exec = exec;
        done
    }

    /// Counts a pending store, which fills nothing.
    pub(super) fn begin_store(&mut self) {
        self.begin(Counter::Vm, Pending { scalar: false, first: 0, count: 0, unordered: false });
    }
}

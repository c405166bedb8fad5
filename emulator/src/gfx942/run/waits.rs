//! Pending loads and stores, and what `s_waitcnt` waits for.

use super::registers::Registers;
use super::stop::{Done, stop};
use crate::fault::FaultKind;
use crate::gfx942::code::text;
use std::collections::VecDeque;

/// A pending load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// The scalar or vector registers that it fills; none for a store.
    pub(super) scalar: bool,
    pub(super) first: u8,
    pub(super) count: u8,
    /// Whether it may return in any order.
    pub(super) unordered: bool,
}

/// A counter that `s_waitcnt` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Vm,
    Lgkm,
}

impl Registers {
    pub(super) fn no_wait(&self, scalar: bool, at: u8, name: String) -> FaultKind {
        let fills =
            |p: &Pending| p.scalar == scalar && p.count > 0 && (p.first..p.first + p.count).contains(&at);
        let why = if let Some(behind) = self.vm.iter().rev().position(fills) {
            format!("vmcnt({behind}) would do")
        } else {
            let unordered = self.lgkm.iter().any(|p| p.unordered);
            let behind = self.lgkm.iter().rev().position(fills).unwrap_or(0);
            format!("lgkmcnt({}) would do", if unordered { 0 } else { behind })
        };
        FaultKind::NoWait(name, why)
    }

    /// Records a pending load into vector registers; they are written already, but may be read only after a
    /// wait.
    pub(super) fn fill(&mut self, counter: Counter, number: u8, width: u8, lanes: u64) -> Done {
        for at in usize::from(number)..usize::from(number) + usize::from(width) {
            // Loads of one kind return in order, so one may follow another into the same register.
            let mine = self.queue(counter).iter().filter(|p| fills(p, false, at)).count();
            if usize::from(self.filling[at]) != mine {
                return stop(self.no_wait(false, at as u8, text::vector(at as u8, 1)));
            }
            self.written[at] |= lanes;
            self.ready[at] = 0;
            self.filling[at] += 1;
        }
        self.begin(counter, Pending { scalar: false, first: number, count: width, unordered: false });
        Ok(())
    }

    /// Records a pending scalar load. `known` tells which of its words hold a value.
    pub(super) fn fill_scalar(&mut self, number: u8, words: &[u32], known: u32) -> Done {
        for (word, value) in words.iter().enumerate() {
            let at = usize::from(number) + word;
            if self.s_filling[at] != 0 {
                return stop(self.no_wait(true, at as u8, text::scalar(at as u8, 1)));
            }
            self.s[at] = *value;
            self.s_written[at] = if known >> word & 1 == 1 { u32::MAX } else { 0 };
            self.s_ready[at] = 0;
            self.s_filling[at] += 1;
        }
        self.begin(
            Counter::Lgkm,
            Pending { scalar: true, first: number, count: words.len() as u8, unordered: true },
        );
        Ok(())
    }

    fn queue(&self, counter: Counter) -> &VecDeque<Pending> {
        match counter {
            Counter::Vm => &self.vm,
            Counter::Lgkm => &self.lgkm,
        }
    }

    /// Counts a load or store.
    pub(super) fn begin(&mut self, counter: Counter, pending: Pending) {
        match counter {
            Counter::Vm => {
                self.vm.push_back(pending);
                // The counter has six bits: the next access waits until it fits.
                self.wait(Counter::Vm, 63);
            }
            Counter::Lgkm => self.lgkm.push_back(pending),
        }
    }

    /// Waits until at most `most` are pending.
    pub(super) fn wait(&mut self, counter: Counter, most: usize) {
        // Scalar loads return in any order: until all have, it is unknown which did.
        if counter == Counter::Lgkm && most > 0 && self.lgkm.iter().any(|p| p.unordered) {
            return;
        }
        while self.queue(counter).len() > most {
            let done = match counter {
                Counter::Vm => self.vm.pop_front(),
                Counter::Lgkm => self.lgkm.pop_front(),
            };
            let Some(done) = done else { return };
            for at in usize::from(done.first)..usize::from(done.first) + usize::from(done.count) {
                if done.scalar {
                    self.s_filling[at] -= 1;
                    self.s_ready[at] = self.s_written[at];
                } else {
                    self.filling[at] -= 1;
                    if self.filling[at] == 0 {
                        self.ready[at] = self.written[at];
                    }
                }
            }
        }
    }
}

fn fills(pending: &Pending, scalar: bool, at: usize) -> bool {
    pending.scalar == scalar
        && (usize::from(pending.first)..usize::from(pending.first) + usize::from(pending.count)).contains(&at)
}

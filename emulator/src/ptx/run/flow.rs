//! The execution of a warp.
//!
//! Lanes at the same step run it together. After a divergence, those at the smallest step run first, so that
//! lanes reconverge as early as possible, whatever order a device's assembler chooses. At a shuffle, lanes
//! wait for the lanes that it names; at a barrier of the block for all, and then the warp pauses.

use super::super::entry::Entry;
use super::super::op::{Op, Step};
use super::registers::Registers;
use super::{Done, LANES, Stop, compute, exchange, lanes, memory};
use crate::counts::Counts;
use crate::fault::FaultKind;
use crate::memory::View;

/// Lanes at one step.
#[derive(Clone, Copy, Debug)]
struct Group {
    pc: u32,
    mask: u32,
}

/// What a warp runs with.
pub(crate) struct World<'w> {
    pub(crate) params: &'w [u8],
    pub(crate) view: View<'w>,
    pub(crate) counts: &'w mut Counts,
    /// Warps of the block.
    pub(crate) warps: u32,
    /// Maximum number of steps of a warp.
    pub(crate) limit: u64,
}

/// A warp: its lanes' registers and places.
pub(crate) struct Warp<'e> {
    entry: &'e Entry,
    pub(crate) registers: Registers<'e>,
    /// Steps so far.
    steps: u64,
    /// The lanes that began.
    all: u32,
    /// Lanes that are running.
    now: Group,
    /// Other lanes, the smallest step last.
    others: Vec<Group>,
    /// Lanes that wait at a shuffle or barrier, with the mask that they wait for.
    waiting: Vec<(Group, u32)>,
    /// The barrier of the block at which all lanes are.
    barrier: Option<u32>,
}

impl<'e> Warp<'e> {
    pub(crate) fn new(entry: &'e Entry) -> Self {
        Warp {
            entry,
            registers: Registers::new(entry),
            steps: 0,
            all: 0,
            now: Group { pc: 0, mask: 0 },
            others: Vec::new(),
            waiting: Vec::new(),
            barrier: None,
        }
    }

    /// Begins another warp, of these lanes. None is left of the one before: it has ended.
    pub(crate) fn begin(&mut self, mask: u32) {
        self.registers.clear();
        (self.steps, self.all, self.now) = (0, mask, Group { pc: 0, mask });
    }

    /// Runs until all lanes have ended or are at a barrier of the block, whose step is returned, or one lane
    /// faults; a fault is returned with its step.
    pub(crate) fn run(&mut self, world: &mut World<'_>) -> Result<Option<u32>, (u32, Box<Stop>)> {
        if let Some(pc) = self.barrier.take() {
            self.now = Group { pc: pc + 1, mask: self.all };
        }
        let mut left = world.limit - self.steps;
        while self.now.mask != 0 {
            if self.others.last().is_some_and(|least| least.pc <= self.now.pc) {
                self.least();
            }
            let Group { pc, mask } = self.now;
            let step = &self.entry.steps[pc as usize];
            if left == 0 {
                return Err((pc, Stop::of(FaultKind::Endless(world.limit), None)));
            }
            left -= 1;
            world.counts.lane_instructions += u64::from(mask.count_ones());
            self.now.pc += 1;
            self.step(world, step, pc, mask).map_err(|stop| (pc, stop))?;
            if self.now.mask == 0 {
                self.resume()?;
            }
        }
        let steps = world.limit - left;
        world.counts.instructions += steps - self.steps;
        world.counts.longest = world.counts.longest.max(steps);
        self.steps = steps;
        Ok(self.barrier)
    }

    /// Chooses who runs next: other lanes; nobody, if none are left; or a fault, if lanes wait in vain.
    fn resume(&mut self) -> Result<(), (u32, Box<Stop>)> {
        if let Some(next) = self.others.pop() {
            self.now = next;
            return Ok(());
        }
        let Some((group, members)) = self.waiting.first() else { return Ok(()) };
        let missing = members & !group.mask;
        let here = group.mask;
        let why = match self.entry.steps[group.pc as usize].op {
            Op::Barrier => format!("it is for the whole warp, and only lanes {here:#x} ever come"),
            _ => format!("its mask is {members:#x}, and only lanes {here:#x} ever come"),
        };
        let kind = FaultKind::Missing { missing: u64::from(missing), why };
        Err((group.pc, Stop::of(kind, None)))
    }

    /// Runs the lanes at the smallest step; lanes at the same step join.
    fn least(&mut self) {
        while let Some(group) = self.others.pop() {
            if group.pc > self.now.pc {
                self.others.push(group);
                return;
            }
            if group.pc == self.now.pc {
                self.now.mask |= group.mask;
            } else {
                let parked = self.now;
                self.now = group;
                self.park(parked);
            }
        }
    }

    /// Stores lanes to run later.
    fn park(&mut self, group: Group) {
        if group.mask == 0 {
            return;
        }
        let at = self.others.partition_point(|other| other.pc > group.pc);
        match self.others.get_mut(at) {
            Some(other) if other.pc == group.pc => other.mask |= group.mask,
            _ => self.others.insert(at, group),
        }
    }

    #[inline]
    fn step(&mut self, world: &mut World<'_>, step: &Step, pc: u32, active: u32) -> Done {
        let mask = self.registers.guarded(step.guard, active)?;
        match step.op {
            Op::Branch(uniform) => {
                let to = step.extra as u32;
                if mask == active {
                    self.now.pc = to;
                } else if mask != 0 {
                    if uniform {
                        return Err(disagree(active, mask));
                    }
                    self.park(Group { pc: to, mask });
                    self.now.mask = active & !mask;
                }
                Ok(())
            }
            _ if mask == 0 => Ok(()),
            Op::Load(space, access) => {
                let view = &mut world.view.of(space);
                memory::load(&mut self.registers, self.entry, step, access, view, world.counts, mask)
            }
            Op::Store(space, access) => {
                let view = &mut world.view.of(space);
                memory::store(&self.registers, self.entry, step, access, view, world.counts, mask)?;
                if view.traced() {
                    self.trace(view, step, pc, access.bytes * access.count, mask)?;
                }
                Ok(())
            }
            Op::LoadParam(access) => {
                memory::load_param(&mut self.registers, step, access, world.params, mask)
            }
            Op::Shuffle(mode) => {
                let members = self.entry.lists[step.extra as usize];
                self.exchange(members, pc, active, mask, |registers, entry, mask| {
                    exchange::shuffle(registers, entry, step, mode, mask)
                })
            }
            Op::Vote(mode) => self.exchange(step.b, pc, active, mask, |registers, _, mask| {
                exchange::vote(registers, step, mode, mask)
            }),
            Op::Reduce(op, ty) => self.exchange(step.b, pc, active, mask, |registers, _, mask| {
                exchange::reduce(registers, step, op, ty, mask)
            }),
            // Memory accesses happen in step order, so there is nothing else to do.
            Op::Meet => self.exchange(step.b, pc, active, mask, |_, _, _| Ok(())),
            Op::Barrier => self.barrier(world, step, pc, active, mask),
            Op::BranchTable(uniform) => self.branch_table(step, uniform, active, mask),
            Op::Exit => {
                self.now.mask = active & !mask;
                Ok(())
            }
            Op::Trap => {
                let lane = lanes(mask).next().map(|lane| lane as u32);
                Err(Stop::of(FaultKind::End("a trap".into()), lane))
            }
            Op::End => Err(Stop::of(FaultKind::Jump("the end of the text".into()), None)),
            Op::Unimplemented => {
                let message = self.entry.messages.get(step.extra as usize);
                Err(Stop::of(FaultKind::Unimplemented(message.cloned().unwrap_or_default()), None))
            }
            _ => compute::compute(&mut self.registers, step, mask),
        }
    }

    fn branch_table(&mut self, step: &Step, uniform: bool, active: u32, mask: u32) -> Done {
        let table = &self.entry.tables[step.extra as usize];
        let choices = *self.registers.get(step.a, mask)?;
        if let Some(lane) = lanes(mask).find(|lane| choices[*lane] >= table.len() as u64) {
            let what = format!("entry {} of a table of {}", choices[lane], table.len());
            return Err(Stop::of(FaultKind::Jump(what), Some(lane as u32)));
        }
        let fall = Group { pc: self.now.pc, mask: active & !mask };
        let mut left = mask;
        let mut groups = Vec::new();
        while left != 0 {
            let to = table[choices[left.trailing_zeros() as usize] as usize];
            let same = lanes(left).filter(|lane| table[choices[*lane] as usize] == to);
            let mask = same.fold(0, |mask, lane| mask | 1 << lane);
            groups.push(Group { pc: to, mask });
            left &= !mask;
        }
        if uniform && groups.len() + usize::from(fall.mask != 0) > 1 {
            return Err(disagree(active, groups[0].mask));
        }
        self.now.mask = 0;
        groups.into_iter().chain([fall]).for_each(|group| self.park(group));
        if let Some(first) = self.others.pop() {
            self.now = first;
        }
        Ok(())
    }

    /// Groups lanes at an exchange by the masks that they name: complete groups run it, the others wait.
    fn exchange(
        &mut self,
        slot: u32,
        pc: u32,
        active: u32,
        mask: u32,
        run: impl Fn(&mut Registers<'e>, &Entry, u32) -> Done,
    ) -> Done {
        let (mut left, mut ran) = (mask, 0);
        while left != 0 {
            let (members, here) = exchange::members(&self.registers, slot, left)?;
            left &= !here;
            if let Some(all) = self.gather(Group { pc, mask: here }, members) {
                run(&mut self.registers, self.entry, all)?;
                ran |= all;
            }
        }
        // Lanes excluded by the guard also continue.
        self.now.mask = (active & !mask) | ran;
        Ok(())
    }

    /// Adds lanes to those that wait there for the same members: all members once they are complete.
    fn gather(&mut self, mut group: Group, members: u32) -> Option<u32> {
        let same = |(other, named): &(Group, u32)| other.pc == group.pc && *named == members;
        if let Some(at) = self.waiting.iter().position(same) {
            group.mask |= self.waiting.swap_remove(at).0.mask;
        }
        if members & !group.mask == 0 {
            return Some(group.mask);
        }
        self.waiting.push((group, members));
        None
    }

    /// A barrier of the block: the warp pauses once all of its lanes are there.
    fn barrier(&mut self, world: &World<'_>, step: &Step, pc: u32, active: u32, mask: u32) -> Done {
        let threads = i64::from(world.warps) * LANES as i64;
        if step.extra != 0 && step.extra != threads {
            let what = format!("a barrier of {} of the block's {threads} threads", step.extra);
            return Err(Stop::of(FaultKind::Unimplemented(what), None));
        }
        self.now.mask = active & !mask;
        self.barrier = self.gather(Group { pc, mask }, self.all).map(|_| pc);
        Ok(())
    }

    /// Records the lanes that store to global memory, so that a wrong bit can be traced.
    #[cold]
    fn trace(&self, view: &mut View<'_>, step: &Step, pc: u32, size: u8, mask: u32) -> Done {
        let addresses = *self.registers.get(step.a, mask)?;
        for lane in lanes(mask) {
            let address = addresses[lane].wrapping_add_signed(step.extra);
            view.note(address, u32::from(size), lane as u32, pc);
        }
        Ok(())
    }
}

#[cold]
fn disagree(active: u32, taken: u32) -> Box<Stop> {
    let what = format!("two places: .uni, and of lanes {active:#x} only {taken:#x} take it");
    Stop::of(FaultKind::Jump(what), None)
}

//! One wave, from its first instruction to `s_endpgm`.

use super::access::World;
use super::registers::Registers;
use super::scalar;
use super::stop::{Done, Stop, stop};
use super::waits::Counter;
use crate::fault::FaultKind;
use crate::gfx942::code::inst::{Coding, Inst, VCC};
use crate::gfx942::code::op::{Form, Op};
use crate::gfx942::object::Kernel;
use crate::launch::MAX_INSTRUCTIONS;

/// Runs to the end, or to a fault, which is returned with the instruction's index.
pub(super) fn run(
    kernel: &Kernel,
    r: &mut Registers,
    world: &mut World<'_>,
) -> Result<(), (usize, Box<Stop>)> {
    let mut at = 0;
    let (mut instructions, mut lanes) = (0u64, 0u64);
    let ended = loop {
        let Some(inst) = kernel.code.get(at) else {
            let kind = FaultKind::Jump("behind the last instruction of the kernel".into());
            break Err((at.saturating_sub(1), Box::new(Stop { kind, lane: None })));
        };
        instructions += 1;
        lanes += u64::from(r.exec.count_ones());
        if instructions > MAX_INSTRUCTIONS {
            break Err((at, Box::new(Stop { kind: FaultKind::Endless(MAX_INSTRUCTIONS), lane: None })));
        }
        match step(kernel, r, world, inst, at) {
            Ok(Next::Behind) => at += 1,
            Ok(Next::To(to)) => at = to,
            Ok(Next::End) => break Ok(()),
            Err(why) => break Err((at, why)),
        }
    };
    world.counts.instructions += instructions;
    world.counts.lane_instructions += lanes;
    world.counts.longest = world.counts.longest.max(instructions);
    ended
}

enum Next {
    Behind,
    To(usize),
    End,
}

#[inline(always)]
fn step(kernel: &Kernel, r: &mut Registers, world: &mut World<'_>, i: &Inst, at: usize) -> Done<Next> {
    if !kernel.refused.is_empty()
        && let Some(why) = kernel.refused.get(&at)
    {
        return stop(FaultKind::Unimplemented(why.clone()));
    }
    let soon = match i.form {
        Form::Vop1 | Form::Vop2 | Form::Vop3 | Form::Vopc => r.hazards.vector(i),
        Form::Global => r.hazards.access(i),
        _ => {
            r.hazards.pass(if i.op == Op::SNop { (i.imm & 15) as u64 + 1 } else { 1 });
            None
        }
    };
    if let Some(why) = soon {
        return stop(FaultKind::TooSoon(why));
    }
    match i.form {
        Form::Vop1 | Form::Vop2 | Form::Vop3 => {
            if matches!(i.op, Op::VReadfirstlane | Op::VReadlane | Op::VWritelane) {
                r.between_lanes(i)?;
            } else if i.coding == Coding::Dpp {
                r.across(i)?;
            } else {
                r.integer(i)?;
            }
        }
        Form::Vopc => r.compare(i)?,
        Form::Sop1 | Form::Sop2 | Form::Sopc | Form::Sopk => scalar::run(r, i)?,
        Form::Smem => world.scalar_load(r, i)?,
        Form::Ds => r.permute(i)?,
        Form::Global => world.global(r, i)?,
        Form::Sopp => return flow(r, i),
    }
    Ok(Next::Behind)
}

fn flow(r: &mut Registers, i: &Inst) -> Done<Next> {
    let jump = match i.op {
        // A workgroup of one wave waits for nobody.
        Op::SNop | Op::SSleep | Op::SSetprio | Op::SBarrier => false,
        Op::SWaitcnt => {
            let (vm, _, lgkm) = i.counters();
            if vm < 63 {
                r.wait(Counter::Vm, vm as usize);
            }
            if lgkm < 15 {
                r.wait(Counter::Lgkm, lgkm as usize);
            }
            false
        }
        // Pending loads are dropped: LLVM leaves some whose values a path does not need.
        Op::SEndpgm => return Ok(Next::End),
        Op::SBranch => true,
        Op::SCbranchScc0 => !r.scc()?,
        Op::SCbranchScc1 => r.scc()?,
        Op::SCbranchVccz => !r.any(VCC)?,
        Op::SCbranchVccnz => r.any(VCC)?,
        Op::SCbranchExecz => r.exec == 0,
        Op::SCbranchExecnz => r.exec != 0,
        _ => return stop(FaultKind::Unimplemented(i.to_string())),
    };
    match (jump, i.target) {
        (false, _) => Ok(Next::Behind),
        (true, crate::gfx942::code::inst::NOWHERE) => {
            stop(FaultKind::Jump(format!("{} words ahead, where no instruction of the kernel begins", i.imm)))
        }
        (true, to) => Ok(Next::To(to as usize)),
    }
}

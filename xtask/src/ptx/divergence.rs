//! Checks that no shuffle runs where some lanes of the warp may be missing.
//!
//! A register *differs* (between the lanes of a warp) if it comes from the lane's number, from memory at an
//! address that differs, or from another register that differs; or if it is written where lanes have
//! diverged. Lanes diverge at a branch whose condition differs. Every block that this branch decides (by
//! post-dominators), and every block that a branch in such a block decides, may run without some of them. A
//! shuffle or barrier there is a fault.
//!
//! The analysis does not distinguish which value of a register reaches a point (one that differs anywhere
//! differs everywhere), so a fault may be a false positive, but nothing is missed. Blocks of threads are 32
//! wide: `%tid.y` is uniform in a warp, and `%tid.x` is the lane.
//!
//! At a barrier of a block, no warp may be missing either. That is the same question about the number of the
//! warp, of which a shuffle makes nothing uniform.

use super::flow::Flow;
use super::{Function, Instruction};
use crate::Fault;
use std::collections::BTreeSet;

/// All faults of a function.
pub fn check(function: &Function) -> Vec<Fault> {
    let flow = Flow::of(function);
    let parted = Parted::of(function, &flow, &LANE);
    let warps = Parted::of(function, &flow, &["%tid.y", "%warpid"]);
    let mut faults = Vec::new();
    for (block, range) in flow.blocks.iter().enumerate() {
        for instruction in
            function.code[range.clone()].iter().filter(|instruction| is_collective(instruction))
        {
            let mut fault = |what: &str| {
                let text = format!("`{} {}`: {what}", instruction.opcode, instruction.operands.join(", "));
                faults.push(Fault::new(&function.name, instruction.line, text));
            };
            if let Some(branch) = parted.blocks[block] {
                fault(&format!("lanes have parted at the branch of line {branch}"));
            }
            if let (Some(branch), "bar.sync") = (warps.blocks[block], &instruction.opcode[..]) {
                fault(&format!("warps have parted at the branch of line {branch}"));
            }
            if instruction.guard.as_ref().is_some_and(|guard| parted.differing.contains(guard)) {
                fault("its guard differs between lanes");
            }
            if (["shfl", "vote"].contains(&instruction.base()) || instruction.opcode == "bar.warp.sync")
                && instruction.operands.last().is_none_or(|members| members != "-1")
            {
                fault("not for all lanes of the warp");
            }
        }
    }
    faults
}

/// Instructions that all lanes must reach together.
fn is_collective(instruction: &Instruction) -> bool {
    let bases = ["shfl", "bar", "barrier", "vote", "match", "redux", "activemask", "elect"];
    bases.contains(&instruction.base()) || instruction.has("sync") || instruction.has("aligned")
}

struct Parted {
    /// For each block, the line of a branch at which lanes may have diverged.
    blocks: Vec<Option<usize>>,
    /// Registers that differ between lanes.
    differing: BTreeSet<String>,
}

/// What differs between the lanes of a warp from the start.
const LANE: [&str; 7] =
    ["%tid.x", "%laneid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt"];

impl Parted {
    /// What differs and parts because of the registers in `from`.
    fn of(function: &Function, flow: &Flow, from: &[&str]) -> Parted {
        let decided = flow.decided();
        let mut parted = Parted { blocks: vec![None; flow.blocks.len()], differing: BTreeSet::new() };
        let mut changed = true;
        while changed {
            changed = false;
            for (block, range) in flow.blocks.iter().enumerate() {
                for instruction in &function.code[range.clone()] {
                    if parted.blocks[block].is_some() || parted.differs(instruction, from) {
                        for register in instruction.writes() {
                            changed |= parted.differing.insert(register.to_owned());
                        }
                    }
                }
                let Some(last) = function.code[range.clone()].last() else { continue };
                let parts = flow.next[block].len() > 1
                    && last.reads().iter().any(|&read| parted.differing.contains(read));
                if parts || parted.blocks[block].is_some() {
                    for &other in &decided[block] {
                        if parted.blocks[other].is_none() {
                            let before = parted.blocks[block].unwrap_or(last.line);
                            parted.blocks[other] = Some(if parts { last.line } else { before });
                            changed = true;
                        }
                    }
                }
            }
        }
        parted
    }

    /// Whether the value it writes differs between threads that run it together.
    fn differs(&self, instruction: &Instruction, from: &[&str]) -> bool {
        let differs =
            |name: &str| self.differing.contains(name) || from.contains(&name) || name.starts_with("%clock");
        if matches!(instruction.base(), "atom") {
            return true;
        }
        if instruction.opcode.starts_with("shfl.sync.idx") && from == LANE {
            // One lane's value for all, if every lane names the same source lane of the whole warp.
            let operand = |at: usize| instruction.operands.get(at).map_or("", |operand| &operand[..]);
            return differs(operand(1)) && (differs(operand(2)) || operand(3) != "31");
        }
        if instruction.base() == "vote" && from == LANE {
            // All lanes of a warp get the same votes. Those of another warp are others.
            return false;
        }
        instruction.reads().into_iter().any(differs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{faults, faults_of};

    #[test]
    fn catches_a_barrier_that_a_warp_misses() {
        let under = |condition: &str| {
            let body = format!("{condition}\n	@!%p2 bra $L__2;\n	bar.sync 0;\n$L__2:");
            faults_of("hot_block", &body).iter().any(|fault| fault.what.contains("parted"))
        };
        let number = "	mov.u32 %r3, %tid.y;";
        assert!(under(&format!("{number}\n	setp.eq.b32 %p2, %r3, 0;")));
        assert!(under("	setp.eq.b32 %p2, %r1, 0;"), "lanes");
        assert!(!under("	setp.eq.b32 %p2, %r2, 0;"));
        // A shuffle leaves a warp its own word; what the block shares is the same for all.
        assert!(under(&format!(
            "{number}\n	shfl.sync.idx.b32 %r4, %r3, 0, 31, -1;\n	setp.eq.b32 %p2, %r4, 0;"
        )));
        let vote = "	vote.sync.ballot.b32 %r4, %p3, -1;\n	setp.eq.b32 %p2, %r4, -1;";
        assert!(under(&format!("{number}\n	setp.eq.b32 %p3, %r3, 0;\n{vote}")));
        assert!(!under("	ld.shared.b32 %r4, [%r2];\n	setp.eq.b32 %p2, %r4, 0;"));
        assert!(under(&format!("{number}\n	ld.shared.b32 %r4, [%r3];\n	setp.eq.b32 %p2, %r4, 0;")));
        // A loop whose trips depend on the warp: shuffles may be in it, barriers behind it.
        let trips = format!(
            "{number}\n$L__1:\n	add.s32 %r3, %r3, 1;\nHERE\n	setp.lt.u32 %p2, %r3, %r2;\n	@%p2 bra $L__1;"
        );
        let of = |here: &str| faults_of("hot_block", &trips.replace("HERE", here));
        assert_eq!(of("	shfl.sync.bfly.b32 %r9, %r2, 16, 31, -1;"), []);
        assert_eq!(of("	bar.sync 0;").len(), 1);
        assert_eq!(faults_of("hot_block", &format!("{}\n	bar.sync 0;", trips.replace("HERE", ""))), []);
    }

    /// Puts a shuffle at SHUFFLE and returns whether that is a fault.
    fn caught(body: &str) -> bool {
        let shuffle = "shfl.sync.bfly.b32 	%r9, %r2, 16, 31, -1;";
        let found = faults(&body.replace("SHUFFLE", shuffle));
        assert!(found.iter().all(|fault| fault.what.contains("shfl")), "{found:?}");
        !found.is_empty()
    }

    #[test]
    fn catches_a_shuffle_that_sank_into_a_branch_on_the_lane() {
        assert!(caught(
            "	@%p1 bra $L__1;\n	bra.uni $L__2;\n$L__1:\n	SHUFFLE\n	st.global.b32 [%rd2], %r9;\n$L__2:"
        ));
        // After the branch all lanes have reconverged.
        assert!(!caught(
            "	@%p1 bra $L__1;\n	bra.uni $L__2;\n$L__1:\n	st.global.b32 [%rd2], %r2;\n$L__2:\n	SHUFFLE"
        ));
        // Before the branch no lane has left.
        assert!(!caught("	SHUFFLE\n	@!%p1 bra $L__2;\n	st.global.b32 [%rd2], %r9;\n$L__2:"));
        // On the fall-through side.
        assert!(caught("	@!%p1 bra $L__2;\n	SHUFFLE\n$L__2:"));
        // A uniform branch keeps lanes together.
        assert!(!caught("	setp.eq.b32 %p2, %r2, 0;\n	@!%p2 bra $L__2;\n	SHUFFLE\n$L__2:"));
    }

    #[test]
    fn catches_a_guard_and_missing_members() {
        assert!(caught("	@%p1 SHUFFLE"));
        assert!(!faults("	shfl.sync.bfly.b32 %r9, %r2, 16, 31, 65535;").is_empty());
        assert!(!faults("	shfl.sync.bfly.b32 %r9, %r2, 16, 31, %r2;").is_empty());
        assert!(!faults("	vote.sync.ballot.b32 %r9, %p1, 65535;").is_empty());
    }

    #[test]
    fn follows_values_through_memory_arithmetic_and_shuffles() {
        let under = |condition: &str| caught(&format!("{condition}\n	@!%p2 bra $L__2;\n	SHUFFLE\n$L__2:"));
        // An element that each lane loads for itself.
        let load = "	cvt.u64.u32 %rd3, %r1;\n	add.s64 %rd4, %rd2, %rd3;\n	ld.global.b32 %r3, [%rd4];";
        assert!(under(&format!("{load}\n	setp.gt.f32 %p2, %r3, 0f00000000;")));
        // The row's own value, at an address shared by all lanes.
        assert!(!under("	ld.global.b32 %r3, [%rd2+4];\n	setp.eq.b32 %p2, %r3, 0;"));
        // Half of a pair.
        assert!(under(
            "	{ .reg .b32 tmp; mov.b64 {tmp, %r4}, %rd5; }\n	mov.b64 %rd5, {%r2, %r1};\n	setp.eq.b32 %p2, \
             %r4, 0;"
        ));
        // One lane's value broadcast to all is uniform; a different source lane for each is not.
        assert!(!under(&format!(
            "{load}\n	shfl.sync.idx.b32 %r4, %r3, 31, 31, -1;\n	setp.eq.b32 %p2, %r4, 0;"
        )));
        assert!(under(&format!(
            "{load}\n	shfl.sync.idx.b32 %r4, %r3, %r1, 31, -1;\n	setp.eq.b32 %p2, %r4, 0;"
        )));
        assert!(under(&format!(
            "{load}\n	shfl.sync.idx.b32 %r4, %r3, 7, 6175, -1;\n	setp.eq.b32 %p2, %r4, 0;"
        )));
        // So are votes.
        let vote = "	vote.sync.ballot.b32 %r4, %p3, -1;\n	setp.eq.b32 %p2, %r4, -1;";
        assert!(!under(&format!("{load}\n	setp.ne.b32 %p3, %r3, 0;\n{vote}")));
        // The warp's number within its block is uniform; the lane mask is not.
        assert!(!under("	mov.u32 %r3, %tid.y;\n	setp.eq.b32 %p2, %r3, 0;"));
        assert!(under("	mov.u32 %r3, %lanemask_lt;\n	setp.eq.b32 %p2, %r3, 0;"));
    }

    #[test]
    fn catches_loops_that_lanes_leave_one_by_one() {
        let start = "	mov.b32 %r3, 0;\n$L__1:\n	add.s32 %r3, %r3, 1;";
        let by_lane = "	setp.lt.u32 %p2, %r3, %r1;\n	@%p2 bra $L__1;";
        let by_row = "	setp.lt.u32 %p2, %r3, %r2;\n	@%p2 bra $L__1;";
        assert!(caught(&format!("{start}\n	SHUFFLE\n{by_lane}")));
        assert!(!caught(&format!("{start}\n	SHUFFLE\n{by_row}")));
        assert!(!caught(&format!("{start}\n{by_lane}\n	SHUFFLE")), "they meet again after the loop");
        // The iteration count differs between lanes, and so does a branch on it.
        let after = "	setp.eq.b32 %p3, %r3, 4;\n	@!%p3 bra $L__2;\n	SHUFFLE\n$L__2:";
        assert!(caught(&format!("{start}\n{by_lane}\n{after}")));
        assert!(!caught(&format!("{start}\n{by_row}\n{after}")));
    }

    #[test]
    fn catches_values_that_depend_on_the_way_taken() {
        let join = "	mov.b32 %r3, 1;\n	@%p1 bra $L__1;\n	mov.b32 %r3, 2;\n$L__1:\n	setp.eq.b32 %p2, %r3, 1;";
        assert!(caught(&format!("{join}\n	@!%p2 bra $L__2;\n	SHUFFLE\n$L__2:")));
    }

    #[test]
    fn catches_nested_branches_and_tables() {
        // A branch on the row inside a branch on the lane.
        let nested = "	setp.eq.b32 %p2, %r2, 0;\n	@%p1 bra $L__3;\n	@%p2 bra $L__3;\n	SHUFFLE\n$L__3:";
        assert!(caught(nested));
        let table = "$L_brx_0: .branchtargets\n		$L__1,\n		$L__2;\n	brx.idx 	INDEX, $L_brx_0;\n\
                     $L__1:\n	SHUFFLE\n$L__2:";
        assert!(caught(&table.replace("INDEX", "%r1")));
        assert!(!caught(&table.replace("INDEX", "%r2")));
        // A lane that returns early is missing everywhere afterwards.
        assert!(caught("	@%p1 ret;\n	SHUFFLE"));
    }
}

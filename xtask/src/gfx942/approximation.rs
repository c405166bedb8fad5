//! Checks that approximate reciprocals and reciprocal roots occur only at the start of LLVM's binary64
//! division or square root, and that their results leave only through its end.
//!
//! Each `v_rcp` and `v_rsq` is followed through registers and jumps. Values computed from it may be fused
//! multiply-adds, products, `v_div_fmas` and moves, in exactly the numbers of the sequence; `v_div_fixup`
//! (for a division) or `v_ldexp` (for a square root) ends it. Any other instruction that reads such a
//! register is a fault: a store, a comparison, a selection, a sum, a shuffle. Values left in registers after
//! the end are followed to the end of the block.

use super::{Function, Instruction};
use crate::Fault;
use std::collections::{BTreeMap, BTreeSet};

/// The instructions of a sequence that read its approximation or a value derived from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Fused multiply-adds.
    pub fused: usize,
    /// Products.
    pub products: usize,
    /// `v_div_fmas`.
    pub last: usize,
    /// `v_div_fixup`, `v_ldexp`.
    pub end: usize,
}

/// v_div_scale ×2, v_rcp, five multiply-adds and a product, v_div_fmas, v_div_fixup, in binary64; kernels
/// divide in no other way (`core/src/num/div.rs`).
pub const DIVISION: Sequence = Sequence { fused: 5, products: 1, last: 1, end: 1 };
/// v_rsq_f64, two products, seven multiply-adds, v_ldexp_f64.
pub const ROOT: Sequence = Sequence { fused: 7, products: 2, last: 0, end: 1 };

/// What registers hold at a point: those derived from approximations, with the approximations; and those that
/// `v_div_scale` wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    rough: BTreeMap<u32, BTreeSet<usize>>,
    scaled: BTreeSet<u32>,
    /// Approximations whose sequence has ended in this block.
    ended: BTreeSet<usize>,
}

impl State {
    /// Joins with the state of another path: rough if it is on any path, scaled only if on all.
    fn join(&mut self, other: &State) -> bool {
        let before = self.clone();
        for (register, origins) in &other.rough {
            self.rough.entry(*register).or_default().extend(origins);
        }
        self.scaled.retain(|register| other.scaled.contains(register));
        self.ended.retain(|origin| other.ended.contains(origin));
        *self != before
    }

    fn origins(&self, instruction: &Instruction) -> BTreeSet<usize> {
        instruction
            .reads()
            .iter()
            .filter_map(|register| self.rough.get(register))
            .flatten()
            .copied()
            .collect()
    }

    /// On entering a block, values that a finished sequence left in registers are dead. LLVM expands a
    /// division or root within a block, and its structured control flow has paths that are never taken, on
    /// which such a register would be read.
    fn enter_block(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        for origins in self.rough.values_mut() {
            origins.retain(|origin| !ended.contains(origin));
        }
        self.rough.retain(|_, origins| !origins.is_empty());
    }

    /// Applies the instruction at index `at`.
    fn step(&mut self, at: usize, instruction: &Instruction) {
        let base = instruction.base();
        let origins = match Role::of(base) {
            Role::Begins(_) => {
                self.ended.remove(&at);
                BTreeSet::from([at])
            }
            Role::Ends => {
                self.ended.extend(self.origins(instruction));
                BTreeSet::new()
            }
            _ => self.origins(instruction),
        };
        for register in instruction.writes() {
            self.scaled.remove(&register);
            if base.starts_with("v_div_scale") {
                self.scaled.insert(register);
            }
            self.rough.remove(&register);
            if !origins.is_empty() {
                self.rough.insert(register, origins.clone());
            }
        }
    }
}

enum Role {
    Begins(Sequence),
    Fused,
    Product,
    Move,
    Last,
    Ends,
    None,
}

impl Role {
    fn of(base: &str) -> Role {
        match base {
            "v_rcp_f64" => Role::Begins(DIVISION),
            "v_rsq_f64" => Role::Begins(ROOT),
            "v_fma_f64" | "v_fmac_f64" => Role::Fused,
            "v_mul_f64" => Role::Product,
            "v_mov_b32" | "v_mov_b64" => Role::Move,
            "v_div_fmas_f64" => Role::Last,
            "v_div_fixup_f64" | "v_ldexp_f64" => Role::Ends,
            _ => Role::None,
        }
    }
}

/// All faults of a kernel.
pub fn check(function: &Function) -> Vec<Fault> {
    let code = &function.code;
    // Block leaders: jump targets, and the instructions after jumps.
    let mut leaders = BTreeSet::new();
    for at in 0..code.len() {
        let next = function.next(at).unwrap_or_default();
        if next != [at + 1] {
            leaders.extend(next);
        }
    }
    let mut states: Vec<Option<State>> = vec![None; code.len()];
    let mut work = vec![0];
    states[0] = Some(State::default());
    while let Some(at) = work.pop() {
        let Some(mut state) = states[at].clone() else { continue };
        state.step(at, &code[at]);
        for next in function.next(at).unwrap_or_default() {
            let mut state = state.clone();
            if leaders.contains(&next) {
                state.enter_block();
            }
            let changed = match &mut states[next] {
                Some(old) => old.join(&state),
                none => {
                    *none = Some(state.clone());
                    true
                }
            };
            if changed {
                work.push(next);
            }
        }
    }

    let mut faults = Vec::new();
    let mut seen: BTreeMap<usize, Sequence> = BTreeMap::new();
    for (at, instruction) in code.iter().enumerate() {
        let mut fault = |what: String| {
            let text = format!("`{} {}`: {what}", instruction.mnemonic, instruction.operands.join(", "));
            faults.push(Fault::new(&function.name, instruction.line, text));
        };
        let Some(state) = &states[at] else {
            // Unreachable, so it is unknown what it would read.
            if matches!(Role::of(instruction.base()), Role::Begins(_)) {
                fault("an approximation in code that nothing leads to".into());
            }
            continue;
        };
        let origins = state.origins(instruction);
        for &origin in &origins {
            let sequence = seen.entry(origin).or_default();
            match Role::of(instruction.base()) {
                Role::Fused => sequence.fused += 1,
                Role::Product => sequence.products += 1,
                Role::Last => sequence.last += 1,
                Role::Ends => sequence.end += 1,
                Role::Move => {}
                Role::Begins(_) | Role::None => {
                    fault(format!("reads what came of the approximation of line {}", code[origin].line));
                }
            }
        }
        if let Role::Begins(sequence) = Role::of(instruction.base()) {
            seen.entry(at).or_default();
            let reads = instruction.reads();
            let scaled = !reads.is_empty() && reads.iter().all(|register| state.scaled.contains(register));
            if sequence == DIVISION && !scaled {
                fault("a reciprocal of something that v_div_scale did not make".into());
            }
        }
    }
    for (origin, sequence) in seen {
        let instruction = &code[origin];
        if let Role::Begins(wanted) = Role::of(instruction.base())
            && wanted != sequence
        {
            let what = format!("`{}`: leads to {sequence:?}, not to {wanted:?}", instruction.mnemonic);
            faults.push(Fault::new(&function.name, instruction.line, what));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::super::tests::{faults, functions};
    use super::super::{Fused, fused};

    const DIVISION: &str = "	v_div_scale_f64 v[8:9], s[26:27], v[6:7], v[6:7], s[6:7]
	v_rcp_f64_e32 v[10:11], v[8:9]
	v_div_scale_f64 v[12:13], vcc, s[6:7], v[6:7], s[6:7]
	v_fma_f64 v[14:15], -v[8:9], v[10:11], 1.0
	v_fmac_f64_e32 v[10:11], v[10:11], v[14:15]
	v_fma_f64 v[14:15], -v[8:9], v[10:11], 1.0
	v_fmac_f64_e32 v[10:11], v[10:11], v[14:15]
	v_mul_f64 v[14:15], v[12:13], v[10:11]
	v_fma_f64 v[8:9], -v[8:9], v[14:15], v[12:13]
	v_div_fmas_f64 v[8:9], v[8:9], v[10:11], v[14:15]
	v_div_fixup_f64 v[6:7], v[8:9], v[6:7], s[6:7]
	global_store_dwordx2 v1, v[6:7], s[2:3]";

    const ROOT: &str = "	v_ldexp_f64 v[6:7], v[6:7], s6
	v_rsq_f64_e32 v[8:9], v[6:7]
	v_mul_f64 v[10:11], v[6:7], v[8:9]
	v_mul_f64 v[8:9], v[8:9], 0.5
	v_fma_f64 v[12:13], -v[8:9], v[10:11], 0.5
	v_fmac_f64_e32 v[10:11], v[10:11], v[12:13]
	v_fma_f64 v[14:15], -v[10:11], v[10:11], v[6:7]
	v_fmac_f64_e32 v[8:9], v[8:9], v[12:13]
	v_fmac_f64_e32 v[10:11], v[14:15], v[8:9]
	v_fma_f64 v[12:13], -v[10:11], v[10:11], v[6:7]
	v_fmac_f64_e32 v[10:11], v[12:13], v[8:9]
	v_ldexp_f64 v[8:9], v[10:11], s6
	v_cndmask_b32_e32 v7, v9, v7, vcc";

    #[test]
    fn knows_division_and_square_root() {
        for sequence in [DIVISION, ROOT] {
            assert_eq!(faults(sequence), []);
            let more = format!("{sequence}\n\tv_fma_f64 v[20:21], v[22:23], v[22:23], v[22:23]");
            assert_eq!(fused(&functions(&more))["hot"], Fused { single: 0, double: 1 });
        }
        let single = DIVISION.replace("f64", "f32").replace("6:7", "6").replace("dwordx2", "dword");
        assert!(!faults(&single).is_empty(), "a binary32 division");
        assert_eq!(faults(&format!("{DIVISION}\n{ROOT}\n{DIVISION}")), []);
        // A jump in the middle of a sequence.
        let jump =
            "	v_fma_f64 v[14:15], -v[8:9], v[10:11], 1.0\n	v_fmac_f64_e32 v[10:11], v[10:11], v[14:15]";
        assert_eq!(faults(&DIVISION.replacen(jump, &format!("	s_cbranch_scc1 L0\n\n<L0>:\n{jump}"), 1)), []);
    }

    #[test]
    fn catches_bare_reciprocals() {
        for bare in [
            "v_rcp_f32_e32 v1, v2",
            "v_rcp_f64_e32 v[2:3], v[4:5]",
            "v_rsq_f64_e32 v[2:3], v[4:5]",
            "v_rcp_f32_e32 v1, s4",
        ] {
            assert!(!faults(&format!("\t{bare}")).is_empty(), "{bare}");
            assert!(
                !faults(&format!("\t{bare}\n\tv_mul_f32_e32 v3, v1, v4")).is_empty(),
                "{bare} and a product"
            );
        }
    }

    #[test]
    fn catches_a_sequence_without_any_of_its_parts() {
        for sequence in [DIVISION, ROOT] {
            let lines: Vec<&str> = sequence.lines().collect();
            for (i, line) in lines.iter().enumerate() {
                // The second scaling, and what precedes or follows, is not followed.
                let part = !line.contains("v[12:13], vcc")
                    && !line.contains("store")
                    && !line.contains("cndmask")
                    && i > 0;
                if part && !line.contains("v_rsq") && !line.contains("v_rcp") || line.contains("s[26:27]") {
                    let rest: Vec<&str> = lines.iter().filter(|other| other != &line).copied().collect();
                    assert!(!faults(&rest.join("\n")).is_empty(), "without {line}");
                }
            }
        }
    }

    #[test]
    fn catches_what_gets_out() {
        for leak in [
            "	global_store_dwordx2 v1, v[10:11], s[2:3]",
            "	v_cmp_lt_f64_e32 vcc, v[10:11], v[4:5]",
            "	v_add_f64 v[20:21], v[10:11], v[4:5]",
            "	v_cndmask_b32_e32 v7, v10, v7, vcc",
            "	ds_bpermute_b32 v20, v21, v11",
            "	v_mov_b32_e32 v20, v11\n	v_cmp_lt_f32_e32 vcc, 0, v20",
            "	v_mul_f64 v[20:21], v[10:11], v[4:5]",
        ] {
            let after = "	v_mul_f64 v[14:15], v[12:13], v[10:11]";
            assert!(!faults(&DIVISION.replace(after, &format!("{after}\n{leak}"))).is_empty(), "{leak}");
        }
    }
}

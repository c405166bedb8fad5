//! The instructions that are allowed. It is a list of what is allowed, not of what is forbidden, so an
//! instruction that nobody considered is a fault.
//!
//! Arithmetic must name its rounding: `ptxas` may contract an `add.f32` without `.rn`. Loads and stores must
//! name their memory: a generic one is slower, and one to local memory is a spill. Only an entry point in
//! which a block shares a row (`…_block`) has shared memory and barriers. A jump to a place that never ends
//! is what a panic would look like.

use super::flow::Flow;
use super::{Function, Instruction};
use crate::Fault;

/// All faults of a function.
pub fn check(function: &Function) -> Vec<Fault> {
    let mut faults = Vec::new();
    for instruction in &function.code {
        if let Some(what) = wrong(instruction, function.is_block()) {
            let text = format!("{} {}", instruction.opcode, instruction.operands.join(", "));
            faults.push(Fault::new(&function.name, instruction.line, format!("`{text}`: {what}")));
        }
    }
    let flow = Flow::of(function);
    for block in flow.endless() {
        let line = function.code[flow.blocks[block].start].line;
        faults.push(Fault::new(&function.name, line, "a loop without a way out"));
    }
    faults
}

fn wrong(instruction: &Instruction, block: bool) -> Option<&'static str> {
    let parts: Vec<&str> = instruction.opcode.split('.').collect();
    let [base, suffixes @ ..] = &parts[..] else { return Some("no instruction") };
    let is_float =
        |part: &&str| matches!(*part, "f16" | "f16x2" | "bf16" | "bf16x2" | "tf32" | "f32" | "f64" | "f32x2");
    let floats: Vec<&str> = suffixes.iter().filter(|part| is_float(part)).copied().collect();
    for modifier in ["ftz", "approx", "full", "sat", "relu", "satfinite"] {
        if suffixes.contains(&modifier) {
            return Some("a modifier that changes results");
        }
    }
    match *base {
        "ld" | "st" => {
            let space =
                suffixes.iter().find(|part| ["global", "param", "local", "shared", "const"].contains(part));
            match space.copied() {
                Some("global" | "param") => None,
                Some("shared") if block => None,
                None => Some("a generic access"),
                Some(_) => Some("memory that kernels do not use"),
            }
        }
        "cvta" => {
            (instruction.opcode != "cvta.to.global.u64").then_some("a pointer that is not to global memory")
        }
        "mov" | "selp" | "setp" => None,
        "add" | "sub" | "mul" | "fma" | "div" | "rcp" | "sqrt" if !floats.is_empty() => {
            match (suffixes, &floats[..]) {
                (["rn", _], ["f32" | "f64"]) => None,
                _ => Some("arithmetic that does not round to nearest, once, in binary32 or binary64"),
            }
        }
        // Exact, whatever the operands.
        "neg" | "abs" | "min" | "max" | "copysign" | "testp" if !floats.is_empty() => match floats[..] {
            ["f32" | "f64"] => None,
            _ => Some("another type than binary32 or binary64"),
        },
        "cvt" if !floats.is_empty() => match (suffixes, &floats[..]) {
            (["f64", "f32"], _) => None,
            (["rn", "f32", "f64"] | ["rn", "f32" | "f64", "u32" | "s32" | "u64" | "s64"], _) => None,
            (["rzi", "u32" | "s32" | "u64" | "s64", "f32" | "f64"], _) => None,
            _ => Some("a conversion that is neither exact, nor to nearest, nor an integer's truncation"),
        },
        _ if !floats.is_empty() => Some("not on the list of exact or correctly rounded operations"),
        "cvt" | "add" | "sub" | "mul" | "mad" | "min" | "max" | "neg" | "abs" | "and" | "or" | "xor"
        | "not" | "shl" | "shr" | "shf" | "lop3" | "prmt" | "bfe" | "bfi" | "clz" | "popc" | "brev"
        | "div" | "rem" | "addc" | "subc" | "set" | "slct" => None,
        "bra" | "brx" | "ret" => None,
        "bar" if block && suffixes == ["sync"] => {
            (instruction.operands != ["0"]).then_some("a barrier that is not of the whole block")
        }
        "bar" => (suffixes != ["warp", "sync"]).then_some("a barrier beyond the warp"),
        "shfl" | "vote" => {
            (suffixes.first() != Some(&"sync")).then_some("a shuffle that does not wait for its lanes")
        }
        "call" => Some("a call"),
        "trap" | "exit" | "brkpt" => Some("an end that no kernel wants: something panics"),
        _ => Some("not on the list"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{faults, faults_of};

    #[test]
    fn a_block_has_shared_memory_and_one_barrier() {
        let body = "	ld.shared.b32 %r3, [%r2];\n	st.shared.b64 [%r2], %rd3;\n	bar.sync 0;";
        assert_eq!(faults_of("hot_block", body), []);
        assert_eq!(faults_of("hot", body).len(), 3);
        for planted in ["bar.sync 1", "bar.sync 0, 64", "bar.red.popc.u32 %r3, 0, %p1", "bar.arrive 0, 64"] {
            assert_eq!(faults_of("hot_block", &format!("	{planted};")).len(), 1, "{planted}");
        }
    }

    #[test]
    fn catches_each_planted_instruction() {
        for planted in [
            "add.f32 %r3, %r2, %r2",
            "mul.f32 %r3, %r2, %r2",
            "sub.f64 %rd3, %rd2, %rd2",
            "add.ftz.f32 %r3, %r2, %r2",
            "add.rn.ftz.f32 %r3, %r2, %r2",
            "add.rz.f32 %r3, %r2, %r2",
            "add.rn.sat.f32 %r3, %r2, %r2",
            "fma.rm.f32 %r3, %r2, %r2, %r2",
            "fma.f32 %r3, %r2, %r2, %r2",
            "mad.f32 %r3, %r2, %r2, %r2",
            "mad.rn.f32 %r3, %r2, %r2, %r2",
            "fma.rn.f16 %r3, %r2, %r2, %r2",
            "fma.rn.f32x2 %rd3, %rd2, %rd2, %rd2",
            "div.full.f32 %r3, %r2, %r2",
            "div.approx.f32 %r3, %r2, %r2",
            "div.f32 %r3, %r2, %r2",
            "rcp.approx.ftz.f32 %r3, %r2",
            "rcp.approx.ftz.f64 %rd3, %rd2",
            "rsqrt.approx.f32 %r3, %r2",
            "sqrt.approx.f32 %r3, %r2",
            "ex2.approx.f32 %r3, %r2",
            "ex2.f32 %r3, %r2",
            "lg2.approx.f32 %r3, %r2",
            "sin.approx.f32 %r3, %r2",
            "tanh.approx.f32 %r3, %r2",
            "tanh.f32 %r3, %r2",
            "max.ftz.f32 %r3, %r2, %r2",
            "setp.gt.ftz.f32 %p3, %r2, %r2",
            "cvt.ftz.f64.f32 %rd3, %r2",
            "cvt.rz.f32.f64 %r3, %rd2",
            "cvt.f32.f64 %r3, %rd2",
            "cvt.rn.f16.f32 %r3, %r2",
            "cvt.rni.s32.f32 %r3, %r2",
            "ld.b32 %r3, [%rd1]",
            "st.b32 [%rd1], %r3",
            "ld.local.b32 %r3, [%rd1]",
            "st.local.b32 [%rd1], %r3",
            "ld.shared.b32 %r3, [%r1]",
            "cvta.local.u64 %rd3, %rd1",
            "atom.global.add.f32 %r3, [%rd1], %r2",
            "red.global.add.f32 [%rd1], %r2",
            "shfl.bfly.b32 %r3, %r2, 1, 31, -1",
            "call.uni (retval0), fmodf, (param0)",
            "trap",
            "exit",
            "membar.gl",
            "bar.sync 0",
            "barrier.sync.aligned 0",
        ] {
            let found = faults(&format!("\t{planted};"));
            assert_eq!(found.len(), 1, "{planted}: {found:?}");
            assert_eq!(found[0].line, 24, "{planted}");
        }
    }

    #[test]
    fn allows_what_is_exact_or_rounded_once() {
        for allowed in [
            "add.rn.f32 %r3, %r2, %r2",
            "mul.rn.f64 %rd3, %rd2, %rd2",
            "div.rn.f32 %r3, %r2, %r2",
            "rcp.rn.f32 %r3, %r2",
            "sqrt.rn.f64 %rd3, %rd2",
            "cvt.rn.f32.f64 %r3, %rd2",
            "cvt.rzi.u32.f32 %r3, %r2",
            "max.f32 %r3, %r2, %r2",
            "mad.lo.s32 %r3, %r2, %r2, %r2",
            "selp.f32 %r3, %r2, %r2, %p1",
            "setp.nan.f32 %p3, %r2, %r2",
            "bar.warp.sync -1",
        ] {
            assert_eq!(faults(&format!("\t{allowed};")), [], "{allowed}");
        }
    }

    #[test]
    fn catches_a_loop_that_never_ends() {
        let body = "	@%p1 bra $L__1;
	bra.uni $L__2;
$L__1:
	bra.uni $L__1;
$L__2:";
        let found = faults(body);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("way out"));
    }
}

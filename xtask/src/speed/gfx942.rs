//! The listing of gfx942 for the speed table.

use super::code::{Code, Op, Unit};
use crate::gfx942::{Function, Instruction};
use anyhow::{Result, bail};

/// The kernels of a listing.
pub fn codes(functions: &[Function]) -> Result<Vec<Code>> {
    let code = |function: &Function| -> Result<Code> {
        let next = (0..function.code.len()).map(|at| function.next(at)).collect::<Result<_>>()?;
        let ops = function.code.iter().map(op).collect::<Result<_>>()?;
        Ok(Code { name: function.name.clone(), ops, next })
    };
    functions.iter().map(code).collect()
}

fn op(instruction: &Instruction) -> Result<Op> {
    let base = instruction.base();
    let mut names = instruction.reads();
    names.extend(instruction.writes());
    let (load, store) = (base.strip_prefix("global_load_"), base.strip_prefix("global_store_"));
    Ok(Op {
        line: instruction.line,
        unit: unit(base),
        loads: load.map_or(Ok(0), bytes)?,
        stores: store.map_or(Ok(0), bytes)?,
        fills: if load.is_some() { instruction.writes() } else { Vec::new() },
        names,
        waits: base == "s_waitcnt",
        calls: base.starts_with("s_swappc"),
        counts: base == "v_bcnt_u32_b32",
    })
}

fn bytes(width: &str) -> Result<u32> {
    Ok(match width {
        "ubyte" | "byte" | "sbyte" => 1,
        "ushort" | "short" | "sshort" | "short_d16_hi" => 2,
        "dword" => 4,
        "dwordx2" => 8,
        "dwordx3" => 12,
        "dwordx4" => 16,
        _ => bail!("a load or store of a {width}"),
    })
}

/// Where an instruction executes. Scalar ones have units of their own; every other one takes a SIMD four
/// cycles, also in binary64 (MI300X's data sheet: 81.7 TFLOP/s, which is one fused multiply-add a lane and
/// cycle), and one of [`Unit::Quarter`] sixteen, which is assumed.
fn unit(base: &str) -> Unit {
    let starts = |with: &[&str]| with.iter().any(|with| base.starts_with(with));
    if starts(&["ds_bpermute"]) {
        Unit::Shuffle
    } else if starts(&["global_", "s_load"]) {
        Unit::Memory
    } else if starts(&["s_cbranch", "s_branch", "s_waitcnt", "s_nop", "s_endpgm", "s_barrier"]) {
        Unit::Control
    } else if starts(&["s_", "v_readfirstlane", "v_readlane"]) {
        Unit::Scalar
    } else if starts(&["v_rcp", "v_rsq", "v_sqrt", "v_mul_lo_u32", "v_mul_hi_u32", "v_mad_u64_u32"]) {
        Unit::Quarter
    } else if base.ends_with("_f64") {
        Unit::Double
    } else if ["v_add_f32", "v_sub_f32", "v_subrev_f32", "v_mul_f32"].contains(&base) || starts(&["v_fma"]) {
        Unit::Single
    } else {
        Unit::Alu
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gfx942::parse;

    #[test]
    fn counts_a_trip() -> Result<()> {
        // The mask is tested inside the branch that loads it; the second load is behind it.
        let text = "<hot>:
<L0>:
	s_cbranch_vccnz L1
	global_load_ubyte v21, v[22:23], off
	s_waitcnt vmcnt(0)
	v_cmp_ne_u16_e32 vcc, 0, v21
<L1>:
	global_load_dword v10, v[10:11], off
	s_waitcnt vmcnt(0)
	v_mul_f32_e32 v3, v10, v10
	v_cvt_f64_f32_e32 v[4:5], v3
	v_add_f64 v[6:7], v[6:7], v[4:5]
	ds_bpermute_b32 v8, v9, v3
	global_store_dwordx2 v[12:13], v[6:7], off
	s_cbranch_scc0 L0
	s_endpgm
";
        let codes = codes(&parse(text)?)?;
        let paths = codes[0].innermost_loops()?;
        assert_eq!(paths.len(), 1);
        let trip = codes[0].trip(&paths[0]);
        assert_eq!((trip.instructions, trip.loads, trip.stores), (12, 5, 8));
        assert_eq!((trip.round_trips, trip.waits), (2, 2));
        assert_eq!((trip.alu, trip.single, trip.double, trip.quarter, trip.shuffles), (2, 1, 1, 0, 1));
        assert!(bytes("dwordx5").is_err());
        Ok(())
    }
}

//! The instructions that are allowed. It is a list of allowed ones, so an instruction that nobody considered
//! is a fault.

use super::{Function, Instruction};
use crate::Fault;

/// All faults of a kernel.
pub fn check(function: &Function) -> Vec<Fault> {
    let mut faults = Vec::new();
    for instruction in &function.code {
        if let Some(what) = wrong(instruction) {
            let text = format!("{} {}", instruction.mnemonic, instruction.operands.join(", "));
            faults.push(Fault::new(&function.name, instruction.line, format!("`{text}`: {what}")));
        }
    }
    faults
}

/// Scalar instructions, up to their type.
const SCALAR: [&str; 48] = [
    "bitset0",
    "load_dword",
    "waitcnt",
    "nop",
    "branch",
    "cbranch",
    "endpgm",
    "mov",
    "movk",
    "cmov",
    "cmp",
    "cmpk",
    "cselect",
    "and",
    "or",
    "xor",
    "nor",
    "nand",
    "xnor",
    "andn2",
    "orn2",
    "not",
    "add",
    "addk",
    "sub",
    "addc",
    "subb",
    "mul",
    "mulk",
    "lshl",
    "lshl1_add",
    "lshl2_add",
    "lshl3_add",
    "lshr",
    "ashr",
    "bfe",
    "bfm",
    "brev",
    "ff1",
    "flbit",
    "bcnt1",
    "bitcmp1",
    "bitset1",
    "min",
    "max",
    "abs",
    "sext",
    "pack",
];

/// Vector instructions on binary32 and binary64 that are exact or round once, as the mode says; and the parts
/// of IEEE division and square root, which [`approximation`](super::approximation) checks.
const FLOAT: [&str; 16] = [
    "add",
    "sub",
    "subrev",
    "mul",
    "fma",
    "fmac",
    "fmaak",
    "fmamk",
    "min",
    "max",
    "ldexp",
    "div_scale",
    "div_fmas",
    "div_fixup",
    "rcp",
    "rsq",
];

/// Conversions: exact, to nearest, or truncating to an integer.
const CONVERSIONS: [&str; 10] = [
    "f64_f32", "f32_f64", "f64_u32", "f64_i32", "f32_u32", "f32_i32", "u32_f32", "i32_f32", "u32_f64",
    "i32_f64",
];

fn wrong(instruction: &Instruction) -> Option<&'static str> {
    let base = instruction.base();
    if base == "ds_bpermute_b32" {
        return None;
    }
    if let Some(rest) = base.strip_prefix("global_") {
        let plain = rest.starts_with("load_") || rest.starts_with("store_");
        return (!plain).then_some("neither a load nor a store");
    }
    if let Some(rest) = base.strip_prefix("s_") {
        let known = |name: &str| {
            rest.strip_prefix(name).is_some_and(|end| end.is_empty() || end.starts_with(['_', 'x']))
        };
        return (!SCALAR.iter().any(|name| known(name))).then_some("not on the list of scalar instructions");
    }
    let Some(rest) = base.strip_prefix("v_") else { return Some("memory that kernels do not use") };
    // Output modifiers: `clamp` turns NaN into 0, and the others flush denormals. On integers `clamp`
    // saturates.
    let saturates = matches!(rest.strip_suffix("_e64").unwrap_or(rest), "sub_u32" | "add_u32");
    let modifiers = if saturates { &["mul:", "div:"][..] } else { &["clamp", "mul:", "div:"] };
    if instruction.operands.iter().any(|operand| modifiers.iter().any(|word| operand.contains(word))) {
        return Some("an output modifier");
    }
    if let Some(types) = rest.strip_prefix("cvt_") {
        return (!CONVERSIONS.contains(&types)).then_some("a conversion that is not on the list");
    }
    let parts: Vec<&str> = rest.split('_').collect();
    let float = parts.iter().any(|part| part.contains("f16") || part.contains("f32") || part.contains("f64"));
    if rest.starts_with("cmp_") || rest.starts_with("cmpx_") {
        return None;
    }
    if !float {
        let integer =
            parts.last().is_some_and(|part| ["b", "u", "i"].iter().any(|kind| part.starts_with(kind)));
        let moves_spills = rest.starts_with("writelane") || rest.starts_with("accvgpr");
        return (!integer || moves_spills)
            .then_some("neither integers nor bits, or a register that was spilled");
    }
    let known = |name: &str| rest.strip_prefix(name).is_some_and(|end| end == "_f32" || end == "_f64");
    match FLOAT.iter().any(|name| known(name)) {
        true if rest.starts_with("rsq_f32") => Some("no part of a correctly rounded square root"),
        true if rest.starts_with("rcp_f32") => {
            Some("a binary32 division, whose last bit may rest on it: num::div")
        }
        true => None,
        false => Some("not on the list of exact or correctly rounded operations"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;

    #[test]
    fn catches_each_planted_instruction() {
        for planted in [
            "v_exp_f32_e32 v1, v2",
            "v_log_f32_e32 v1, v2",
            "v_sin_f32_e32 v1, v2",
            "v_cos_f32_e32 v1, v2",
            "v_sqrt_f32_e32 v1, v2",
            "v_sqrt_f64_e32 v[2:3], v[4:5]",
            "v_rsq_f32_e32 v1, v2",
            "v_rcp_f32_e32 v1, v2",
            "v_rcp_iflag_f32_e32 v1, v2",
            "v_mad_f32 v1, v2, v3, v4",
            "v_mac_f32_e32 v1, v2, v3",
            "v_madak_f32 v1, v2, v3, 0x3f800000",
            "v_mul_legacy_f32 v1, v2, v3",
            "v_fma_legacy_f32 v1, v2, v3, v4",
            "v_fma_mix_f32 v1, v2, v3, v4",
            "v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[8:9]",
            "v_dot2c_f32_f16_e32 v1, v2, v3",
            "v_fma_f16 v1, v2, v3, v4",
            "v_cvt_f16_f32_e32 v1, v2",
            "v_cvt_pkrtz_f16_f32 v1, v2, v3",
            "v_cvt_i32_f32_e32 v1, v2 clamp",
            "v_max_f32_e64 v1, v2, v3 clamp",
            "v_add_f32_e64 v1, v2, v3 mul:2",
            "v_mul_f32_e64 v1, v2, v3 div:2",
            "v_med3_f32 v1, v2, v3, v4",
            "v_mfma_f32_32x32x1_2b_f32 a[0:31], v0, v1, a[0:31]",
            "v_writelane_b32 v1, s5, 3",
            "v_accvgpr_write_b32 a1, v3",
            "flat_load_dword v1, v[2:3]",
            "scratch_load_dword v1, off, s32",
            "scratch_store_dword off, v1, s32",
            "buffer_load_dword v1, v2, s[4:7], 0 offen",
            "ds_read_b32 v1, v2",
            "global_atomic_add_f32 v1, v2, s[2:3]",
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0",
            "s_swappc_b64 s[30:31], s[4:5]",
            "s_setpc_b64 s[30:31]",
            "s_trap 2",
            "s_barrier",
            "s_sendmsg sendmsg(MSG_INTERRUPT)",
        ] {
            let found = faults(&format!("\t{planted}"));
            assert_eq!(found.len(), 1, "{planted}: {found:?}");
            assert_eq!(found[0].line, 3, "{planted}");
        }
    }

    #[test]
    fn allows_what_is_exact_or_rounded_once() {
        for allowed in [
            "v_add_f32_e64 v1, -v2, |v3|",
            "v_fmaak_f32 v1, v2, v3, 0x3ab671e4",
            "v_cvt_f64_f32_e32 v[2:3], v4",
            "v_cmp_class_f32_e64 s[4:5], v1, 3",
            "v_cndmask_b32_e64 v1, 0, 1, s[4:5]",
            "v_lshl_add_u64 v[6:7], s[4:5], 0, v[4:5]",
            "v_sub_u32_e64 v6, v2, 1 clamp",
            "v_readfirstlane_b32 s4, v1",
            "ds_bpermute_b32 v10, v22, v14",
            "s_and_saveexec_b64 s[4:5], vcc",
            // Clears the sign of a binary64 number shared by all lanes: |x|.
            "s_bitset0_b32 s3, 31",
            "s_load_dwordx16 s[8:23], s[0:1], 0x8",
            "global_load_dwordx2 v[10:11], v5, s[4:5] offset:256",
        ] {
            assert_eq!(faults(&format!("\t{allowed}")), [], "{allowed}");
        }
    }
}

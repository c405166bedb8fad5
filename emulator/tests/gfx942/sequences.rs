//! Division and square root as LLVM emits them, and as the kernels do (`core/src/num/div.rs`, `settle.rs`):
//! the text of each instruction with its words.

use crate::machine::text;

/// LLVM's x / y of binary64: `v[2:3]` over `v[4:5]` to `v[8:9]`.
pub(crate) const DIVIDE_64: &[(&str, &[u32])] = &[
    ("v_div_scale_f64 v[10:11], s[4:5], v[4:5], v[4:5], v[2:3]", &[0xd1e1040a, 0x040a0904]),
    ("v_rcp_f64_e32 v[12:13], v[10:11]", &[0x7e184b0a]),
    ("v_div_scale_f64 v[14:15], vcc, v[2:3], v[4:5], v[2:3]", &[0xd1e16a0e, 0x040a0902]),
    ("s_nop 0", &[0xbf800000]),
    ("v_fma_f64 v[16:17], -v[10:11], v[12:13], 1.0", &[0xd1cc0010, 0x23ca190a]),
    ("v_fmac_f64_e32 v[12:13], v[12:13], v[16:17]", &[0x0818210c]),
    ("v_fma_f64 v[16:17], -v[10:11], v[12:13], 1.0", &[0xd1cc0010, 0x23ca190a]),
    ("v_fmac_f64_e32 v[12:13], v[12:13], v[16:17]", &[0x0818210c]),
    ("v_mul_f64 v[16:17], v[14:15], v[12:13]", &[0xd2810010, 0x0002190e]),
    ("v_fma_f64 v[10:11], -v[10:11], v[16:17], v[14:15]", &[0xd1cc000a, 0x243a210a]),
    ("v_div_fmas_f64 v[10:11], v[10:11], v[12:13], v[16:17]", &[0xd1e3000a, 0x0442190a]),
    ("v_div_fixup_f64 v[8:9], v[10:11], v[4:5], v[2:3]", &[0xd1df0008, 0x040a090a]),
];

/// Of binary32: `v2` over `v4` to `v8`.
pub(crate) const DIVIDE_32: &[(&str, &[u32])] = &[
    ("v_div_scale_f32 v10, s[4:5], v4, v4, v2", &[0xd1e0040a, 0x040a0904]),
    ("v_rcp_f32_e32 v11, v10", &[0x7e16450a]),
    ("v_div_scale_f32 v12, vcc, v2, v4, v2", &[0xd1e06a0c, 0x040a0902]),
    ("s_nop 0", &[0xbf800000]),
    ("v_fma_f32 v13, -v10, v11, 1.0", &[0xd1cb000d, 0x23ca170a]),
    ("v_fmac_f32_e32 v11, v13, v11", &[0x7616170d]),
    ("v_mul_f32_e32 v13, v12, v11", &[0x0a1a170c]),
    ("v_fma_f32 v14, -v10, v13, v12", &[0xd1cb000e, 0x24321b0a]),
    ("v_fmac_f32_e32 v13, v14, v11", &[0x761a170e]),
    ("v_fma_f32 v10, -v10, v13, v12", &[0xd1cb000a, 0x24321b0a]),
    ("v_div_fmas_f32 v10, v10, v11, v13", &[0xd1e2000a, 0x0436170a]),
    ("v_div_fixup_f32 v8, v10, v4, v2", &[0xd1de0008, 0x040a090a]),
];

/// LLVM's square root of binary64: of `v[2:3]` to `v[8:9]`.
pub(crate) const ROOT_64: &[(&str, &[u32])] = &[
    ("s_brev_b32 s5, 8", &[0xbe850888]),
    ("s_mov_b32 s4, 0", &[0xbe840080]),
    ("v_cmp_gt_f64_e32 vcc, s[4:5], v[2:3]", &[0x7cc80404]),
    ("v_mov_b32_e32 v20, 0x100", &[0x7e2802ff, 0x00000100]),
    ("v_mov_b32_e32 v21, 0xffffff80", &[0x7e2a02ff, 0xffffff80]),
    ("s_nop 1", &[0xbf800001]),
    ("v_cndmask_b32_e32 v20, 0, v20, vcc", &[0x00282880]),
    ("v_cndmask_b32_e32 v21, 0, v21, vcc", &[0x002a2a80]),
    ("v_ldexp_f64 v[6:7], v[2:3], v20", &[0xd2840006, 0x00022902]),
    ("v_rsq_f64_e32 v[8:9], v[6:7]", &[0x7e104d06]),
    ("v_mov_b32_e32 v1, 0x260", &[0x7e0202ff, 0x00000260]),
    ("v_cmp_class_f64_e32 vcc, v[6:7], v1", &[0x7c240306]),
    ("v_mul_f64 v[10:11], v[6:7], v[8:9]", &[0xd281000a, 0x00021106]),
    ("v_mul_f64 v[8:9], v[8:9], 0.5", &[0xd2810008, 0x0001e108]),
    ("v_fma_f64 v[12:13], -v[8:9], v[10:11], 0.5", &[0xd1cc000c, 0x23c21508]),
    ("v_fmac_f64_e32 v[10:11], v[10:11], v[12:13]", &[0x0814190a]),
    ("v_fma_f64 v[14:15], -v[10:11], v[10:11], v[6:7]", &[0xd1cc000e, 0x241a150a]),
    ("v_fmac_f64_e32 v[8:9], v[8:9], v[12:13]", &[0x08101908]),
    ("v_fmac_f64_e32 v[10:11], v[14:15], v[8:9]", &[0x0814110e]),
    ("v_fma_f64 v[12:13], -v[10:11], v[10:11], v[6:7]", &[0xd1cc000c, 0x241a150a]),
    ("v_fmac_f64_e32 v[10:11], v[12:13], v[8:9]", &[0x0814110c]),
    ("v_ldexp_f64 v[8:9], v[10:11], v21", &[0xd2840008, 0x00022b0a]),
    ("v_cndmask_b32_e32 v9, v9, v7, vcc", &[0x00120f09]),
    ("v_cndmask_b32_e32 v8, v8, v6, vcc", &[0x00100d08]),
    ("v_lshlrev_b32_e32 v1, 3, v0", &[0x24020083]),
];

/// What `num::div64` adds to `DIVIDE_64`.
const SETTLE_QUOTIENT: &[(&str, &[u32])] = &[
    ("v_mov_b32_e32 v18, 0", &[0x7e24_0280]),
    ("v_and_b32_e32 v19, 0x7ff00000, v9", &[0x2626_12ff, 0x7ff0_0000]),
    ("v_max_u32_e32 v19, 0x3600000, v19", &[0x1e26_26ff, 0x0360_0000]),
    ("v_add_u32_e32 v19, 0xfcb00000, v19", &[0x6826_26ff, 0xfcb0_0000]),
    ("v_fma_f64 v[20:21], -|v[8:9]|, |v[4:5]|, |v[2:3]|", &[0xd1cc_0714, 0x240a_0908]),
    ("v_fma_f64 v[20:21], -v[18:19], |v[4:5]|, v[20:21]", &[0xd1cc_0214, 0x2452_0912]),
    ("v_cmp_lt_f64_e32 vcc, 0, v[20:21]", &[0x7cc2_2880]),
    ("v_mov_b32_e32 v21, 0", &[0x7e2a_0280]),
    ("s_nop 1", &[0xbf80_0001]),
    ("v_cndmask_b32_e64 v20, 0, 1, vcc", &[0xd100_0014, 0x01a9_0280]),
    ("v_lshl_add_u64 v[8:9], v[20:21], 0, v[8:9]", &[0xd208_0008, 0x0421_0114]),
];

/// What `num::sqrt64` adds to `ROOT_64`.
const SETTLE_ROOT: &[(&str, &[u32])] = &[
    ("v_mov_b32_e32 v18, 0", &[0x7e24_0280]),
    ("v_and_b32_e32 v19, 0x7ff00000, v9", &[0x2626_12ff, 0x7ff0_0000]),
    ("v_max_u32_e32 v19, 0x3600000, v19", &[0x1e26_26ff, 0x0360_0000]),
    ("v_add_u32_e32 v19, 0xfcb00000, v19", &[0x6826_26ff, 0xfcb0_0000]),
    ("v_fma_f64 v[20:21], -v[8:9], v[8:9], v[2:3]", &[0xd1cc_0014, 0x240a_1108]),
    ("v_add_f64 v[22:23], v[8:9], v[8:9]", &[0xd280_0016, 0x0002_1108]),
    ("v_fma_f64 v[20:21], -v[18:19], v[22:23], v[20:21]", &[0xd1cc_0014, 0x2452_2d12]),
    ("v_cmp_lt_f64_e32 vcc, 0, v[20:21]", &[0x7cc2_2880]),
    ("v_mov_b32_e32 v21, 0", &[0x7e2a_0280]),
    ("s_nop 1", &[0xbf80_0001]),
    ("v_cndmask_b32_e64 v20, 0, 1, vcc", &[0xd100_0014, 0x01a9_0280]),
    ("v_lshl_add_u64 v[8:9], v[20:21], 0, v[8:9]", &[0xd208_0008, 0x0421_0114]),
];

/// What `num::div` has before and after `DIVIDE_64`.
const WIDEN: &[(&str, &[u32])] = &[
    ("v_cvt_f64_f32_e32 v[2:3], v2", &[0x7e04_2102]),
    ("v_cvt_f64_f32_e32 v[4:5], v4", &[0x7e08_2104]),
    ("v_add_f64 v[2:3], v[2:3], v[2:3]", &[0xd280_0002, 0x0002_0502]),
    ("v_add_f64 v[4:5], v[4:5], v[4:5]", &[0xd280_0004, 0x0002_0904]),
];
const NARROW: &[(&str, &[u32])] =
    &[("v_cvt_f32_f64_e32 v8, v[8:9]", &[0x7e10_1f08]), ("v_mov_b32_e32 v9, 0", &[0x7e12_0280])];

/// `num::div64`.
pub(crate) fn kernels_64() -> Vec<u32> {
    [words(DIVIDE_64), words(SETTLE_QUOTIENT)].concat()
}

/// `num::div`.
pub(crate) fn kernels_32() -> Vec<u32> {
    [words(WIDEN), words(DIVIDE_64), words(NARROW)].concat()
}

/// `num::sqrt64`.
pub(crate) fn kernels_root() -> Vec<u32> {
    [words(ROOT_64), words(SETTLE_ROOT)].concat()
}

/// The words of instructions, which the interpreter reads as their text.
pub(crate) fn words(lines: &[(&str, &[u32])]) -> Vec<u32> {
    let words: Vec<u32> = lines.iter().flat_map(|(_, words)| words.iter().copied()).collect();
    assert_eq!(text(&words), lines.iter().map(|(text, _)| *text).collect::<Vec<_>>());
    words
}

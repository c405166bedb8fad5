//! Scalar instructions one by one: result and SCC (1 before), against Rust expressions.

use crate::machine::{run, text};
use crate::random::Random;
use lockstep_emulator::gfx942::Approximation;

// x in s[16:17], y in s[18:19], 0 in s[20:21], SCC 1.
const FIRST: &[u32] = &[
    0x7e200502, // v_readfirstlane_b32 s16, v2
    0x7e220503, // v_readfirstlane_b32 s17, v3
    0x7e240504, // v_readfirstlane_b32 s18, v4
    0x7e260505, // v_readfirstlane_b32 s19, v5
    0xbe940180, // s_mov_b64 s[20:21], 0
    0xbf061010, // s_cmp_eq_u32 s16, s16
];
const SHOW: &[u32] = &[
    0x7e100214, // v_mov_b32_e32 v8, s20
    0x7e120215, // v_mov_b32_e32 v9, s21
];
const SHOW_SCC: &[u32] = &[
    0x85148081, // s_cselect_b32 s20, 1, 0
    0x7e100214, // v_mov_b32_e32 v8, s20
    0x7e120280, // v_mov_b32_e32 v9, 0
];

const M: u64 = 0xffff_ffff;

fn lo(x: u64) -> u32 {
    x as u32
}

fn some(value: u32, scc: bool) -> (u64, bool) {
    (value.into(), scc)
}

/// Text, words, and result with SCC of x and y.
type Row = (&'static str, &'static [u32], fn(u64, u64) -> (u64, bool));

fn edges(random: &mut Random) -> u64 {
    const EDGES: [u64; 10] =
        [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX, 31, 0x7fff_ffff_ffff_ffff];
    if random.one_in(2) { EDGES[random.below(10) as usize] } else { random.next() >> random.below(64) }
}

#[test]
fn results_and_scc() {
    let rows: &[Row] = &[
        ("s_add_u32 s20, s16, s18", &[0x80141210], |x, y| {
            some(lo(x).wrapping_add(lo(y)), lo(x).checked_add(lo(y)).is_none())
        }),
        ("s_addc_u32 s20, s16, s18", &[0x82141210], |x, y| {
            some(
                lo(x).wrapping_add(lo(y)).wrapping_add(1),
                u64::from(lo(x)) + u64::from(lo(y)) + 1 > u64::from(u32::MAX),
            )
        }),
        ("s_subb_u32 s20, s16, s18", &[0x82941210], |x, y| {
            some(lo(x).wrapping_sub(lo(y)).wrapping_sub(1), u64::from(lo(x)) < u64::from(lo(y)) + 1)
        }),
        ("s_add_i32 s20, s16, s18", &[0x81141210], |x, y| {
            some(lo(x).wrapping_add(lo(y)), (lo(x) as i32).checked_add(lo(y) as i32).is_none())
        }),
        ("s_sub_i32 s20, s16, s18", &[0x81941210], |x, y| {
            some(lo(x).wrapping_sub(lo(y)), (lo(x) as i32).checked_sub(lo(y) as i32).is_none())
        }),
        ("s_mul_hi_u32 s20, s16, s18", &[0x96141210], |x, y| some((((x & M) * (y & M)) >> 32) as u32, true)),
        ("s_mul_hi_i32 s20, s16, s18", &[0x96941210], |x, y| {
            some(((i64::from(lo(x) as i32) * i64::from(lo(y) as i32)) >> 32) as u32, true)
        }),
        ("s_mulk_i32 s20, 0xff85", &[0xb794ff85], |_, _| some(0, true)),
        ("s_andn2_b64 s[20:21], s[16:17], s[18:19]", &[0x89941210], |x, y| (x & !y, x & !y != 0)),
        ("s_nor_b32 s20, s16, s18", &[0x8c141210], |x, y| some(!(lo(x) | lo(y)), !(lo(x) | lo(y)) != 0)),
        ("s_xnor_b64 s[20:21], s[16:17], s[18:19]", &[0x8d941210], |x, y| (!(x ^ y), !(x ^ y) != 0)),
        ("s_lshl_b64 s[20:21], s[16:17], s18", &[0x8e941210], |x, y| {
            (x.wrapping_shl(y as u32), x.wrapping_shl(y as u32) != 0)
        }),
        ("s_ashr_i64 s[20:21], s[16:17], s18", &[0x90941210], |x, y| {
            ((x as i64).wrapping_shr(y as u32) as u64, (x as i64).wrapping_shr(y as u32) != 0)
        }),
        ("s_bfe_u32 s20, s16, 0x80004", &[0x9294ff10, 0x00080004], |x, _| {
            some(lo(x) >> 4 & 255, lo(x) >> 4 & 255 != 0)
        }),
        ("s_bfe_i32 s20, s16, 0x80004", &[0x9314ff10, 0x00080004], |x, _| {
            let r = ((lo(x) << 20) as i32 >> 24) as u32;
            some(r, r != 0)
        }),
        ("s_bfe_u64 s[20:21], s[16:17], 0x200010", &[0x9394ff10, 0x00200010], |x, _| {
            (x >> 16 & M, x >> 16 & M != 0)
        }),
        ("s_bfm_b32 s20, 5, 3", &[0x91148385], |_, _| some(0xf8, true)),
        ("s_brev_b32 s20, s16", &[0xbe940810], |x, _| {
            some((0..32).fold(0, |r, at| r << 1 | lo(x) >> at & 1), true)
        }),
        ("s_ff1_i32_b64 s20, s[16:17]", &[0xbe941110], |x, _| {
            some((0..64).find(|at| x >> at & 1 == 1).unwrap_or(u32::MAX), true)
        }),
        ("s_flbit_i32_b32 s20, s16", &[0xbe941210], |x, _| {
            some((0..32).find(|at| lo(x) >> (31 - at) & 1 == 1).unwrap_or(u32::MAX), true)
        }),
        ("s_flbit_i32 s20, s16", &[0xbe941410], |x, _| {
            some((1..32).find(|at| lo(x) >> (31 - at) & 1 != lo(x) >> 31).unwrap_or(u32::MAX), true)
        }),
        ("s_bcnt1_i32_b64 s20, s[16:17]", &[0xbe940d10], |x, _| some(x.count_ones(), x != 0)),
        ("s_bitcmp1_b32 s16, s18", &[0xbf0d1210], |x, y| some(0, lo(x).wrapping_shr(lo(y)) & 1 == 1)),
        ("s_bitset1_b32 s20, s18", &[0xbe941a12], |_, y| some(1u32.wrapping_shl(lo(y)), true)),
        ("s_cmp_lg_u64 s[16:17], s[18:19]", &[0xbf131210], |x, y| some(0, x != y)),
        ("s_cmp_ge_i32 s16, s18", &[0xbf031210], |x, y| some(0, lo(x) as i32 >= lo(y) as i32)),
        ("s_min_i32 s20, s16, s18", &[0x83141210], |x, y| {
            some((lo(x) as i32).min(lo(y) as i32) as u32, (lo(x) as i32) < lo(y) as i32)
        }),
        ("s_max_u32 s20, s16, s18", &[0x84941210], |x, y| some(lo(x).max(lo(y)), lo(x) >= lo(y))),
        ("s_lshl3_add_u32 s20, s16, s18", &[0x98141210], |x, y| {
            some(lo(x).wrapping_shl(3).wrapping_add(lo(y)), (x & M) * 8 + (y & M) > M)
        }),
        ("s_abs_i32 s20, s16", &[0xbe943010], |x, _| some((lo(x) as i32).wrapping_abs() as u32, lo(x) != 0)),
        ("s_sext_i32_i8 s20, s16", &[0xbe941610], |x, _| some(i32::from(x as i8) as u32, true)),
        ("s_cmpk_lt_i32 s16, 0xfff0", &[0xb310fff0], |x, _| some(0, (lo(x) as i32) < -16)),
        ("s_movk_i32 s20, 0xfff0", &[0xb014fff0], |_, _| some(0xffff_fff0, true)),
        ("s_pack_lh_b32_b16 s20, s16, s18", &[0x99941210], |x, y| {
            some(lo(x) & 0xffff | lo(y) & 0xffff_0000, true)
        }),
        ("s_cmov_b64 s[20:21], s[16:17]", &[0xbe940310], |x, _| (x, true)),
    ];
    let mut random = Random(0x5ca1a);
    for (name, words, expect) in rows {
        assert_eq!(text(words), [*name]);
        for _ in 0..60 {
            let (x, y) = (edges(&mut random), edges(&mut random));
            let shown = |show: &[u32]| {
                let words = [FIRST, words, show].concat();
                run(&words, [&[x; 64], &[y; 64], &[0; 64]], Approximation::Rounded).unwrap()[0]
            };
            let (value, scc) = expect(x, y);
            assert_eq!((shown(SHOW), shown(SHOW_SCC)), (value, u64::from(scc)), "{name} of {x:#x}, {y:#x}");
        }
    }
}

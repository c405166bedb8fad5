//! Vector instructions one by one, on edge values and random ones, against Rust expressions.

use crate::machine::{run, text};
use crate::random::Random;
use lockstep_emulator::gfx942::Approximation;

/// Text, words, and result of a, b and c.
type Row = (&'static str, &'static [u32], fn(u64, u64, u64) -> u64);

/// Text, words, and a lane's bit of the mask for a and b.
type Mask = (&'static str, &'static [u32], fn(u64, u64) -> bool);

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

fn signed(x: u64, bits: u32) -> i64 {
    (x << (64 - bits)) as i64 >> (64 - bits)
}

/// Returns the result; if it is NaN, the first NaN operand, quieted, or else the positive NaN without
/// payload.
fn single(result: f32, operands: &[u64]) -> u64 {
    if !result.is_nan() {
        return result.to_bits().into();
    }
    let nan = operands.iter().find(|x| f(**x).is_nan());
    nan.map_or(0x7fc0_0000, |x| x & 0xffff_ffff | 0x0040_0000)
}

fn double(result: f64, operands: &[u64]) -> u64 {
    if !result.is_nan() {
        return result.to_bits();
    }
    let nan = operands.iter().find(|x| d(**x).is_nan());
    nan.map_or(0x7ff8_0000_0000_0000, |x| x | 0x0008_0000_0000_0000)
}

/// Draws 32-bit edge values, repeated in both halves or alone; 64-bit edge values; and any.
fn value(random: &mut Random) -> u64 {
    const EDGES: [u64; 24] = [
        0,
        1,
        2,
        15,
        16,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0x7f80_0001,
        0xffc1_2345,
        0x007f_ffff,
        0x0080_0000,
        0x8000_0001,
        0x7f7f_ffff,
        0x4b80_0001,
        0x3380_0000,
        0x0100_0001,
        0xffff,
        0x8000,
    ];
    const WIDE: [u64; 12] = [
        0x3ff0_0000_0000_0000,
        0x7ff0_0000_0000_0000,
        0xfff0_0000_0000_0000,
        0x7ff8_0000_0000_0001,
        0x7ff0_0000_0000_0001,
        0x000f_ffff_ffff_ffff,
        0x0010_0000_0000_0000,
        0x8000_0000_0000_0000,
        0x7fef_ffff_ffff_ffff,
        0x4340_0000_0000_0001,
        u64::MAX,
        0x3ca0_0000_0000_0000,
    ];
    match random.below(5) {
        0 => EDGES[random.below(24) as usize],
        1 => EDGES[random.below(24) as usize] << 32 | EDGES[random.below(24) as usize],
        2 => WIDE[random.below(12) as usize],
        3 => random.next() & !(0x7ff << 52) | (1023 - 30 + random.below(60)) << 52,
        _ => random.next(),
    }
}

fn inputs(random: &mut Random) -> [[u64; 64]; 3] {
    std::array::from_fn(|_| std::array::from_fn(|_| value(random)))
}

#[test]
fn results() {
    let rows: &[Row] = &[
        ("v_add_f32_e32 v8, v2, v4", &[0x02100902], |a, b, _| single(f(a) + f(b), &[a, b])),
        ("v_sub_f32_e64 v8, |v2|, -v4", &[0xd1020108, 0x40020902], |a, b, _| {
            single(f(a).abs() - -f(b), &[a & 0x7fff_ffff, b ^ 1 << 31])
        }),
        ("v_mul_f32_e32 v8, v2, v4", &[0x0a100902], |a, b, _| single(f(a) * f(b), &[a, b])),
        ("v_fma_f32 v8, v2, v4, -v6", &[0xd1cb0008, 0x841a0902], |a, b, c| {
            single(f(a).mul_add(f(b), -f(c)), &[a, b, c ^ 1 << 31])
        }),
        ("v_add_f64 v[8:9], v[2:3], v[4:5]", &[0xd2800008, 0x00020902], |a, b, _| {
            double(d(a) + d(b), &[a, b])
        }),
        ("v_fma_f64 v[8:9], -v[2:3], v[4:5], v[6:7]", &[0xd1cc0008, 0x241a0902], |a, b, c| {
            double((-d(a)).mul_add(d(b), d(c)), &[a ^ 1 << 63, b, c])
        }),
        ("v_cvt_f32_u32_e32 v8, v2", &[0x7e100d02], |a, _, _| u64::from((a as u32 as f32).to_bits())),
        ("v_cvt_f32_i32_e32 v8, v2", &[0x7e100b02], |a, _, _| u64::from((a as i32 as f32).to_bits())),
        ("v_cvt_f64_u32_e32 v[8:9], v2", &[0x7e102d02], |a, _, _| f64::from(a as u32).to_bits()),
        ("v_med3_i32 v8, v2, v4, v6", &[0xd1d70008, 0x041a0902], |a, b, c| {
            let mut x = [a as i32, b as i32, c as i32];
            x.sort();
            u64::from(x[1] as u32)
        }),
        ("v_max3_u32 v8, v2, v4, v6", &[0xd1d50008, 0x041a0902], |a, b, c| {
            [a as u32, b as u32, c as u32].into_iter().max().unwrap().into()
        }),
        ("v_lshl_add_u64 v[8:9], v[2:3], 2, v[6:7]", &[0xd2080008, 0x04190502], |a, _, c| {
            a.wrapping_mul(4).wrapping_add(c)
        }),
        ("v_lshlrev_b64 v[8:9], v2, v[4:5]", &[0xd28f0008, 0x00020902], |a, b, _| b.wrapping_shl(a as u32)),
        ("v_ashrrev_i32_e32 v8, v2, v4", &[0x22100902], |a, b, _| {
            u64::from((b as i32).wrapping_shr(a as u32) as u32)
        }),
        ("v_mul_hi_u32 v8, v2, v4", &[0xd2860008, 0x00020902], |a, b, _| {
            (u64::from(a as u32) * u64::from(b as u32)) >> 32
        }),
        ("v_mul_lo_u32 v8, v2, v4", &[0xd2850008, 0x00020902], |a, b, _| {
            u64::from((a as u32).wrapping_mul(b as u32))
        }),
        ("v_mad_i32_i24 v8, v2, v4, v6", &[0xd1c20008, 0x041a0902], |a, b, c| {
            u64::from(signed(a, 24).wrapping_mul(signed(b, 24)).wrapping_add(c as i32 as i64) as u32)
        }),
        ("v_bfe_i32 v8, v2, 4, 8", &[0xd1c90008, 0x02210902], |a, _, _| u64::from(signed(a >> 4, 8) as u32)),
        ("v_bfrev_b32_e32 v8, v2", &[0x7e105902], |a, _, _| {
            (0..32).map(|bit| (a >> bit & 1) << (31 - bit)).sum()
        }),
        ("v_ffbh_u32_e32 v8, v2", &[0x7e105b02], |a, _, _| {
            u64::from((0..32).find(|at| a >> (31 - at) & 1 == 1).unwrap_or(u32::MAX))
        }),
        ("v_sub_u32_e64 v8, v2, v4 clamp", &[0xd1358008, 0x00020902], |a, b, _| {
            (a & 0xffff_ffff).saturating_sub(b & 0xffff_ffff)
        }),
        ("v_and_or_b32 v8, v2, v4, v6", &[0xd2010008, 0x041a0902], |a, b, c| (a & b | c) & 0xffff_ffff),
        ("v_lshlrev_b16_e32 v8, v2, v4", &[0x54100902], |a, b, _| (b & 0xffff) << (a & 15) & 0xffff),
        (
            "v_or_b32_sdwa v8, v2, v4 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_0 \
             src1_sel:DWORD",
            &[0x281008f9, 0x06000502],
            |a, b, _| ((a & 0xff | b) & 0xffff) << 16,
        ),
        ("v_mad_u64_u32 v[8:9], s[4:5], v2, v4, v[6:7]", &[0xd1e80408, 0x041a0902], |a, b, c| {
            (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c)
        }),
        ("v_mad_i64_i32 v[8:9], s[4:5], v2, v4, v[6:7]", &[0xd1e90408, 0x041a0902], |a, b, c| {
            (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64) as u64
        }),
        ("v_subrev_u32_e32 v8, v2, v4", &[0x6c100902], |a, b, _| {
            u64::from((b as u32).wrapping_sub(a as u32))
        }),
        ("v_cvt_f32_ubyte2_e32 v8, v2", &[0x7e102702], |a, _, _| {
            u64::from(((a >> 16 & 0xff) as f32).to_bits())
        }),
        ("v_rndne_f64_e32 v[8:9], v[2:3]", &[0x7e103302], |a, _, _| double(d(a).round_ties_even(), &[a])),
    ];
    let seed = 0x942_0001;
    let mut random = Random(seed);
    for (name, words, expect) in rows {
        assert_eq!(text(words), [*name]);
        for _ in 0..40 {
            let [a, b, c] = inputs(&mut random);
            let out = run(words, [&a, &b, &c], Approximation::Rounded).unwrap();
            for lane in 0..64 {
                let wanted = expect(a[lane], b[lane], c[lane]);
                let (x, y, z) = (a[lane], b[lane], c[lane]);
                assert_eq!(
                    out[lane], wanted,
                    "{name} of {x:#x}, {y:#x}, {z:#x}: {:#x} (seed {seed:#x})",
                    out[lane]
                );
            }
        }
    }
}

/// v_cndmask_b32_e64 v8, 0, 1, vcc
pub(crate) const SHOW: [u32; 2] = [0xd100_0008, 0x01a9_0280];

#[test]
fn masks() {
    let rows: &[Mask] = &[
        ("v_cmp_lt_f32_e32 vcc, v2, v4", &[0x7c820902], |a, b| f(a) < f(b)),
        ("v_cmp_nlt_f32_e32 vcc, v2, v4", &[0x7c9c0902], |a, b| {
            f(a).partial_cmp(&f(b)) != Some(std::cmp::Ordering::Less)
        }),
        ("v_cmp_lg_f32_e32 vcc, v2, v4", &[0x7c8a0902], |a, b| f(a) < f(b) || f(a) > f(b)),
        ("v_cmp_u_f64_e32 vcc, v[2:3], v[4:5]", &[0x7cd00902], |a, b| d(a).is_nan() || d(b).is_nan()),
        ("v_cmp_ge_u64_e32 vcc, v[2:3], v[4:5]", &[0x7ddc0902], |a, b| a >= b),
        ("v_cmp_lt_i64_e64 vcc, v[2:3], v[4:5]", &[0xd0e1006a, 0x00020902], |a, b| (a as i64) < b as i64),
        ("v_cmp_ne_u16_e32 vcc, v2, v4", &[0x7d5a0902], |a, b| a as u16 != b as u16),
        ("v_cmp_gt_i32_e32 vcc, v2, v4", &[0x7d880902], |a, b| a as i32 > b as i32),
        ("v_sub_co_u32_e32 v10, vcc, v2, v4", &[0x34140902], |a, b| (a as u32) < b as u32),
        ("v_add_co_u32_e32 v10, vcc, v2, v4", &[0x32140902], |a, b| {
            (a as u32).checked_add(b as u32).is_none()
        }),
    ];
    let mut random = Random(7);
    for (name, words, expect) in rows {
        assert_eq!(text(words), [*name]);
        let words = [*words, &[0xbf80_0004], &SHOW].concat();
        for _ in 0..40 {
            let [a, b, c] = inputs(&mut random);
            let out = run(&words, [&a, &b, &c], Approximation::Rounded).unwrap();
            for lane in 0..64 {
                let wanted = expect(a[lane], b[lane]);
                assert_eq!(out[lane], u64::from(wanted), "{name} of {:#x}, {:#x}", a[lane], b[lane]);
            }
        }
    }
}

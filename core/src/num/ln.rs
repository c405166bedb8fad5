//! Natural logarithm.
use super::{Arith, canonical_nan};

/// ln 2, its first 16 bits.
const LN2_HI: f32 = f32::from_bits(0x3f31_7200); // 0.693145752
/// ln 2 - LN2_HI.
const LN2_LO: f32 = f32::from_bits(0x35bf_be8e); // 1.42860677e-6
/// 2/3: mantissas are taken from [2/3, 4/3).
const TWO_THIRDS: u32 = 0x3f2a_aaab;

/// P0..P7.
pub(super) const P: [f32; 8] = [
    f32::from_bits(0x3eaa_aa83), // 0.333332151
    f32::from_bits(0xbe7f_ff78), // -0.249997973
    f32::from_bits(0x3e4c_e83f), // 0.200104699
    f32::from_bits(0xbe2a_ceca), // -0.166804463
    f32::from_bits(0x3e0f_68d4), // 0.140048325
    f32::from_bits(0xbdf9_93a4), // -0.121863633
    f32::from_bits(0x3e0f_3cd1), // 0.139880434
    f32::from_bits(0xbe03_d1b1), // -0.128729597
];

/// The bits of k·2^23 with x/2^k in [2/3, 4/3), for a positive normal x.
#[inline(always)]
pub(super) fn exponent(x: f32) -> u32 {
    x.to_bits().wrapping_sub(TWO_THIRDS) & 0xff80_0000
}

/// k·ln 2 + ln(1 + f) for an integer k and |f| <= 1/3.
#[inline(always)]
pub(super) fn combine<A: Arith>(k: f32, f: f32) -> f32 {
    let hi = A::fma(k, LN2_HI, f);
    let lo = f - A::fma(k, -LN2_HI, hi);
    let p = A::fma(f, P[7], P[6]);
    let p = A::fma(f, p, P[5]);
    let p = A::fma(f, p, P[4]);
    let p = A::fma(f, p, P[3]);
    let p = A::fma(f, p, P[2]);
    let p = A::fma(f, p, P[1]);
    let p = A::fma(f, p, P[0]);
    let p = A::fma(f, p, -0.5);
    hi + A::fma(f * f, p, A::fma(k, LN2_LO, lo))
}

/// ln x.
#[inline(always)]
pub fn ln<A: Arith>(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let k = exponent(scaled);
    let m = f32::from_bits(scaled.to_bits().wrapping_sub(k));
    let power = (k.cast_signed() >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let y = combine::<A>(power, m - 1.0);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { canonical_nan() }
}

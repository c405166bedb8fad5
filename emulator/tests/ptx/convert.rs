//! cvt: widths and signs, rounding, saturation, NaN.

use super::lanes::{d, f, random, run, table};

#[test]
fn integers_are_cut_and_extended() {
    table("cvt.u64.u32 %d3, %r0", &[([0xffff_ffff, 0, 0], 0xffff_ffff)]);
    table("cvt.s64.s32 %d3, %r0", &[([0xffff_ffff, 0, 0], u64::MAX), ([5, 0, 0], 5)]);
    table("cvt.u32.u64 %r3, %d0", &[([0x1_2345_6789, 0, 0], 0x2345_6789)]);
    table("cvt.u16.u64 %h3, %d0", &[([0x1_2345_6789, 0, 0], 0x6789)]);
    table("cvt.u32.u16 %r3, %h0", &[([0xffff_8000, 0, 0], 0x8000)]);
    table("cvt.s32.s16 %r3, %h0", &[([0x8000, 0, 0], 0xffff_8000)]);
    table("cvt.s32.s8 %r3, %r0", &[([0x1ff, 0, 0], 0xffff_ffff), ([0x17f, 0, 0], 0x7f)]);
    // Values narrower than their register are extended to it.
    table("cvt.u8.u32 %r3, %r0", &[([0x1ff, 0, 0], 0xff)]);
    table("cvt.s8.s32 %r3, %r0", &[([0x1ff, 0, 0], 0xffff_ffff)]);
    table("cvt.s16.u8 %d3, %h0", &[([0x80, 0, 0], 0x80)]);
    table("cvt.sat.u8.s32 %r3, %r0", &[([0xffff_ffff, 0, 0], 0), ([300, 0, 0], 255), ([7, 0, 0], 7)]);
    table("cvt.sat.s32.s64 %r3, %d0", &[([1 << 40, 0, 0], 0x7fff_ffff), ([u64::MAX, 0, 0], 0xffff_ffff)]);
    table("cvt.sat.u32.u64 %r3, %d0", &[([1 << 40, 0, 0], 0xffff_ffff)]);
}

#[test]
fn integers_round_to_the_nearest_number() {
    table(
        "cvt.rn.f32.u32 %r3, %r0",
        &[
            ([0x0100_0001, 0, 0], f(16_777_216.0)),
            ([0x0100_0003, 0, 0], f(16_777_220.0)),
            ([0xffff_ffff, 0, 0], f(4_294_967_296.0)),
        ],
    );
    table(
        "cvt.rn.f32.s32 %r3, %r0",
        &[([0xffff_ffff, 0, 0], f(-1.0)), ([0x8000_0000, 0, 0], f(-2_147_483_648.0))],
    );
    // Exceeds binary64: rounding twice would give 2^63 + 2^39, a tie to even.
    table(
        "cvt.rn.f32.u64 %r3, %d0",
        &[
            ([(1 << 63) + (1 << 39) + 1, 0, 0], f(9_223_373_136_366_403_584.0)),
            ([(1 << 63) + (1 << 39), 0, 0], f(9_223_372_036_854_775_808.0)),
        ],
    );
    table(
        "cvt.rn.f64.u64 %d3, %d0",
        &[
            ([(1 << 53) + 1, 0, 0], d(9_007_199_254_740_992.0)),
            ([u64::MAX, 0, 0], d(18_446_744_073_709_551_616.0)),
        ],
    );
    table("cvt.rn.f64.s64 %d3, %d0", &[([u64::MAX, 0, 0], d(-1.0))]);
    table("cvt.rn.f64.u32 %d3, %r0", &[([0xffff_ffff, 0, 0], d(4_294_967_295.0))]);
    table("cvt.rn.f64.s32 %d3, %r0", &[([0xffff_ffff, 0, 0], d(-1.0))]);
    table("cvt.rn.f64.u16 %d3, %h0", &[([0xffff, 0, 0], d(65535.0))]);
}

#[test]
fn numbers_round_to_nearest_even() {
    let tie = 1.0 + 2.0_f64.powi(-24);
    table(
        "cvt.rn.f32.f64 %r3, %d0",
        &[
            ([d(tie), 0, 0], f(1.0)),
            ([d(tie) + 1, 0, 0], f(1.0) + 1),
            ([d(-tie), 0, 0], f(-1.0)),
            ([d(1e39), 0, 0], f(f32::INFINITY)),
            ([d(3.402_823_5e38), 0, 0], f(f32::MAX)),
            ([d(-0.0), 0, 0], f(-0.0)),
        ],
    );
    table(
        "cvt.f64.f32 %d3, %r0",
        &[([f(1.1), 0, 0], d(f64::from(1.1_f32))), ([f(f32::NEG_INFINITY), 0, 0], d(f64::NEG_INFINITY))],
    );
    table(
        "cvt.rni.f32.f32 %r3, %r0",
        &[([f(2.5), 0, 0], f(2.0)), ([f(3.5), 0, 0], f(4.0)), ([f(-0.4), 0, 0], f(-0.0))],
    );
    table("cvt.rzi.f32.f32 %r3, %r0", &[([f(-2.9), 0, 0], f(-2.0))]);
    table("cvt.rmi.f64.f64 %d3, %d0", &[([d(-2.1), 0, 0], d(-3.0))]);
    table("cvt.rpi.f64.f64 %d3, %d0", &[([d(2.1), 0, 0], d(3.0))]);
}

#[test]
fn numbers_saturate_and_nans_have_their_rule() {
    let nan = 0x7fc0_0000;
    table(
        "cvt.rzi.u32.f32 %r3, %r0",
        &[([f(-1.0), 0, 0], 0), ([f(1e10), 0, 0], 0xffff_ffff), ([f(2.9), 0, 0], 2), ([nan, 0, 0], 0)],
    );
    table(
        "cvt.rzi.s32.f32 %r3, %r0",
        &[
            ([f(-1.9), 0, 0], 0xffff_ffff),
            ([f(1e10), 0, 0], 0x7fff_ffff),
            ([f(-1e10), 0, 0], 0x8000_0000),
            ([nan, 0, 0], 0),
        ],
    );
    // From binary64, or to 64 bits, a NaN gives the bits of the smallest signed number.
    let wide = 0x7ff8_0000_0000_0000;
    table(
        "cvt.rzi.u32.f64 %r3, %d0",
        &[([wide, 0, 0], 0x8000_0000), ([d(4_294_967_295.5), 0, 0], 0xffff_ffff), ([d(-5.0), 0, 0], 0)],
    );
    table("cvt.rzi.s32.f64 %r3, %d0", &[([wide, 0, 0], 0x8000_0000), ([d(-1e300), 0, 0], 0x8000_0000)]);
    table("cvt.rzi.u64.f32 %d3, %r0", &[([nan, 0, 0], 1 << 63), ([f(f32::INFINITY), 0, 0], u64::MAX)]);
    table(
        "cvt.rzi.s64.f64 %d3, %d0",
        &[([wide, 0, 0], 1 << 63), ([d(9.3e18), 0, 0], i64::MAX as u64), ([d(-9.3e18), 0, 0], 1 << 63)],
    );
    table("cvt.rni.s32.f32 %r3, %r0", &[([f(2.5), 0, 0], 2), ([f(-3.5), 0, 0], (-4_i32) as u32 as u64)]);
    table("cvt.rmi.s32.f32 %r3, %r0", &[([f(-2.5), 0, 0], (-3_i32) as u32 as u64)]);
    table("cvt.rpi.s32.f32 %r3, %r0", &[([f(2.1), 0, 0], 3)]);
}

#[test]
fn random_integers_round_as_this_processor_does() {
    let words: Vec<[u64; 3]> =
        random(31).take(256).enumerate().map(|(i, word)| [word >> (i % 64), 0, 0]).collect();
    for ([a, ..], got) in words.iter().zip(run("cvt.rn.f64.u64 %d3, %d0", &words)) {
        assert_eq!(got, (*a as f64).to_bits());
    }
    for ([a, ..], got) in words.iter().zip(run("cvt.rn.f32.s64 %r3, %d0", &words)) {
        assert_eq!(got, f(*a as i64 as f32));
    }
}

//! Floating point at its edges: NaN, infinities, zeros, subnormals.

use super::lanes::{d, f, random, run, table};

const NAN: u64 = 0x7fff_ffff;
const QUIET: u64 = 0x7fc0_1234;
const SIGNALLING: u64 = 0xff80_0001;
const INF: u64 = 0x7f80_0000;
const MINUS: u64 = 0x8000_0000;
const INF64: u64 = 0x7ff0_0000_0000_0000;
const MINUS64: u64 = 1 << 63;

#[test]
fn every_nan_of_binary32_is_one() {
    for (op, words) in [
        ("add.rn.f32 %r3, %r0, %r1", [INF, INF | MINUS, 0]),
        ("add.rn.f32 %r3, %r0, %r1", [QUIET, 0, 0]),
        ("sub.rn.f32 %r3, %r0, %r1", [INF, INF, 0]),
        ("sub.rn.f32 %r3, %r0, %r1", [0, SIGNALLING, 0]),
        ("mul.rn.f32 %r3, %r0, %r1", [INF, 0, 0]),
        ("div.rn.f32 %r3, %r0, %r1", [0, 0, 0]),
        ("div.rn.f32 %r3, %r0, %r1", [INF, INF, 0]),
        ("fma.rn.f32 %r3, %r0, %r1, %r2", [INF, 0, 0]),
        ("fma.rn.f32 %r3, %r0, %r1, %r2", [INF, f(1.0), INF | MINUS]),
        ("fma.rn.f32 %r3, %r0, %r1, %r2", [0, 0, QUIET]),
        ("sqrt.rn.f32 %r3, %r0", [f(-1.0), 0, 0]),
        ("rcp.rn.f32 %r3, %r0", [SIGNALLING, 0, 0]),
        ("neg.f32 %r3, %r0", [QUIET, 0, 0]),
        ("abs.f32 %r3, %r0", [SIGNALLING, 0, 0]),
        ("min.f32 %r3, %r0, %r1", [QUIET, SIGNALLING, 0]),
        ("max.f32 %r3, %r0, %r1", [QUIET, QUIET, 0]),
        ("cvt.rn.f32.f64 %r3, %d0", [0x7ff8_0000_0000_1234, 0, 0]),
    ] {
        table(op, &[(words, NAN)]);
    }
}

#[test]
fn nans_of_binary64_keep_their_payload() {
    let (a, b) = (0x7ff0_0000_0000_0001, 0xfff8_0000_0000_0002);
    let quiet = a | 1 << 51;
    table(
        "add.rn.f64 %d3, %d0, %d1",
        &[([a, 0, 0], quiet), ([0, b, 0], b), ([a, b, 0], quiet), ([b, a, 0], b)],
    );
    table("mul.rn.f64 %d3, %d0, %d1", &[([0, INF64, 0], 0xfff8_0000_0000_0000)]);
    table("sub.rn.f64 %d3, %d0, %d1", &[([INF64, INF64, 0], 0xfff8_0000_0000_0000)]);
    table("div.rn.f64 %d3, %d0, %d1", &[([0, 0, 0], 0xfff8_0000_0000_0000), ([d(1.0), b, 0], b)]);
    table(
        "fma.rn.f64 %d3, %d0, %d1, %d2",
        &[([INF64, 0, b], b), ([INF64, 0, 0], 0xfff8_0000_0000_0000), ([0, a, b], quiet)],
    );
    table("sqrt.rn.f64 %d3, %d0", &[([d(-1.0), 0, 0], 0xfff8_0000_0000_0000), ([MINUS64, 0, 0], MINUS64)]);
    table("neg.f64 %d3, %d0", &[([b, 0, 0], b ^ MINUS64), ([0, 0, 0], MINUS64)]);
    table("abs.f64 %d3, %d0", &[([a, 0, 0], a), ([b, 0, 0], b), ([d(-3.5), 0, 0], d(3.5))]);
    table(
        "cvt.f64.f32 %d3, %r0",
        &[([QUIET, 0, 0], 0x7ff8_0246_8000_0000), ([SIGNALLING, 0, 0], 0xfff8_0000_2000_0000)],
    );
}

#[test]
fn of_a_number_and_a_nan_min_and_max_are_the_number() {
    for nan in [QUIET, SIGNALLING, NAN] {
        for op in ["min.f32", "max.f32"] {
            let rows = [([nan, f(2.0), 0], f(2.0)), ([f(-2.0), nan, 0], f(-2.0)), ([nan, INF, 0], INF)];
            table(&format!("{op} %r3, %r0, %r1"), &rows);
        }
    }
    table(
        "min.f32 %r3, %r0, %r1",
        &[([0, MINUS, 0], MINUS), ([MINUS, 0, 0], MINUS), ([1, 2, 0], 1), ([f(3.0), f(-3.0), 0], f(-3.0))],
    );
    table(
        "max.f32 %r3, %r0, %r1",
        &[([0, MINUS, 0], 0), ([MINUS, 0, 0], 0), ([1, 2, 0], 2), ([f(3.0), f(-3.0), 0], f(3.0))],
    );
    table("min.NaN.f32 %r3, %r0, %r1", &[([QUIET, 0, 0], NAN), ([0, QUIET, 0], NAN), ([0, MINUS, 0], MINUS)]);
    table("max.NaN.f32 %r3, %r0, %r1", &[([QUIET, 0, 0], NAN), ([f(1.0), f(2.0), 0], f(2.0))]);
    let nan = 0x7ff8_0000_0000_0009;
    table(
        "min.f64 %d3, %d0, %d1",
        &[([nan, d(2.0), 0], d(2.0)), ([0, MINUS64, 0], MINUS64), ([nan, nan, 0], u64::MAX >> 1)],
    );
    table(
        "max.f64 %d3, %d0, %d1",
        &[([d(2.0), nan, 0], d(2.0)), ([MINUS64, 0, 0], 0), ([d(-1.0), d(-2.0), 0], d(-1.0))],
    );
}

#[test]
fn signs_of_zeros_and_infinities() {
    table(
        "add.rn.f32 %r3, %r0, %r1",
        &[([0, MINUS, 0], 0), ([MINUS, MINUS, 0], MINUS), ([f(1.0), f(-1.0), 0], 0)],
    );
    table("sub.rn.f32 %r3, %r0, %r1", &[([0, 0, 0], 0), ([MINUS, 0, 0], MINUS)]);
    table("mul.rn.f32 %r3, %r0, %r1", &[([MINUS, f(2.0), 0], MINUS), ([f(3e38), f(-3e38), 0], INF | MINUS)]);
    table(
        "fma.rn.f32 %r3, %r0, %r1, %r2",
        &[([0, MINUS, MINUS], MINUS), ([0, MINUS, 0], 0), ([f(1.0), f(-1.0), f(1.0)], 0)],
    );
    table(
        "div.rn.f32 %r3, %r0, %r1",
        &[([f(1.0), 0, 0], INF), ([f(-1.0), 0, 0], INF | MINUS), ([f(1.0), INF, 0], 0)],
    );
    table("rcp.rn.f32 %r3, %r0", &[([MINUS, 0, 0], INF | MINUS), ([INF, 0, 0], 0)]);
    table("sqrt.rn.f32 %r3, %r0", &[([MINUS, 0, 0], MINUS), ([INF, 0, 0], INF)]);
    table("neg.f32 %r3, %r0", &[([0, 0, 0], MINUS), ([f(1.5), 0, 0], f(-1.5))]);
    table("abs.f32 %r3, %r0", &[([MINUS, 0, 0], 0), ([INF | MINUS, 0, 0], INF)]);
    table("copysign.f32 %r3, %r0, %r1", &[([MINUS, f(2.0), 0], f(-2.0)), ([0, f(-2.0), 0], f(2.0))]);
    table("copysign.f64 %d3, %d0, %d1", &[([MINUS64, d(2.0), 0], d(-2.0))]);
}

#[test]
fn subnormals_are_numbers() {
    table(
        "add.rn.f32 %r3, %r0, %r1",
        &[([1, 1, 0], 2), ([0x7f_ffff, 1, 0], 0x80_0000), ([0x80_0000, MINUS | 1, 0], 0x7f_ffff)],
    );
    // Half of the smallest number is a tie: to even, 0; of the next, 2; and so on.
    table(
        "mul.rn.f32 %r3, %r0, %r1",
        &[([1, f(0.5), 0], 0), ([3, f(0.5), 0], 2), ([1, f(0.75), 0], 1), ([MINUS | 1, f(0.5), 0], MINUS)],
    );
    table("fma.rn.f32 %r3, %r0, %r1, %r2", &[([1, f(0.5), 1], 2), ([1, 1, 1], 1)]);
    table(
        "div.rn.f32 %r3, %r0, %r1",
        &[([1, f(2.0), 0], 0), ([3, f(2.0), 0], 2), ([f(1.0), f(2e38), 0], f(1.0 / 2e38))],
    );
    table("rcp.rn.f32 %r3, %r0", &[([f(2e38), 0, 0], f(1.0 / 2e38))]);
    table("sqrt.rn.f32 %r3, %r0", &[([1, 0, 0], f(2.0_f32.powi(-75) * std::f32::consts::SQRT_2))]);
    table(
        "cvt.rn.f32.f64 %r3, %d0",
        &[
            ([d(2.0_f64.powi(-149)), 0, 0], 1),
            ([d(2.0_f64.powi(-150)), 0, 0], 0),
            ([d(1.5 * 2.0_f64.powi(-149)), 0, 0], 2),
        ],
    );
    table("cvt.f64.f32 %d3, %r0", &[([1, 0, 0], d(2.0_f64.powi(-149)))]);
    table("max.f32 %r3, %r0, %r1", &[([1, 0, 0], 1), ([MINUS | 1, MINUS, 0], MINUS)]);
    table("add.rn.f64 %d3, %d0, %d1", &[([1, 1, 0], 2)]);
    table("mul.rn.f64 %d3, %d0, %d1", &[([3, d(0.5), 0], 2)]);
    table("fma.rn.f64 %d3, %d0, %d1, %d2", &[([1, d(0.5), 1], 2)]);
}

/// IEEE 754 operations that this processor has, on random bits of all classes.
#[test]
fn any_bits_give_this_processors_bits() {
    let words: Vec<[u64; 3]> =
        random(21).zip(random(22)).zip(random(23)).take(512).map(|((a, b), c)| [a, b, c]).collect();
    let single = |x: f32| if x.is_nan() { NAN } else { f(x) };
    type Op = fn(f32, f32, f32) -> f32;
    let ops: [(&str, Op); 6] = [
        ("add.rn.f32 %r3, %r0, %r1", |a, b, _| a + b),
        ("sub.rn.f32 %r3, %r0, %r1", |a, b, _| a - b),
        ("mul.rn.f32 %r3, %r0, %r1", |a, b, _| a * b),
        ("div.rn.f32 %r3, %r0, %r1", |a, b, _| a / b),
        ("sqrt.rn.f32 %r3, %r0", |a, _, _| a.sqrt()),
        ("fma.rn.f32 %r3, %r0, %r1, %r2", f32::mul_add),
    ];
    for (instruction, op) in ops {
        for (words, got) in words.iter().zip(run(instruction, &words)) {
            let [a, b, c] = words.map(|word| f32::from_bits(word as u32));
            assert_eq!(got, single(op(a, b, c)), "{instruction} of {words:#x?}");
        }
    }
}

//! The scalar functions, on a few thousand bit patterns each.

use crate::hash::Source;
use crate::record::{Record, f32s, f64s};
use lockstep_core::num::{self, Arith};

/// Number of patterns after the edge cases.
const PATTERNS: usize = 3072;
/// Values recorded at a time.
const CHUNK: usize = 128;

/// Magnitudes at which behaviour changes: zero, the limits of the subnormal and the normal numbers, where exp
/// rounds to 1, powers of two, ln 2 and its multiples, the limits of the reduced argument, overflow,
/// underflow, saturation, infinity, NaN. Each is used with its neighbours and with both signs.
const EDGES: [u32; 28] = [
    0x0000_0001, // smallest subnormal
    0x0000_0040,
    0x0040_0000,
    0x007f_fffe, // up to the smallest normal number
    0x0080_0000,
    0x3300_0000, // 2^-25
    0x3380_0000, // 2^-24
    0x3980_0000, // 2^-12
    0x3e93_4b4b, // 0.2877
    0x3eb1_7218, // ln 2 / 2
    0x3ecf_9e38, // 0.4055
    0x3f00_0000,
    0x3f31_7218, // ln 2
    0x3f80_0000,
    0x3fb5_04f3, // √2
    0x4000_0000,
    0x4110_2cb3, // where tanh rounds to 1
    0x4180_0000,
    0x41e1_0d05, // the worst argument of exp
    0x42ae_0000, // 87
    0x42ae_ac50, // exp: the smallest normal result
    0x42b1_7218, // exp: overflow
    0x42cf_f1b5, // exp: underflow to 0
    0x42d0_0000,
    0x4b00_0000,
    0x7f7f_fffe,
    0x7f80_0000,
    0x7fc0_0000,
];
const ARGUMENTS: usize = 6 * EDGES.len() + PATTERNS;

/// Returns argument `i`: the edge cases first; then, alternating, any pattern, a magnitude in
/// 2⁻³⁰..2³⁰, and a number in ±105.
fn argument(source: Source, i: usize) -> f32 {
    if let Some(edge) = EDGES.get(i / 6) {
        let magnitude = edge.wrapping_add(i as u32 / 2 % 3).wrapping_sub(1);
        return f32::from_bits(magnitude | (i as u32 % 2) << 31);
    }
    match i % 3 {
        0 => source.pattern(i),
        1 => source.spread(i),
        _ => 105.0 * source.signed(i),
    }
}

/// Records `f` of every argument that it accepts.
fn map(record: &mut impl Record, name: &'static str, f: impl Fn(usize) -> Option<f32>) {
    record.begin(name, 0);
    let mut chunk = [0.0; CHUNK];
    let mut full = 0;
    for i in 0..ARGUMENTS {
        if let Some(y) = f(i) {
            chunk[full] = y;
            full += 1;
        }
        if full == CHUNK || i + 1 == ARGUMENTS {
            f32s(record, &chunk[..full]);
            full = 0;
        }
    }
}

/// Records `f` of `count` arguments, with canonical NaN.
fn map64(record: &mut impl Record, name: &'static str, count: usize, f: impl Fn(usize) -> f64) {
    record.begin(name, 0);
    (0..count).for_each(|i| f64s(record, &[num::canonical64(f(i))]));
}

/// Runs every scalar function under the arithmetic `A`.
pub(crate) fn run<A: Arith>(record: &mut impl Record) {
    let source = Source::new(1);
    let x = |i| argument(source, i);
    // Another argument for the same i, an edge case half of the time.
    let y = |i: usize| {
        let edge = source.fork(2).below(i, 2) == 0;
        argument(source, source.fork(1).below(i, if edge { 6 * EDGES.len() } else { ARGUMENTS }))
    };

    map(record, "num::exp", |i| Some(num::exp::<A>(x(i))));
    // Only where their bits are specified.
    map(record, "num::exp_nonpositive", |i| (x(i) <= 0.0).then(|| num::exp_nonpositive::<A>(x(i))));
    map(record, "num::exp_normal", |i| (x(i).abs() <= 87.0).then(|| num::exp_normal::<A>(x(i))));
    // Alternates between both results.
    map(record, "num::exp_and_rest", |i| {
        let (e, rest) = num::exp_and_rest::<A>(x(i));
        (x(i) <= 0.0).then_some(if i % 2 == 0 { e } else { rest })
    });
    map(record, "num::ln", |i| Some(num::ln::<A>(x(i))));
    map(record, "num::ln_normal", |i| {
        (x(i) >= f32::MIN_POSITIVE && x(i) < f32::INFINITY).then(|| num::ln_normal::<A>(x(i)))
    });
    map(record, "num::expm1", |i| Some(num::expm1::<A>(x(i))));
    map(record, "num::expm1_nonpositive", |i| (x(i) <= 0.0).then(|| num::expm1_nonpositive::<A>(x(i))));
    map(record, "num::log1p", |i| Some(num::log1p::<A>(x(i))));
    map(record, "num::sigmoid", |i| Some(num::sigmoid::<A>(x(i))));
    map(record, "num::tanh", |i| Some(num::tanh::<A>(x(i))));
    map(record, "num::expm1mx", |i| Some(num::expm1mx::<A>(x(i))));
    map(record, "num::sqrt", |i| Some(num::sqrt::<A>(x(i))));
    // Addends that cancel the product, that lead to a subnormal result, and any.
    map(record, "num::fma", |i| {
        let (a, b) = (x(i), y(i));
        let c = match i % 3 {
            0 => -(a * b),
            1 => source.fork(5).pattern(i),
            _ => argument(source.fork(5), i),
        };
        Some(num::fma::<A>(a, b, c))
    });
    map(record, "num::max", |i| Some(num::max(x(i), y(i))));
    map(record, "num::min", |i| Some(num::min(x(i), y(i))));
    map(record, "num::canonical", |i| Some(num::canonical(x(i))));
    map(record, "num::count", |i| Some(num::count(x(i) < y(i))));

    let double = |fork: u64, i: usize| f64::from_bits(source.fork(fork).bits(i));
    map64(record, "num::canonical64", 64, |i| {
        // NaN in one case of four; the payload stays.
        let nan = if i % 4 == 0 { 0x7ff0_0000_0000_0000 } else { 0 };
        f64::from_bits(source.fork(3).bits(i) | nan)
    });
    map64(record, "num::sqrt64", 512, |i| A::sqrt64(double(4, i)));
    map(record, "num::div", |i| Some(num::canonical(num::div(x(i), y(i)))));
    map64(record, "num::div64", 512, |i| num::div64(double(7, i), double(8, i)));
    // The host's schedules.
    map64(record, "num::exp64", 512, |i| num::exp64(7.0 * f64::from(x(i))));
    map64(record, "num::ln64", 512, |i| num::ln64(double(6, i)));
}

//! What is promised of each scalar function: its worst error, its special values, and an oracle in binary64
//! that imports no formula of core. `tests/num_sample.rs` samples it, `examples/exhaustive.rs` runs it over
//! all 2^32 inputs.

use lockstep_core::num::{self, Soft};

/// The implementation under test; without `std` there is only one.
#[cfg(feature = "std")]
pub(crate) type Hard = num::Hard;
/// The implementation under test; without `std` there is only one.
#[cfg(not(feature = "std"))]
pub(crate) type Hard = Soft;

/// Inputs per call, so that the compiler can vectorise.
pub(crate) const BLOCK: usize = 1024;

/// A function applied to a block of inputs.
pub(crate) type Block = fn(&[f32; BLOCK], &mut [f32; BLOCK]);

/// One scalar function and its promises.
pub(crate) struct Function {
    /// Name in `num`.
    pub(crate) name: &'static str,
    /// With the machine's fused multiply-add.
    pub(crate) hard: Block,
    /// With the portable one.
    pub(crate) soft: Block,
    /// The same function in binary64.
    pub(crate) oracle: fn(f64) -> f64,
    /// Largest error in ULP of the binary32 grid, subnormal spacing included.
    pub(crate) bound: f64,
    /// `Report::digest` over all 2^32 inputs: the bits themselves. A change is a breaking change.
    #[allow(dead_code, reason = "a sample cannot have it")]
    pub(crate) digest: u64,
    /// Inputs and outputs, as bits.
    pub(crate) special: &'static [(u32, u32)],
}

macro_rules! functions {
    ($($name:ident, $oracle:expr, $bound:expr, $digest:expr, $special:expr;)*) => {
        /// Every scalar function of one argument, and the only table of bounds.
        pub(crate) const BOUNDS: &[Function] = &[$(Function {
            name: stringify!($name),
            hard: |x, y| (0..BLOCK).for_each(|i| y[i] = num::$name::<Hard>(x[i])),
            soft: |x, y| (0..BLOCK).for_each(|i| y[i] = num::$name::<Soft>(x[i])),
            oracle: $oracle,
            bound: $bound,
            digest: $digest,
            special: $special,
        }),*];
    };
}

const NAN: u32 = 0x7fc0_0000;
const INF: u32 = 0x7f80_0000;
const ONE: u32 = 0x3f80_0000;
const MINUS: u32 = 0x8000_0000;

functions! {
    exp, libm::exp, 0.82, 0x4c1e_fe0d_2828_b8d4,
        &[(0, ONE), (MINUS, ONE), (INF, INF), (INF | MINUS, 0), (0x42b1_7218, INF),
        (0x42b1_7217, 0x7f7f_ff84), (0xc2cf_f000, 1), (0xc2cf_f1b5, 0), (1, ONE)];
    ln, libm::log, 0.75, 0x7b77_58e3_7bca_eeac,
        &[(ONE, 0), (0, INF | MINUS), (MINUS, INF | MINUS), (INF, INF), (INF | MINUS, NAN),
        (ONE | MINUS, NAN), (1 | MINUS, NAN), (1, 0xc2ce_8ed0)];
    expm1, libm::expm1, 1.31, 0xb129_f573_489a_85bf,
        &[(0, 0), (MINUS, MINUS), (INF, INF), (INF | MINUS, ONE | MINUS), (1, 1), (1 | MINUS, 1 | MINUS),
        (0x42b1_7218, INF)];
    expm1mx, expm1mx, 2.49, 0xbaf7_921c_9a1d_34f6,
        &[(0, 0), (MINUS, 0), (INF, INF), (INF | MINUS, INF), (0x42b1_7218, INF), (1, 0)];
    log1p, libm::log1p, 0.83, 0x2873_444a_817c_e22f,
        &[(0, 0), (MINUS, MINUS), (INF, INF), (ONE | MINUS, INF | MINUS), (1, 1), (0xbf80_0001, NAN),
        (INF | MINUS, NAN), (1 | MINUS, 1 | MINUS)];
    sigmoid, sigmoid, 2.41, 0xd5b3_4940_b028_3cb3,
        &[(0, 0x3f00_0000), (MINUS, 0x3f00_0000), (INF, ONE), (INF | MINUS, 0), (0x4200_0000, ONE)];
    tanh, libm::tanh, 2.5, 0xf6ab_c03e_b960_3807,
        &[(0, 0), (MINUS, MINUS), (INF, ONE), (INF | MINUS, ONE | MINUS), (1, 1), (1 | MINUS, 1 | MINUS)];
    sqrt, libm::sqrt, 0.5, 0x79ff_a226_63e3_5616,
        &[(0, 0), (MINUS, MINUS), (INF, INF), (INF | MINUS, NAN), (1 | MINUS, NAN), (ONE, ONE)];
}

/// Each side without overflow, and relative to e^x on the left.
fn sigmoid(x: f64) -> f64 {
    let e = libm::exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// The Taylor series where the difference would cancel.
fn expm1mx(x: f64) -> f64 {
    if x.abs() < 1.0 {
        // x²/2·(1 + x/3·(1 + x/4·(…)))
        let series = (3..24).rev().fold(0.0, |sum, k| (sum + 1.0) * x / f64::from(k));
        (1.0 + series) * x * x * 0.5
    } else if x == f64::INFINITY {
        x
    } else {
        libm::expm1(x) - x
    }
}

/// Inputs that every check includes: NaNs of each kind.
pub(crate) const NANS: [u32; 6] =
    [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xff80_0001, 0x7fff_ffff, 0xffff_ffff];

/// |y - exact| in units of the binary32 spacing at `exact`; beyond the largest number as if the exponent
/// range continued.
pub(crate) fn ulp_error(y: f32, exact: f64) -> f64 {
    const BEYOND: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0; // 2^128
    if exact.is_nan() {
        return if y.to_bits() == NAN { 0.0 } else { f64::INFINITY };
    }
    let got = f64::from(y).clamp(-BEYOND, BEYOND);
    let exact = exact.clamp(-BEYOND, BEYOND);
    let exponent = ((exact.to_bits() >> 52) & 0x7ff).clamp(1023 - 126, 1023 + 127);
    // 1/ulp = 2^(23 - exponent).
    let per_ulp = f64::from_bits((2 * 1023 + 23 - exponent) << 52);
    let error = ((got - exact) * per_ulp).abs();
    if error.is_nan() { f64::INFINITY } else { error }
}

/// What a run over many inputs found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Report {
    /// Largest error in ULP.
    pub(crate) worst: f64,
    /// Bits of the input that had it.
    pub(crate) at: u32,
    /// Results that are not the binary32 number nearest to the oracle.
    pub(crate) misrounded: u64,
    /// Results whose bits differ between `Hard` and `Soft`, and one input.
    pub(crate) unequal: u64,
    /// An input of the latter.
    pub(crate) unequal_at: u32,
    /// Sum of a hash of every input and output, in any order: two builds agree on all bits when it agrees.
    pub(crate) digest: u64,
}

impl Report {
    /// Both together.
    #[allow(dead_code, reason = "one thread is enough for the sample")]
    pub(crate) fn merge(self, other: Report) -> Report {
        let (larger, smaller) = if other.worst > self.worst { (other, self) } else { (self, other) };
        Report {
            misrounded: larger.misrounded + smaller.misrounded,
            unequal: larger.unequal + smaller.unequal,
            unequal_at: larger.unequal_at.max(smaller.unequal_at),
            digest: larger.digest.wrapping_add(smaller.digest),
            ..larger
        }
    }

    /// Adds a block of inputs.
    pub(crate) fn check(&mut self, function: &Function, bits: &[u32; BLOCK]) {
        let x = bits.map(f32::from_bits);
        let (mut hard, mut soft) = ([0.0; BLOCK], [0.0; BLOCK]);
        (function.hard)(&x, &mut hard);
        (function.soft)(&x, &mut soft);
        for i in 0..BLOCK {
            let pair = u64::from(bits[i]) << 32 | u64::from(hard[i].to_bits());
            let mixed = (pair ^ (pair >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            self.digest =
                self.digest.wrapping_add((mixed ^ (mixed >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb));
            let exact = (function.oracle)(f64::from(x[i]));
            let error = ulp_error(hard[i], exact);
            if error > self.worst {
                (self.worst, self.at) = (error, bits[i]);
            }
            self.misrounded += u64::from(error > 0.5);
            if hard[i].to_bits() != soft[i].to_bits() {
                self.unequal += 1;
                self.unequal_at = bits[i];
            }
        }
    }
}

/// Runs the special values and the NaNs; names the first that is wrong.
pub(crate) fn special(function: &Function) -> Result<(), String> {
    let nans = NANS.map(|bits| (bits, NAN));
    for &(input, want) in function.special.iter().chain(&nans) {
        for block in [function.hard, function.soft] {
            let mut y = [0.0; BLOCK];
            block(&[f32::from_bits(input); BLOCK], &mut y);
            if y.iter().any(|y| y.to_bits() != want) {
                return Err(format!(
                    "{}({:e} = 0x{input:08x}) = 0x{:08x}, want 0x{want:08x}",
                    function.name,
                    f32::from_bits(input),
                    y[0].to_bits()
                ));
            }
        }
    }
    Ok(())
}

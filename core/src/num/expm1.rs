//! e^x - 1.
//!
//! Method: e^x = 2^n·(1 + hi + tail) as in [`exp`](super::exp()); e^x - 1 = fma(hi + tail, 2^n, 2^n - 1),
//! where 2^n - 1 is exact for -24 <= n <= 24 and, for n = 0, only hi + tail with hi = x remains. The sign bit
//! of x is then set in the result, for x = -0.
//!
//! Special cases: ±0 → ±0, +∞ → +∞, -∞ → -1, NaN → NaN; overflow to +∞ above 88.72283; -1 below -17.4.
//!
//! Accuracy: at most 1.3086 ULP, at 0xbe9349e5 = -0.28767315, over all 2^32 inputs
//! (12.0 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- expm1`.
//!
//! Why: reusing the polynomial of `exp` instead of a dedicated one costs half an ULP at the ends of n = ±1.

use super::Arith;
use super::exp::{ROUND_2, at_least, at_most, integer, log2, power, remainder, wide_power};
use super::nan::{unless_nan, with_sign_of};

/// e^x - 1 for x <= 0, not NaN; x = -0 gives +0.
#[inline(always)]
pub fn expm1_nonpositive<A: Arith>(x: f32) -> f32 {
    let c = at_least(x, -26.0);
    let (n, biased) = integer::<A>(c);
    let r = remainder::<A>(c, n);
    let scale = f32::from_bits(biased.to_bits() << 23);
    A::fma(r.hi + r.tail, scale, scale - 1.0)
}

/// e^x, with the bits of [`exp`](super::exp()), and 1 - e^x, within 1.5 ULP, for x <= 0, from one reduction.
/// NaN gives 0 and 1.
#[inline(always)]
pub fn exp_and_rest<A: Arith>(x: f32) -> (f32, f32) {
    let c = at_least(x, -104.0);
    let biased = at_least(log2::<A>(c), -149.0) + ROUND_2;
    let r = remainder::<A>(c, biased - ROUND_2);
    let (scale, sum) = (wide_power(biased), r.hi + r.tail);
    (A::fma(sum, scale, scale), A::fma(-sum, scale, 1.0 - scale))
}

/// Computes e^x - 1 within 1.3086 ULP. ±0 → ±0, +∞ → +∞, -∞ → -1, NaN → NaN.
#[inline(always)]
pub fn expm1<A: Arith>(x: f32) -> f32 {
    let c = at_least(at_most(x, 89.0), -26.0);
    let (n, biased) = integer::<A>(c);
    let r = remainder::<A>(c, n);
    let scale = power(biased);
    let y = A::fma(r.hi + r.tail, scale, scale - 1.0);
    let y = if n > 127.0 { y + y } else { y };
    unless_nan(x, with_sign_of(x, y))
}

#[cfg(test)]
mod tests {
    use super::super::{Soft, exp_nonpositive};
    use super::*;

    /// Every `step`-th bit pattern between `a` and `b`, and all those near a change of n.
    fn numbers(a: f32, b: f32, step: usize) -> impl Iterator<Item = f32> {
        let (low, high) = (a.to_bits().min(b.to_bits()), a.to_bits().max(b.to_bits()));
        let ties = (-40..=2).flat_map(|k| {
            let tie = ((f64::from(k) + 0.585) * core::f64::consts::LN_2) as f32;
            (tie.to_bits() - 300..tie.to_bits() + 300).map(f32::from_bits)
        });
        (low..=high).step_by(step).map(f32::from_bits).chain(ties)
    }

    #[test]
    fn both_of_one_reduction() {
        let mut worst = 0.0_f64;
        for x in numbers(-0.0, f32::NEG_INFINITY, 4_001).filter(|x| *x <= 0.0) {
            let (e, rest) = exp_and_rest::<Soft>(x);
            assert_eq!(e.to_bits(), exp_nonpositive::<Soft>(x).to_bits(), "e^{x}");
            let exact = -libm::expm1(f64::from(x));
            let ulp = f64::from(f32::from_bits((exact as f32).to_bits() + 1)) - f64::from(exact as f32);
            worst = worst.max((f64::from(rest) - exact).abs() / ulp);
        }
        assert!(worst < 1.5, "{worst} ULP");
        assert_eq!(exp_and_rest::<Soft>(f32::NAN), (0.0, 1.0));
        assert_eq!(exp_and_rest::<Soft>(-0.0), (1.0, 0.0));
    }
}

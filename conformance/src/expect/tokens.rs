//! What the expectations of ops on log-probabilities share: guards, estimators, and which decisions are in
//! doubt.

use super::Sum;
use crate::cases::params::BAND;
use crate::ops::same;
use crate::oracle::kl as oracle_kl;
use crate::oracle::token;
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::ratio::Guard;

/// One unit of binary32.
pub(crate) const UNIT: f64 = 1.0 / 16_777_216.0;

/// The oracle's guard. Core's fields are private, so it is inferred from core's behaviour at ±∞.
pub(crate) fn guard(guard: Guard) -> token::Guard {
    let (bound, _) = guard.apply(f32::INFINITY);
    if bound == f32::INFINITY {
        return token::Guard::None;
    }
    match guard.gradient(1.0, false) {
        0.0 => token::Guard::Clamp(bound.into()),
        _ => token::Guard::StraightThrough(bound.into()),
    }
}

/// The oracle's KL estimator.
pub(crate) fn estimator(kl: Kl) -> oracle_kl::Kl {
    oracle_kl::Kl {
        estimator: same!(kl.estimator, KlFormula => oracle_kl::KlFormula, K1 Abs K2 K3),
        clamp_in: kl.clamp_in.into(),
        clamp_out: kl.clamp_out.into(),
        straight_through: kl.straight_through,
    }
}

/// A difference of two log-probabilities, and whether binary32 holds it exactly, in which case no decision on
/// it is in doubt.
pub(crate) fn difference(a: f32, b: f32) -> (f64, bool) {
    let d = f64::from(a) - f64::from(b);
    (d, f64::from(a - b) == d)
}

/// Whether a decision `d < bound` may go either way.
pub(crate) fn doubtful(d: f64, exact: bool, distance: f64) -> bool {
    !exact && distance < 4.0 * UNIT * (1.0 + d.abs())
}

/// Whether a decision on r = exp(d) may go either way, within the error of d and of the exponential. r = 1
/// for d = 0 is exact.
pub(crate) fn doubtful_ratio(d: f64, r: f64, bound: f64) -> bool {
    d != 0.0 && bound.is_finite() && (r - bound).abs() < 4.0 * UNIT * (2.0 + d.abs()) * r.max(bound)
}

/// Statistics of a row's ratios.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratios {
    /// −d, r − 1, its square, and the number inside [`BAND`].
    pub(crate) sums: [Sum; 4],
    /// The largest r and the largest −r.
    pub(crate) maxima: [Sum; 2],
}

impl Default for Ratios {
    fn default() -> Ratios {
        let none = Sum(f64::NEG_INFINITY, 0.0, 0.0);
        Ratios { sums: [Sum::default(); 4], maxima: [none; 2] }
    }
}

impl Ratios {
    /// Adds a token with log-ratio `d` and ratio `r`, which was computed from the log-ratio `from`.
    pub(crate) fn add(&mut self, d: f64, r: f64, from: f64) {
        let spread = 1.0 + from.abs();
        let [k1, excesses, squares, in_band] = &mut self.sums;
        k1.add(-d, d.abs());
        let (excess, error) = (r - 1.0, r * spread + (r - 1.0).abs());
        excesses.add(excess, error);
        squares.add(excess * excess, 2.0 * excess.abs() * error + excess * excess);
        let [low, high] = BAND.map(f64::from);
        let in_doubt = doubtful_ratio(from, r, low) || doubtful_ratio(from, r, high);
        in_band.count(low <= r && r <= high, in_doubt);
        for (max, r) in self.maxima.iter_mut().zip([r, -r]) {
            if r > max.0 {
                *max = Sum(r, r.abs() * spread, 0.0);
            }
        }
    }
}

/// Value and gradient of a KL estimate, each with its magnitude, and whether the gradient is in doubt.
pub(crate) fn kl_token(kl: &oracle_kl::Kl, logp: f32, logp_ref: f32) -> [(f64, f64); 2] {
    let (x, exact) = difference(logp, logp_ref);
    let (value, gradient) = (kl.value(x), kl.gradient(x));
    let sensitivity = match kl.estimator {
        oracle_kl::KlFormula::K1 | oracle_kl::KlFormula::Abs => 1.0,
        _ => 2.0 + x.abs().min(kl.clamp_in),
    };
    let is_k3 = kl.estimator == oracle_kl::KlFormula::K3 && !kl.straight_through;
    let at_clamp_in = doubtful(x, exact, (x.abs() - kl.clamp_in).abs());
    // k3 itself is uncertain by its rounding, which at u = 20 far exceeds that of u.
    let free = kl.free(x).abs();
    let near = (free - kl.clamp_out).abs() < 8.0 * UNIT * free * (2.0 + x.abs());
    let at_clamp_out = near && !kl_is_exact(kl, x, exact);
    let doubt = !kl.straight_through && (at_clamp_in || at_clamp_out);
    let spread = if is_k3 { 1.0 + x.abs() } else { 1.0 };
    [
        (value, value.abs() * sensitivity),
        (gradient, if doubt { f64::INFINITY } else { gradient.abs() * spread }),
    ]
}

/// Whether binary32 computes the estimate at x without error, given that it holds x exactly; then no decision
/// on it is in doubt.
pub(crate) fn kl_is_exact(kl: &oracle_kl::Kl, x: f64, exact: bool) -> bool {
    exact
        && match kl.estimator {
            oracle_kl::KlFormula::K1 | oracle_kl::KlFormula::Abs => true,
            oracle_kl::KlFormula::K2 => f64::from(0.5 * (x as f32 * x as f32)) == kl.free(x),
            oracle_kl::KlFormula::K3 => false,
        }
}

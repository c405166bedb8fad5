//! `token_ratio` and `kl`, and what the policy loss shares with them.

use super::{Sum, Want};
use crate::cases::params::BAND;
use crate::cases::{Case, slot};
use crate::launch::RATIO_SUMS;
use crate::oracle::kl::{self as oracle_kl, k3};
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
        estimator: match kl.estimator {
            KlFormula::K1 => oracle_kl::KlFormula::K1,
            KlFormula::Abs => oracle_kl::KlFormula::Abs,
            KlFormula::K2 => oracle_kl::KlFormula::K2,
            KlFormula::K3 => oracle_kl::KlFormula::K3,
        },
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

pub(super) fn ratio(case: &Case, policy: Guard) -> Vec<Want> {
    let oracle = guard(policy);
    let [mut ratio, mut log_ratio] = ["ratio", "log_ratio"].map(Want::new);
    let mut sums = RATIO_SUMS.map(Want::new);
    let [mut high, mut low] = ["max_ratio", "max_neg_ratio"].map(Want::new);
    for row in 0..case.data.rows() {
        let mut row_sums = [Sum::default(); RATIO_SUMS.len()];
        let (mut max, mut min) = ((f64::NEG_INFINITY, 0.0), (f64::NEG_INFINITY, 0.0));
        for i in case.data.span(row) {
            if !case.data.live(i) {
                ratio.push(0.0, 0.0);
                log_ratio.push(0.0, 0.0);
                continue;
            }
            let (raw, exact) =
                difference(case.data.element[slot::LOGP][i], case.data.element[slot::LOGP_OLD][i]);
            let d = oracle.value(raw);
            let (r, spread) = (d.exp(), 1.0 + d.abs());
            ratio.push(r, r * spread);
            log_ratio.push(raw, raw.abs());
            row_sums[0].add(-d, d.abs());
            row_sums[1].add(k3(d), k3(d) * (1.0 + spread));
            let (excess, error) = (r - 1.0, r * spread + (r - 1.0).abs());
            row_sums[2].add(excess, error);
            row_sums[3].add(excess * excess, 2.0 * excess.abs() * error + excess * excess);
            row_sums[4].count(!oracle.inside(raw), doubtful(raw, exact, oracle.distance_to_kink(raw)));
            let [from, to] = BAND.map(f64::from);
            let in_doubt = doubtful_ratio(d, r, from) || doubtful_ratio(d, r, to);
            row_sums[5].count(from <= r && r <= to, in_doubt);
            max = if r > max.0 { (r, r * spread) } else { max };
            min = if -r > min.0 { (-r, r * spread) } else { min };
        }
        for (want, sum) in sums.iter_mut().zip(row_sums) {
            want.push(sum.0, sum.1);
        }
        high.push(max.0, max.1);
        low.push(min.0, min.1);
    }
    [ratio, log_ratio].into_iter().chain(sums).chain([high, low]).collect()
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

pub(super) fn kl(case: &Case, kl: Kl) -> Vec<Want> {
    let oracle = estimator(kl);
    let [mut value, mut gradient, mut row_sum] = ["kl", "gradient", "row_sum"].map(Want::new);
    for row in 0..case.data.rows() {
        let mut sum = Sum::default();
        for i in case.data.span(row) {
            if !case.data.live(i) {
                value.push(0.0, 0.0);
                gradient.push(0.0, 0.0);
                continue;
            }
            let [v, g] =
                kl_token(&oracle, case.data.element[slot::LOGP][i], case.data.element[slot::LOGP_OLD][i]);
            value.push(v.0, v.1);
            gradient.push(g.0, g.1);
            sum.add(v.0, v.1);
        }
        row_sum.push(sum.0, sum.1);
    }
    vec![value, gradient, row_sum]
}

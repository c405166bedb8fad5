//! Gradients against central differences of a loss in binary64.

use lockstep_conformance::cases::{Data, slot};
use lockstep_conformance::oracle::policy_loss::Token;
use lockstep_conformance::precision::{FINITE_DIFFERENCE, STEP};

/// The slope of `loss` at a move of 0.
pub(crate) fn slope(loss: impl Fn(f64) -> f64) -> f64 {
    (loss(STEP) - loss(-STEP)) / (2.0 * STEP)
}

/// The slope of `loss` with respect to each entry of `at`; 0 where an entry is infinite, as for a forbidden
/// token.
pub(crate) fn slopes(at: &[f32], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let wide: Vec<f64> = at.iter().map(|x| f64::from(*x)).collect();
    let moved = |k: usize, step: f64| {
        let mut moved = wide.clone();
        moved[k] += step;
        loss(&moved)
    };
    (0..at.len()).map(|k| if at[k].is_finite() { slope(|step| moved(k, step)) } else { 0.0 }).collect()
}

/// The oracle's inputs for token `i`, with its weight and its own advantage.
pub(crate) fn token(data: &Data, i: usize) -> Token {
    let at = |k: usize| f64::from(data.element[k][i]);
    Token {
        logp: at(slot::LOGP),
        logp_old: at(slot::LOGP_OLD),
        logp_ref: at(slot::LOGP_REF),
        logp_second: at(slot::SECOND),
        advantage: at(slot::ADVANTAGE),
        weight: at(slot::WEIGHTS),
        sequence: (0.0, 0.0),
    }
}

/// Coefficients beside slopes.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) count: usize,
    /// How many had no slope although they might have had one.
    pub(crate) flat: usize,
    largest: f64,
    worst: f64,
}

impl Compared {
    pub(crate) fn add(&mut self, got: f32, want: f64, flat: bool) {
        self.count += 1;
        self.flat += usize::from(flat);
        self.largest = self.largest.max(want.abs());
        self.worst = self.worst.max((want - f64::from(got)).abs());
    }

    /// Checks every error beside the largest slope, and that there were enough of both kinds.
    pub(crate) fn check(&self, what: &str, least: usize, least_flat: usize) {
        let Compared { count, flat, largest, worst } = self;
        assert!(*largest > 0.0 && *worst <= FINITE_DIFFERENCE * largest, "{what}: {worst:e} of {largest:e}");
        let enough = *count > least && *flat >= least_flat && flat < count;
        assert!(enough, "{what}: {count} compared, {flat} without a slope");
    }
}

//! DPPO with weights relative to the sampler, or with given divergences: the released code's recompute and
//! top-k modes.

use super::dppo::Dppo;

/// The divergence that is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// |p − q|.
    TotalVariation,
    /// KL between the Bernoulli distributions of the token against all others.
    BinaryKl,
    /// The second array.
    Given,
}

/// Bounds of the divergence and of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrustRegion {
    /// The divergence that the bounds apply to.
    pub divergence: Divergence,
    /// Bound for falling probabilities.
    pub low: f64,
    /// Bound for rising probabilities.
    pub high: f64,
    /// Largest weight.
    pub c: f64,
}

impl TrustRegion {
    /// D.
    pub fn moved(&self, logp: f64, logp_old: f64, second: f64) -> f64 {
        match self.divergence {
            Divergence::Given => second,
            // The larger probability times 1 − e^(−|d|), so that a small difference loses no digits.
            Divergence::TotalVariation => -logp.max(logp_old).exp() * (-(logp - logp_old).abs()).exp_m1(),
            Divergence::BinaryKl => self.binary().divergence(logp, logp_old),
        }
    }

    /// Binary KL with the same bounds.
    pub fn binary(&self) -> Dppo {
        Dppo { low: self.low, high: self.high, c: self.c, kl: true }
    }

    /// The bound in the direction that A pushes a token.
    pub fn bound(&self, a: f64) -> f64 {
        if a > 0.0 { self.high } else { self.low }
    }

    /// Whether the token keeps its gradient.
    pub fn valid(&self, a: f64, logp: f64, logp_old: f64, second: f64) -> bool {
        let pushed = if a > 0.0 { logp - logp_old } else { logp_old - logp };
        pushed <= 0.0 || self.moved(logp, logp_old, second) <= self.bound(a)
    }

    /// The weight before truncation.
    pub fn free(&self, r: f64, logp: f64, second: f64) -> f64 {
        if self.divergence == Divergence::Given { r } else { (logp - second).exp() }
    }

    /// min(w, c), or 0.
    pub fn weight(&self, r: f64, a: f64, logp: f64, logp_old: f64, second: f64) -> f64 {
        if self.valid(a, logp, logp_old, second) { self.free(r, logp, second).min(self.c) } else { 0.0 }
    }
}

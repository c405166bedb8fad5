//! DPPO, docs/maths/gates.md.

/// Bounds of the divergence and of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dppo {
    /// Bound for falling probabilities.
    pub low: f64,
    /// Bound for rising probabilities.
    pub high: f64,
    /// Largest weight.
    pub c: f64,
    /// Binary KL instead of total variation.
    pub kl: bool,
}

impl Dppo {
    /// p − q, or KL(Bernoulli(q) ‖ Bernoulli(p)) with 1e-8 inside the second logarithm.
    pub fn divergence(&self, logp: f64, logp_old: f64) -> f64 {
        let (p, q) = (logp.exp(), logp_old.exp());
        if !self.kl {
            // q may be 0 while the ratio is infinite.
            return if q == 0.0 { p } else { q * (logp - logp_old).exp_m1() };
        }
        let (not_p, not_q) = (-logp.exp_m1(), -logp_old.exp_m1());
        let inside = if q == 0.0 { 0.0 } else { q * (logp_old - logp) };
        inside + not_q * ((not_q + 1e-8) / (not_p + 1e-8)).ln()
    }

    /// Whether the token keeps its gradient.
    pub fn valid(&self, a: f64, logp: f64, logp_old: f64) -> bool {
        let moved = self.divergence(logp, logp_old);
        match (self.kl, a > 0.0) {
            (false, true) => moved <= self.high,
            (false, false) => moved >= -self.low,
            (true, true) => !(moved > self.high && logp >= logp_old),
            (true, false) => !(moved > self.low && logp <= logp_old),
        }
    }

    /// min(r, c), or 0.
    pub fn weight(&self, r: f64, a: f64, logp: f64, logp_old: f64) -> f64 {
        if self.valid(a, logp, logp_old) { r.min(self.c) } else { 0.0 }
    }
}

//! MiniRL, docs/maths/routing.md.

/// Bounds of the mask and of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MiniRl {
    /// eps_lo.
    pub low: f64,
    /// eps_hi.
    pub high: f64,
    pub c: f64,
}

impl MiniRl {
    /// M: false once a token has moved past the bound in the direction that its advantage pushes it.
    pub fn kept(&self, r: f64, a: f64) -> bool {
        !((a > 0.0 && r > 1.0 + self.high) || (a < 0.0 && r < 1.0 - self.low))
    }

    /// M·min(exp(logp − logp_rollout), C).
    pub fn weight(&self, r: f64, a: f64, logp: f64, logp_rollout: f64) -> f64 {
        if self.kept(r, a) { (logp - logp_rollout).exp().min(self.c) } else { 0.0 }
    }
}

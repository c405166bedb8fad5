//! GMPO, maths.md §2.5.

/// One live token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// logp − logp_old, guarded.
    pub d: f64,
    /// A.
    pub a: f64,
    /// Rollout-correction weight; 1 without any.
    pub w: f64,
}

/// Bounds of the log-ratio, both as distances from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gmpo {
    /// Downwards.
    pub low: f64,
    /// Upwards.
    pub high: f64,
}

impl Gmpo {
    /// sgn(A)·min(sgn(A)·d, sgn(A)·clip(d)).
    pub fn clipped(&self, d: f64, a: f64) -> f64 {
        let sign = if a > 0.0 { 1.0 } else { -1.0 };
        if a == 0.0 { 0.0 } else { sign * (sign * d).min(sign * d.clamp(-self.low, self.high)) }
    }

    /// −A_i r_i w_i of a sequence; `weighted` says whether there are weights at all.
    pub fn loss(&self, tokens: &[Token], weighted: bool) -> f64 {
        let n = tokens.len() as f64 + 1e-8;
        let mean = |f: &dyn Fn(&Token) -> f64| tokens.iter().map(f).sum::<f64>() / n;
        let log_w = if weighted { mean(&|t| (t.w + 1e-8).ln()) } else { 0.0 };
        -mean(&|t| t.a) * mean(&|t| self.clipped(t.d, t.a)).exp() * log_w.exp()
    }

    /// Whether a token keeps its gradient.
    pub fn keeps(&self, d: f64, a: f64) -> bool {
        a != 0.0 && self.clipped(d, a) == d
    }
}

//! GMPO with its ablations, and HMPO: docs/maths/gates.md.

/// One live token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// logp − logp_old, guarded.
    pub d: f64,
    pub a: f64,
    /// Rollout-correction weight; 1 if there is none.
    pub w: f64,
}

/// How a sequence's ratio is made from its tokens' ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mean {
    /// Geometric mean of clipped ratios.
    Geometric,
    /// Geometric mean of ratios, with the clip on their product.
    ClippedSum,
    /// The product, without a mean.
    Product,
    /// The harmonic mean: HMPO.
    Harmonic,
}

/// Bounds of the log-ratio, both as distances from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gmpo {
    pub mean: Mean,
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

    /// Σ d over the tokens with a nonzero advantage, and ΣA.
    pub fn sums(&self, tokens: &[Token]) -> (f64, f64) {
        let d = tokens.iter().filter(|t| t.a != 0.0).map(|t| t.d).sum();
        (d, tokens.iter().map(|t| t.a).sum())
    }

    /// Whether the clip of the sum is active.
    pub fn stopped(&self, tokens: &[Token]) -> bool {
        let (d, a) = self.sums(tokens);
        a > 0.0 && d > self.high || a < 0.0 && d < -self.low
    }

    fn ratio(&self, tokens: &[Token]) -> f64 {
        let n = tokens.len() as f64 + 1e-8;
        let clipped = || tokens.iter().map(|t| self.clipped(t.d, t.a));
        match self.mean {
            Mean::Geometric => (clipped().sum::<f64>() / n).exp(),
            Mean::Product => clipped().map(f64::exp).product(),
            Mean::Harmonic => n / clipped().map(|c| (-c).exp()).sum::<f64>(),
            Mean::ClippedSum if self.stopped(tokens) => {
                (if self.sums(tokens).1 > 0.0 { self.high } else { -self.low } / n).exp()
            }
            Mean::ClippedSum => (self.sums(tokens).0 / n).exp(),
        }
    }

    /// −A_i r_i w_i of a sequence; `weighted` says whether there are weights at all.
    pub fn loss(&self, tokens: &[Token], weighted: bool) -> f64 {
        if tokens.is_empty() {
            return 0.0;
        }
        let n = tokens.len() as f64 + 1e-8;
        let mean = |f: &dyn Fn(&Token) -> f64| tokens.iter().map(f).sum::<f64>() / n;
        let log_w = if weighted { mean(&|t| (t.w + 1e-10).ln()) } else { 0.0 };
        -mean(&|t| t.a) * self.ratio(tokens) * log_w.exp()
    }

    /// d ln r / dd of each token; `None` where a clip stops its gradient.
    pub fn slopes(&self, tokens: &[Token]) -> Vec<Option<f64>> {
        let n = tokens.len() as f64 + 1e-8;
        let stopped = self.mean == Mean::ClippedSum && self.stopped(tokens);
        let inverses: f64 = tokens.iter().map(|t| (-self.clipped(t.d, t.a)).exp()).sum();
        let slope = |t: &Token| {
            let (kept, slope) = match self.mean {
                Mean::ClippedSum => (!stopped, 1.0 / n),
                Mean::Geometric => (self.clipped(t.d, t.a) == t.d, 1.0 / n),
                Mean::Product => (self.clipped(t.d, t.a) == t.d, 1.0),
                Mean::Harmonic => (self.clipped(t.d, t.a) == t.d, (-t.d).exp() / inverses),
            };
            (kept && t.a != 0.0).then_some(slope)
        };
        tokens.iter().map(slope).collect()
    }
}

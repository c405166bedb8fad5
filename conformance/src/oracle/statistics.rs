//! Softmax statistics of one row of logits, docs/maths/entropy.md, docs/maths/correction.md.

/// A row after a softmax at some temperature. A logit of −∞ is a token that cannot occur.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// ln p_v.
    pub logp: Vec<f64>,
    /// p_v.
    pub p: Vec<f64>,
    /// logsumexp(z/T).
    pub lse: f64,
    /// Position of the first largest logit.
    pub top: usize,
    /// (z_v − max z)/T.
    pub below: Vec<f64>,
}

/// Softmax of z/T.
pub fn softmax(logits: &[f64], temperature: f64) -> Softmax {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let top = logits.iter().position(|z| *z == largest).unwrap_or(0);
    let below: Vec<f64> = logits.iter().map(|z| (z - largest) / temperature).collect();
    // Excludes the largest itself, so that a nearly certain token keeps its digits.
    let rest: f64 = below.iter().enumerate().filter(|(v, _)| *v != top).map(|(_, y)| y.exp()).sum();
    let ln_total = rest.ln_1p();
    let logp: Vec<f64> = below.iter().map(|y| y - ln_total).collect();
    Softmax {
        p: logp.iter().map(|l| l.exp()).collect(),
        logp,
        lse: largest / temperature + ln_total,
        top,
        below,
    }
}

impl Softmax {
    /// Σ −p ln p.
    pub fn entropy(&self) -> f64 {
        let term = |(p, logp): (&f64, &f64)| if *p == 0.0 { 0.0 } else { -p * logp };
        self.p.iter().zip(&self.logp).map(term).sum()
    }

    /// Σ p².
    pub fn collision(&self) -> f64 {
        self.p.iter().map(|p| p * p).sum()
    }

    /// 1 − p of a token, computed as the sum of the others.
    pub fn miss(&self, token: usize) -> f64 {
        self.p.iter().enumerate().filter(|(v, _)| *v != token).map(|(_, p)| p).sum()
    }

    /// Squared norm of ∂ln p_a/∂(z/T).
    pub fn score_norm(&self, label: usize) -> f64 {
        let term = |(v, p): (usize, &f64)| if v == label { self.miss(label).powi(2) } else { p * p };
        self.p.iter().enumerate().map(term).sum()
    }

    /// Σ p (1 + |y|) over all tokens but the largest: the effect of the rounding of y on the sum of
    /// exponentials, in units.
    pub fn spread(&self) -> f64 {
        let term = |(p, y): (&f64, &f64)| if *p == 0.0 || *y == 0.0 { 0.0 } else { p * (1.0 - y) };
        self.p.iter().zip(&self.below).map(term).sum()
    }
}

//! KL estimators, docs/maths/kl.md: x = logp − logp_ref, u = −x.

/// Which estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlFormula {
    /// x.
    K1,
    /// |x|.
    Abs,
    /// x²/2.
    K2,
    /// exp(u) − u − 1.
    K3,
}

/// An estimator with its clamps and its optional straight-through gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    pub estimator: KlFormula,
    /// Bound on |u|; infinite disables it.
    pub clamp_in: f64,
    /// Bound on |value|; infinite disables it.
    pub clamp_out: f64,
    /// Whether the gradient is k2's (verl's `k1+`, `k3+`).
    pub straight_through: bool,
}

/// exp(u) − u − 1. `exp_m1(u) − u` cancels for small u, where the series is used.
pub fn k3(u: f64) -> f64 {
    if u.abs() < 1e-2 {
        let mut term = u;
        let next = |n: i32| {
            term *= u / f64::from(n);
            term
        };
        return (2..=8).map(next).sum();
    }
    u.exp_m1() - u
}

impl Kl {
    /// The value before `clamp_out`.
    pub fn free(&self, x: f64) -> f64 {
        let x = x.clamp(-self.clamp_in, self.clamp_in);
        match self.estimator {
            KlFormula::K1 => x,
            KlFormula::Abs => x.abs(),
            KlFormula::K2 => x * x / 2.0,
            KlFormula::K3 => k3(-x),
        }
    }

    /// The estimate.
    pub fn value(&self, x: f64) -> f64 {
        self.free(x).clamp(-self.clamp_out, self.clamp_out)
    }

    /// d value / d logp; 0 where a clamp is active.
    pub fn gradient(&self, x: f64) -> f64 {
        match self.estimator {
            _ if self.straight_through => x,
            _ if x.abs() > self.clamp_in || self.free(x).abs() > self.clamp_out => 0.0,
            KlFormula::K1 => 1.0,
            KlFormula::Abs if x == 0.0 => 0.0,
            KlFormula::Abs => x.signum(),
            KlFormula::K2 => x,
            KlFormula::K3 => -(-x).exp_m1(),
        }
    }

    /// Distance of x from a point where the gradient jumps.
    pub fn distance_to_kink(&self, x: f64) -> f64 {
        if self.straight_through {
            return f64::INFINITY;
        }
        // Where the slope is above 1, a distance in value is a smaller one in x.
        let near = x.clamp(-60.0, 60.0);
        let slope = match self.estimator {
            KlFormula::K1 | KlFormula::Abs => 1.0,
            KlFormula::K2 => x.abs(),
            KlFormula::K3 => (-near).exp_m1().abs(),
        };
        let value = (Kl { clamp_in: 60.0, ..*self }.free(x).abs() - self.clamp_out).abs() / slope.max(1.0);
        let own = if self.estimator == KlFormula::Abs { x.abs() } else { f64::INFINITY };
        (x.abs() - self.clamp_in).abs().min(value).min(own)
    }
}

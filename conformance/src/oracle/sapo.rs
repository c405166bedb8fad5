//! SAPO's soft gate, docs/maths/gates.md.

/// Temperatures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sapo {
    /// For A > 0.
    pub tau_pos: f64,
    /// For all other advantages.
    pub tau_neg: f64,
}

fn sigma(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

impl Sapo {
    /// The temperature for this advantage.
    pub fn tau(&self, a: f64) -> f64 {
        if a > 0.0 { self.tau_pos } else { self.tau_neg }
    }

    /// f(r) = (4/tau) sigma(tau (r − 1)).
    pub fn f(&self, r: f64, a: f64) -> f64 {
        let tau = self.tau(a);
        4.0 / tau * sigma(tau * (r - 1.0))
    }

    /// l = −f(r) A.
    pub fn loss(&self, r: f64, a: f64) -> f64 {
        if a == 0.0 { 0.0 } else { -self.f(r, a) * a }
    }

    /// w(r) = sech²(tau (r − 1)/2), which is 4p(1 − p).
    pub fn weight(&self, r: f64, a: f64) -> f64 {
        let half = self.tau(a) * (r - 1.0) / 2.0;
        1.0 / (half.cosh() * half.cosh())
    }

    /// dl/dlogp = −A r w(r); r w(r) → 0 as r → ∞.
    pub fn gradient(&self, r: f64, a: f64) -> f64 {
        let w = self.weight(r, a);
        if a == 0.0 || w == 0.0 { 0.0 } else { -a * r * w }
    }
}

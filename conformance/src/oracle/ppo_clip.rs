//! PPO clip, clip-higher, dual clip, docs/maths/gates.md.

/// Parameters of the clip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PpoClip {
    /// eps_lo.
    pub low: f64,
    /// eps_hi.
    pub high: f64,
    /// c of the dual clip; infinite disables it.
    pub dual: f64,
}

/// Which bound a token hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clips {
    /// A > 0 and r above 1 + eps_hi.
    pub high: bool,
    /// A < 0 and r below 1 − eps_lo.
    pub low: bool,
    /// A < 0 and r above c.
    pub dual: bool,
}

impl PpoClip {
    /// l = max(−A r, −A clip(r)), and for A < 0 at most −c A. A = 0 gives 0.
    pub fn loss(&self, r: f64, a: f64) -> f64 {
        if a == 0.0 {
            return 0.0;
        }
        let unclipped = -a * r;
        let clipped = -a * r.clamp(1.0 - self.low, 1.0 + self.high);
        let l = unclipped.max(clipped);
        if a < 0.0 { l.min(-self.dual * a) } else { l }
    }

    /// Which bound is active; none is at equality.
    pub fn clips(&self, r: f64, a: f64) -> Clips {
        Clips {
            high: a > 0.0 && r > 1.0 + self.high,
            low: a < 0.0 && r < 1.0 - self.low,
            dual: a < 0.0 && r > self.dual,
        }
    }

    /// dl/dlogp: −A r unless a bound is active.
    pub fn gradient(&self, r: f64, a: f64) -> f64 {
        if a == 0.0 || self.clips(r, a) != Clips::default() { 0.0 } else { -a * r }
    }

    /// Gradient relative to −A r. At A = 0, where any value would do, nothing is clipped.
    pub fn weight(&self, r: f64, a: f64) -> f64 {
        if self.clips(r, a) == Clips::default() { 1.0 } else { 0.0 }
    }

    /// Distance of r from the nearest bound at which the gradient jumps.
    pub fn distance_to_kink(&self, r: f64) -> f64 {
        let bounds = [1.0 - self.low, 1.0 + self.high, self.dual];
        bounds.into_iter().filter(|b| b.is_finite()).map(|b| (r - b).abs()).fold(f64::INFINITY, f64::min)
    }
}

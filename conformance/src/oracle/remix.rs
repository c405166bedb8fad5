//! ReMix's mix-policy clip, docs/maths/correction.md.

use super::ppo_clip::Clips;

/// Bounds as distances from the centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remix {
    /// Downwards.
    pub low: f64,
    /// Upwards.
    pub high: f64,
}

impl Remix {
    /// l = max(−A r, −A clip(r, c − low, c + high)).
    pub fn loss(&self, r: f64, a: f64, c: f64) -> f64 {
        if a == 0.0 {
            return 0.0;
        }
        (-a * r).max(-a * r.max(c - self.low).min(c + self.high))
    }

    /// Which bound is active.
    pub fn clips(&self, r: f64, a: f64, c: f64) -> Clips {
        Clips { high: a > 0.0 && r > c + self.high, low: a < 0.0 && r < c - self.low, dual: false }
    }

    /// 1 unless a bound is active.
    pub fn weight(&self, r: f64, a: f64, c: f64) -> f64 {
        if self.clips(r, a, c) == Clips::default() { 1.0 } else { 0.0 }
    }
}

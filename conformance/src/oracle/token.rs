//! Token importance ratio, docs/maths/conventions.md, docs/maths/correction.md.

/// What is applied to a log-ratio before it is exponentiated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Guard {
    /// Nothing.
    None,
    /// Clamped to ±bound; the derivative is 0 outside, as with autograd through a clamp.
    Clamp(f64),
    /// Clamped to ±bound; the derivative ignores the clamp.
    StraightThrough(f64),
}

impl Guard {
    /// The guarded log-ratio.
    pub fn value(self, d: f64) -> f64 {
        match self {
            Guard::None => d,
            Guard::Clamp(bound) | Guard::StraightThrough(bound) => d.clamp(-bound, bound),
        }
    }

    /// Whether `d` is within the bound; the bound itself counts as inside.
    pub fn inside(self, d: f64) -> bool {
        match self {
            Guard::None => true,
            Guard::Clamp(bound) | Guard::StraightThrough(bound) => d.abs() <= bound,
        }
    }

    /// Derivative of the guarded log-ratio with respect to d.
    pub fn derivative(self, d: f64) -> f64 {
        match self {
            Guard::Clamp(_) if !self.inside(d) => 0.0,
            _ => 1.0,
        }
    }

    /// Distance of `d` from the kink; infinite if there is none.
    pub fn distance_to_kink(self, d: f64) -> f64 {
        match self {
            Guard::None => f64::INFINITY,
            Guard::Clamp(bound) | Guard::StraightThrough(bound) => (d.abs() - bound).abs(),
        }
    }
}

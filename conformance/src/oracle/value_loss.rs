//! Clipped value loss, maths.md §6.6.

/// What a token loses and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// ½·max of both squares.
    pub loss: f64,
    /// dl/dV.
    pub gradient: f64,
    /// The clipped branch is the larger.
    pub clipped: bool,
    /// Distance from where the gradient jumps.
    pub distance_to_kink: f64,
}

/// One token; `range` may be infinite.
pub fn token(value: f64, old: f64, target: f64, range: f64) -> Value {
    let bounded = value.clamp(old - range, old + range);
    let (a, b) = ((value - target).powi(2), (bounded - target).powi(2));
    let clipped = b > a;
    let between = ((bounded - target).abs() - (value - target).abs()).abs();
    Value {
        loss: 0.5 * a.max(b),
        gradient: if clipped { 0.0 } else { value - target },
        clipped,
        distance_to_kink: if bounded == value { (range - (value - old).abs()).abs() } else { between },
    }
}

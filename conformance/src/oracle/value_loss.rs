//! Clipped value loss, docs/maths/advantages.md.

/// A token's value loss and its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// ½·max of the two squares.
    pub loss: f64,
    /// dl/dV.
    pub gradient: f64,
    /// Whether the clipped branch is the larger.
    pub clipped: bool,
    /// Distance to the nearest jump of the gradient.
    pub distance_to_kink: f64,
}

/// Huber's loss and its derivative; half the square if δ is infinite.
fn huber(error: f64, delta: f64) -> (f64, f64) {
    match error.abs() <= delta {
        true => (0.5 * error * error, error),
        false => (delta * (error.abs() - 0.5 * delta), delta * error.signum()),
    }
}

/// The loss of one token; `range` and δ may be infinite.
pub fn token(value: f64, old: f64, target: f64, range: f64, delta: f64) -> Value {
    let bounded = value.clamp(old - range, old + range);
    let ((a, slope), (b, _)) = (huber(value - target, delta), huber(bounded - target, delta));
    let clipped = b > a;
    let between = ((bounded - target).abs() - (value - target).abs()).abs();
    Value {
        loss: a.max(b),
        gradient: if clipped { 0.0 } else { slope },
        clipped,
        distance_to_kink: if bounded == value { (range - (value - old).abs()).abs() } else { between },
    }
}

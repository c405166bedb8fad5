//! RAE, docs/maths/advantages.md, one game at a time.

/// Advantages (0 for `None`) and the final baseline, each with its magnitude.
pub fn role(
    rewards: &[Option<f64>],
    decay: f64,
    start: f64,
    subtract_first: bool,
) -> (Vec<(f64, f64)>, (f64, f64)) {
    let (mut b, mut magnitude) = (start, start.abs());
    let mut out = Vec::new();
    for reward in rewards {
        let Some(r) = *reward else {
            out.push((0.0, 0.0));
            continue;
        };
        let (before, size) = (b, magnitude);
        b = decay * b + (1.0 - decay) * r;
        magnitude = decay * magnitude + (1.0 - decay) * r.abs();
        out.push(if subtract_first { (r - before, r.abs() + size) } else { (r - b, r.abs() + magnitude) });
    }
    (out, (b, magnitude))
}

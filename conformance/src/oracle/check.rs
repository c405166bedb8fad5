//! What valid offsets and values are.

/// Positions of all offsets that break a rule: the first is 0, none is below its predecessor, the last is
/// `elements`.
pub fn offsets(offsets: &[u32], elements: usize) -> Vec<usize> {
    let last = offsets.len() - 1;
    (0..offsets.len())
        .filter(|&i| {
            let wrong_start = i == 0 && offsets[i] != 0;
            let wrong_end = i == last && offsets[i] as usize != elements;
            let decreasing = i > 0 && offsets[i] < offsets[i - 1];
            wrong_start || wrong_end || decreasing
        })
        .collect()
}

/// Whether `x` is a finite number from `least` to `greatest`, or a NaN if those are allowed.
pub fn in_domain(x: f64, least: f64, greatest: f64, nan: bool) -> bool {
    if x.is_nan() { nan } else { x.abs() != f64::INFINITY && x >= least && x <= greatest }
}

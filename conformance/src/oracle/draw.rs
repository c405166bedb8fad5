//! Stratified draws from a distribution, by plain counting.

use super::key::hash;

/// The point of draw `position` within its stratum, in 0..1.
pub fn point(seed: u64, position: u64) -> f64 {
    let half = |k: u64| f64::from(hash(seed, position.wrapping_mul(2).wrapping_add(k)));
    (half(0) + half(1) / 4_294_967_296.0) / 4_294_967_296.0
}

/// How often each token is drawn, and whether that is certain: positions on the line from 0 to 1 are known to
/// within `uncertain`, and a decision closer than that is uncertain.
pub fn counts(p: &[f64], points: &[f64], uncertain: f64) -> Vec<(usize, bool)> {
    let places: Vec<f64> =
        points.iter().enumerate().map(|(j, u)| (j as f64 + u) / points.len() as f64).collect();
    let mut from = 0.0;
    let piece = |p: &f64| {
        let to = from + p;
        let inside = places.iter().filter(|x| (from..to).contains(*x)).count();
        let near = |edge: f64| places.iter().any(|x| (x - edge).abs() <= uncertain);
        // The ends of the line themselves are never in doubt.
        let in_doubt = near(from) && from > 0.0 || near(to) && 1.0 - to > 1e-12;
        from = to;
        (inside, !in_doubt)
    };
    p.iter().map(piece).collect()
}

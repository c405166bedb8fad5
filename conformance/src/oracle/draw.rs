//! Stratified draws from a distribution: plain counting.

use super::key::hash;

/// The point of draw `position` in its stratum, in 0..1.
pub fn point(seed: u64, position: u64) -> f64 {
    let half = |k: u64| f64::from(hash(seed, position.wrapping_mul(2).wrapping_add(k)));
    (half(0) + half(1) / 4_294_967_296.0) / 4_294_967_296.0
}

/// How often each token is drawn; a place on the line from 0 to 1 is known to `uncertain`, and what depends on a closer one is not certain.
pub fn counts(p: &[f64], points: &[f64], uncertain: f64) -> Vec<(usize, bool)> {
    let places: Vec<f64> =
        points.iter().enumerate().map(|(j, u)| (j as f64 + u) / points.len() as f64).collect();
    let mut from = 0.0;
    let piece = |p: &f64| {
        let to = from + p;
        let inside = places.iter().filter(|x| (from..to).contains(*x)).count();
        let near = |edge: f64| places.iter().any(|x| (x - edge).abs() <= uncertain);
        // Neither end of the line is in question.
        let in_doubt = near(from) && from > 0.0 || near(to) && 1.0 - to > 1e-12;
        from = to;
        (inside, !in_doubt)
    };
    p.iter().map(piece).collect()
}

//! The load-balance loss of a row of router scores, in binary64.

/// w Σ f p, and its gradient, each entry with the magnitude of its terms.
pub fn row(scores: &[f64], load: &[f64], w: f64) -> (f64, Vec<(f64, f64)>) {
    let largest = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
    let total: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
    let p: Vec<f64> = scores.iter().map(|s| (s - largest).exp() / total).collect();
    let mean: f64 = p.iter().zip(load).map(|(p, f)| p * f).sum();
    let slope = |(p, f): (&f64, &f64)| (w * p * (f - mean), (w * p).abs() * (f.abs() + mean.abs()));
    (w * mean, p.iter().zip(load).map(slope).collect())
}

//! Group statistics that filters decide by, over counted members: docs/maths/advantages.md,
//! docs/maths/rewards.md.

/// Population standard deviation.
pub fn std(x: &[f64]) -> f64 {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64).sqrt()
}

/// Whether all values are equal.
pub fn is_constant(x: &[f64]) -> bool {
    x.windows(2).all(|pair| pair[0] == pair[1])
}

/// The fraction of values for which `holds` is true.
pub fn fraction(x: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    x.iter().filter(|x| holds(**x)).count() as f64 / x.len() as f64
}

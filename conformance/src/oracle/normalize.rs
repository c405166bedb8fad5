//! Batch normalisation of weights, docs/maths/correction.md.

/// w / mean; unchanged if the mean is at most 1e-8 or nothing was counted.
pub fn normalize(w: f64, total: f64, count: f64) -> f64 {
    if count <= 0.0 || total / count <= 1e-8 { w } else { w * count / total }
}

//! Sums over a row of logits by their definition, docs/maths/entropy.md.

/// Z = Σ e^y, Σ e^y · y and Σ e^2y for y = (z − max z)/T; each with the sum of what rounding y can change.
pub fn sums(logits: &[f64], temperature: f64) -> [(f64, f64); 3] {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sums = [(0.0, 0.0); 3];
    // A forbidden token has no term.
    for y in logits.iter().map(|z| (z - largest) / temperature).filter(|y| y.is_finite()) {
        let e = y.exp();
        let terms = [(e, 1.0 - y), (e * y, (1.0 - y) * (1.0 - y)), (e * e, 1.0 - 2.0 * y)];
        for (sum, (term, factor)) in sums.iter_mut().zip(terms) {
            sum.0 += term;
            sum.1 += e * factor;
        }
    }
    sums
}

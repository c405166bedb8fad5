//! Analytic pass@k, docs/maths/advantages.md.

/// C(a, k) / C(b, k).
fn choose_ratio(a: f64, b: f64, k: u32) -> f64 {
    if a < f64::from(k) { 0.0 } else { (0..k).map(|i| (a - f64::from(i)) / (b - f64::from(i))).product() }
}

/// pass@k, and the advantages of correct and wrong members, of which there are `c` and `w`; `None` if there
/// are fewer than k. `eps` is added to the deviation.
pub fn group(c: usize, w: usize, k: u32, eps: f64) -> Option<(f64, f64, f64)> {
    let (w, n) = (w as f64, (c + w) as f64);
    if n < f64::from(k) {
        return None;
    }
    // This ratio is 1 − Rbar, used directly because a difference from 1 would lose its digits.
    let fail = choose_ratio(w, n, k);
    let rate = 1.0 - fail;
    let sigma = (rate * fail).sqrt();
    if sigma == 0.0 || c == 0 {
        return Some((rate, 0.0, 0.0));
    }
    let others = choose_ratio(w - 1.0, n - 1.0, k - 1);
    Some((rate, fail / (sigma + eps), (fail - others) / (sigma + eps)))
}

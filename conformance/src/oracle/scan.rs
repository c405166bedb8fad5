//! Masked inclusive running sums of a row.

use super::aggregate::exact_sum;

/// y_t = Σ_{j ≤ t} m_j x_j, or from the other end if `suffix`.
pub fn row(values: &[f64], live: &[bool], suffix: bool) -> Vec<f64> {
    let n = values.len();
    let mut sums: Vec<f64> = Vec::with_capacity(n);
    let order: Vec<usize> = if suffix { (0..n).rev().collect() } else { (0..n).collect() };
    // In short rows each sum is computed from scratch; in long ones a single running sum is used, whose own
    // error is far below the allowance.
    let mut running = 0.0;
    for (k, &i) in order.iter().enumerate() {
        running += if live[i] { values[i] } else { 0.0 };
        let sum = if n <= 300 {
            exact_sum(order[..=k].iter().filter(|j| live[**j]).map(|j| values[*j]))
        } else {
            running
        };
        sums.push(sum);
    }
    if suffix {
        sums.reverse();
    }
    sums
}

//! dL/dz from dL/dlogp and dL/dH, docs/maths/conventions.md, docs/maths/entropy.md.

use super::statistics::Softmax;

/// dL/dz for c = dL/dlogp and h = dL/dH at temperature T.
pub fn row(softmax: &Softmax, label: usize, (c, h): (f64, f64), temperature: f64) -> Vec<f64> {
    let (entropy, miss) = (softmax.entropy(), softmax.miss(label));
    let at = |(v, p): (usize, &f64)| {
        let score = if v == label { miss } else { -p };
        let of_entropy = if *p == 0.0 { 0.0 } else { p * (softmax.logp[v] + entropy) };
        (c * score - h * of_entropy) / temperature
    };
    softmax.p.iter().enumerate().map(at).collect()
}

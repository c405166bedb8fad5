//! A small model and what it reads; gradients and finite differences.

use lockstep_trainer::model::{Shape, Weights};
use lockstep_trainer::policy::Sequence;

pub(crate) fn shape() -> Shape {
    Shape {
        vocab: 7,
        context: 16,
        layers: 2,
        width: 16,
        heads: 4,
        experts: 8,
        top_k: 2,
        hidden: 8,
        critic: false,
    }
}

pub(crate) fn sequences() -> Vec<Sequence> {
    let sequence =
        |prompt: &[u32], response: &[u32]| Sequence { prompt: prompt.to_vec(), response: response.to_vec() };
    vec![
        sequence(&[1, 2, 3], &[4, 5, 0]),
        sequence(&[6], &[2, 2, 3, 4, 0]),
        sequence(&[3, 3, 3, 1], &[0]),
        sequence(&[5, 1], &[6, 0]),
        sequence(&[2], &[1]),
    ]
}

/// Checks gradients against central differences of `loss`, in every tensor.
pub(crate) fn gradients_agree(weights: &Weights, grads: &[Vec<f32>], loss: impl Fn(&Weights) -> f64) {
    for (tensor, weight) in weights.iter().enumerate() {
        assert_eq!(grads[tensor].len(), weight.values.len());
        // The entry with the largest gradient: small ones drown in f32 rounding.
        let largest = (0..weight.values.len())
            .max_by(|&a, &b| grads[tensor][a].abs().total_cmp(&grads[tensor][b].abs()));
        let at = largest.unwrap();
        let gradient = f64::from(grads[tensor][at]);
        assert!(gradient != 0.0, "{}: no gradient", weight.name);
        let step = 1e-3_f32;
        let moved = |by: f32| {
            let mut moved = weights.clone();
            moved[tensor].values[at] += by;
            loss(&moved)
        };
        let difference = (moved(step) - moved(-step)) / f64::from(2.0 * step);
        assert!(
            (gradient - difference).abs() < 0.03 * gradient.abs().max(0.1),
            "{}[{at}]: gradient {gradient}, difference {difference}",
            weight.name
        );
    }
}

//! Gradients and finite differences.

use lockstep_trainer::model::Weights;

/// Checks gradients against central differences of `loss`, in every tensor.
pub(crate) fn agree(weights: &Weights, grads: &[Vec<f32>], loss: impl Fn(&Weights) -> f64) {
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

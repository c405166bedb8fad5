//! AdamW over plain vectors. candle-nn's optimiser keeps its moments private, and a checkpoint without them
//! cannot resume with the same bits.

use serde::{Deserialize, Serialize};

use crate::model::Weights;

/// AdamW's hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamConfig {
    /// Decay of the first moment (mean of the gradients).
    pub beta1: f32,
    /// Decay of the second moment (mean of the squared gradients).
    pub beta2: f32,
    /// Added to the square root of the second moment.
    pub eps: f32,
    /// Decoupled weight decay, multiplied by the learning rate.
    pub weight_decay: f32,
    /// Gradient-norm clip: gradients whose global norm (over all tensors) exceeds this are scaled down to it.
    pub max_norm: f32,
}

/// The optimiser's state: both moments of every weight, and the number of updates so far.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// First moments, one vector per tensor.
    pub first: Vec<Vec<f32>>,
    /// Second moments, one vector per tensor.
    pub second: Vec<Vec<f32>>,
    /// Updates so far.
    pub updates: u64,
}

impl AdamW {
    /// Creates a state whose moments are all zero.
    pub fn new(weights: &Weights) -> Self {
        let zeros: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; w.values.len()]).collect();
        Self { first: zeros.clone(), second: zeros, updates: 0 }
    }

    /// Performs one update in place. Returns the gradient norm before clipping.
    pub fn update(
        &mut self,
        config: &AdamConfig,
        rate: f32,
        weights: &mut Weights,
        grads: &[Vec<f32>],
    ) -> f32 {
        self.updates += 1;
        let squares: f64 = grads.iter().flatten().map(|&g| f64::from(g) * f64::from(g)).sum();
        let norm = squares.sqrt() as f32;
        let limit = if norm > config.max_norm { config.max_norm / norm } else { 1.0 };
        let power = self.updates.min(1 << 20) as i32;
        let debias1 = 1.0 - config.beta1.powi(power);
        let debias2 = 1.0 - config.beta2.powi(power);
        for (((w, g), m), v) in weights.iter_mut().zip(grads).zip(&mut self.first).zip(&mut self.second) {
            // Gains and other vectors have no weight decay.
            let decay = if w.dims.len() > 1 { 1.0 - rate * config.weight_decay } else { 1.0 };
            for (((w, g), m), v) in w.values.iter_mut().zip(g).zip(m).zip(v) {
                let g = g * limit;
                *m = config.beta1 * *m + (1.0 - config.beta1) * g;
                *v = config.beta2 * *v + (1.0 - config.beta2) * g * g;
                *w = *w * decay - rate * (*m / debias1) / ((*v / debias2).sqrt() + config.eps);
            }
        }
        norm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Weight;

    #[test]
    fn two_updates_by_hand() {
        let config = AdamConfig { beta1: 0.5, beta2: 0.75, eps: 0.0, weight_decay: 0.5, max_norm: 4.0 };
        let mut weights = vec![Weight { name: "w".into(), dims: vec![1, 1], values: vec![1.0] }];
        let mut adam = AdamW::new(&weights);
        // Clipped to 4; m = 2 and v = 4, debiased to 4 and 16: the step equals the learning rate, after the
        // decay to 0.95.
        assert_eq!(adam.update(&config, 0.1, &mut weights, &[vec![8.0]]), 8.0);
        assert!((weights[0].values[0] - (0.95 - 0.1)).abs() < 1e-6);
        // m = 0, so only the weight decay acts: 0.85 * 0.95; v = 3 + 1 = 4.
        adam.update(&config, 0.1, &mut weights, &[vec![-2.0]]);
        assert_eq!(adam.first[0][0], 0.0);
        assert_eq!(adam.second[0][0], 4.0);
        assert!((weights[0].values[0] - 0.85 * 0.95).abs() < 1e-6);
    }

    #[test]
    fn vectors_are_not_decayed() {
        let config = AdamConfig { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 1.0, max_norm: 1.0 };
        let mut weights = vec![Weight { name: "gain".into(), dims: vec![1], values: vec![1.0] }];
        AdamW::new(&weights).update(&config, 0.1, &mut weights, &[vec![0.0]]);
        assert_eq!(weights[0].values, [1.0]);
    }
}

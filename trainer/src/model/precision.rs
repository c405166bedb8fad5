//! The precisions that a model is run in: binary32, rounded where an engine or a trainer of that precision
//! would round.

use std::borrow::Cow;
use std::fmt;

use anyhow::Result;
use candle_core::{CpuStorage, CustomOp1, DType, Layout, Tensor};
use clap::ValueEnum;
use float8::F8E4M3;
use serde::{Deserialize, Serialize};

use super::shape::{Weight, Weights, round_to_bf16};
use super::softmax::values;
use crate::cli::ValueName;

/// What is rounded. Every precision contains the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Nothing: binary32
    #[default]
    F32,
    /// Weights, to bf16
    Bf16Weights,
    /// Residual stream and logits too, to bf16
    Bf16,
    /// The factors of the linear layers of attention and experts too, to fp8 (e4m3); router and head stay in
    /// bf16
    Fp8,
}

/// The precision that the policy runs in at both ends of a run, in the manner of Jet-RL (2601.14243): where
/// they agree, training is on-policy up to the engine's own arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrecisionFlow {
    /// The precision that the policy is rounded to for sampling.
    #[serde(rename = "rollout_precision", skip_serializing_if = "PrecisionFlow::is_default_rollout")]
    pub rollout: Precision,
    /// The precision of the trainer's forward pass.
    #[serde(rename = "train_precision", skip_serializing_if = "PrecisionFlow::is_default_train")]
    pub train: Precision,
}

impl Default for PrecisionFlow {
    fn default() -> Self {
        Self { rollout: Precision::Bf16Weights, train: Precision::F32 }
    }
}

impl PrecisionFlow {
    /// One precision at both ends.
    pub fn unified(precision: Precision) -> Self {
        Self { rollout: precision, train: precision }
    }

    /// Whether both ends run in the same precision.
    pub fn agrees(self) -> bool {
        self.rollout == self.train
    }

    fn is_default_rollout(precision: &Precision) -> bool {
        *precision == Self::default().rollout
    }

    fn is_default_train(precision: &Precision) -> bool {
        *precision == Self::default().train
    }
}

impl fmt::Display for PrecisionFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rollout, train] = [self.rollout, self.train].map(|end| end.name());
        match self.agrees() {
            true => write!(f, "{rollout} at both ends"),
            false => write!(f, "rollouts {rollout}, training {train}: the ends differ"),
        }
    }
}

/// The weights that fp8 rounds, by the end of their names.
const FP8: [&str; 6] = ["attention.q", "attention.k", "attention.v", "attention.out", "moe.up", "moe.down"];
/// The largest number of e4m3.
const LARGEST: f32 = 448.0;

impl Precision {
    /// The weights as this precision holds them. A trainer takes its gradient there and applies it to the
    /// unrounded ones: straight through the rounding.
    ///
    /// In fp8 every matrix has one scale. That is our reading of Jet-RL (arXiv 2601.14243), which has one for
    /// each block of 128 × 128: the same up to a width of 128.
    pub fn round(self, weights: &Weights) -> Cow<'_, Weights> {
        if self == Self::F32 {
            return Cow::Borrowed(weights);
        }
        let mut rounded = round_to_bf16(weights);
        let is_fp8 = |w: &&mut Weight| FP8.iter().any(|name| w.name.ends_with(name));
        for w in rounded.iter_mut().filter(|w| self == Self::Fp8 && is_fp8(w)) {
            let matrix = w.dims.iter().rev().take(2).product();
            w.values.chunks_mut(matrix).for_each(round_to_e4m3);
        }
        Cow::Owned(rounded)
    }

    /// The residual stream, or logits; candle rounds their gradients too.
    pub(super) fn stream(self, x: Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::F32 | Self::Bf16Weights => x,
            Self::Bf16 | Self::Fp8 => x.to_dtype(DType::BF16)?.to_dtype(DType::F32)?,
        })
    }

    /// The input of a linear layer, one scale for each row: in Jet-RL one for each 128 numbers of a row.
    pub(super) fn input(self, x: &Tensor) -> Result<Tensor> {
        Ok(if self == Self::Fp8 { x.contiguous()?.apply_op1(E4m3)? } else { x.clone() })
    }

    /// What pass@1 is sampled from in this precision.
    pub fn policy(self) -> &'static str {
        match self {
            Self::F32 => "the weights as they are",
            Self::Bf16Weights => "the weights rounded to bf16",
            Self::Bf16 => "the policy run in bf16",
            Self::Fp8 => "the policy run in fp8",
        }
    }
}

/// Rounds numbers to e4m3 and back, ties to even. Their common scale is the smallest power of two at which
/// the largest fits (our reading): scaling is then exact, and only what is small underflows. Numbers that are
/// not finite stay so.
fn round_to_e4m3(block: &mut [f32]) {
    let largest = block.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    if largest == 0.0 || largest.is_infinite() {
        return;
    }
    let mut scale = 1.0;
    while largest > LARGEST * scale {
        scale *= 2.0;
    }
    // Not down to 0, by which nothing can be divided.
    while largest <= LARGEST * scale / 2.0 && scale > f32::MIN_POSITIVE {
        scale /= 2.0;
    }
    block.iter_mut().for_each(|x| *x = F8E4M3::from_f32(*x / scale).to_f32() * scale);
}

/// [`round_to_e4m3`] of every row; the gradient goes straight through.
struct E4m3;

impl CustomOp1 for E4m3 {
    fn name(&self) -> &'static str {
        "e4m3"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, candle_core::Shape)> {
        let mut y = values(storage, layout)?.to_vec();
        y.chunks_mut(layout.dims().last().copied().unwrap_or(1)).for_each(round_to_e4m3);
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some(grad.clone()))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    fn rounded<const N: usize>(mut block: [f32; N]) -> [f32; N] {
        round_to_e4m3(&mut block);
        block
    }

    #[test]
    fn e4m3_has_its_largest_and_smallest_numbers_and_rounds_ties_to_even() {
        let small = 2_f32.powi(-9);
        // 448 fixes the scale at 1. In binades above 2^-6 steps are 1/8 of the power of two below.
        assert_eq!(rounded([448.0, 447.0, -431.0, 432.0]), [448.0, 448.0, -416.0, 448.0]);
        assert_eq!(rounded([448.0, 1.0625, 1.1875, -1.1]), [448.0, 1.0, 1.25, -1.125]);
        // Below, steps are 2^-9.
        assert_eq!(rounded([448.0, small, 0.5 * small, 0.51 * small]), [448.0, small, 0.0, small]);
        assert_eq!(
            rounded([448.0, 1.5 * small, 2.5 * small, 7.4 * small]),
            [448.0, 2.0 * small, 2.0 * small, 7.0 * small]
        );
        // All of them, both ways: 7 subnormals, and 15 binades of 8 but for NaN.
        let mut all: Vec<f32> = (1..8).map(|m| m as f32 * small).collect();
        all.extend((-6..9).flat_map(|e| (8..16).map(move |m| m as f32 * 2_f32.powi(e - 3))));
        assert_eq!((all.pop(), all.len()), (Some(480.0), 126));
        let mut same = all.clone();
        round_to_e4m3(&mut same);
        assert_eq!(same, all);
        for (i, pair) in all.windows(2).enumerate() {
            let middle = (pair[0] + pair[1]) / 2.0;
            // The code of `pair[0]` is i + 1.
            let even = pair[usize::from(i % 2 == 0)];
            let [_, below, tie, above] = rounded([448.0, middle.next_down(), middle, middle.next_up()]);
            assert_eq!([below, tie, above], [pair[0], even, pair[1]]);
        }
    }

    #[test]
    fn the_scale_is_a_power_of_two() {
        // 3 fits at 2^-7: 3·128 = 384, and 0.1·128 = 12.8 becomes 13.
        assert_eq!(rounded([3.0, 0.1]), [3.0, 0.101_562_5]);
        // 464 does not fit at 1: 464/2 = 232 is between 224 and 240.
        assert_eq!(rounded([464.0, -1.0]), [448.0, -1.0]);
        assert_eq!(rounded([1e-40, 0.0, -1e-41]).map(f32::signum), [1.0, 1.0, -1.0]);
        assert_eq!(rounded([f32::from_bits(1), 0.0]), [0.0, 0.0]);
        assert!(rounded([f32::MAX, 1.0]).into_iter().all(f32::is_finite));
        assert_eq!(rounded([0.0, -0.0]), [0.0, 0.0]);
        assert_eq!(rounded([f32::INFINITY, 1.1]), [f32::INFINITY, 1.1]);
        assert!(rounded([f32::NAN, 1.0])[0].is_nan());
    }

    #[test]
    fn rows_have_their_own_scale_and_gradients_pass() {
        let x = Var::from_slice(&[3.0_f32, 0.1, 448.0, 0.1], (2, 2), &Device::Cpu).unwrap();
        let y = Precision::Fp8.input(&x).unwrap();
        assert_eq!(
            y.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
            [3.0, 0.101_562_5, 448.0, 0.101_562_5]
        );
        let coefficients = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], (2, 2), &Device::Cpu).unwrap();
        let grads = (y * coefficients).unwrap().sum_all().unwrap().backward().unwrap();
        let grad: Vec<f32> = grads.get(&x).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        assert_eq!(grad, [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn fp8_rounds_the_weights_of_linear_layers_each_expert_on_its_own() {
        let weight = |name: &str, dims: &[usize], values: &[f32]| Weight {
            name: name.into(),
            dims: dims.into(),
            values: values.into(),
        };
        let weights = vec![
            weight("layer0.moe.router", &[1, 2], &[3.0, 0.1]),
            weight("layer0.moe.up", &[2, 1, 2], &[3.0, 0.1, 448.0, 0.1]),
        ];
        let bf16 = 0.100_097_656;
        assert_eq!(*Precision::F32.round(&weights), weights);
        assert_eq!(Precision::Bf16.round(&weights)[1].values, [3.0, bf16, 448.0, bf16]);
        let fp8 = Precision::Fp8.round(&weights);
        assert_eq!(fp8[0].values, [3.0, bf16]);
        assert_eq!(fp8[1].values, [3.0, 0.101_562_5, 448.0, 0.101_562_5]);
    }

    #[test]
    fn the_ends_of_a_run_agree_or_not() {
        assert_eq!(
            PrecisionFlow::default().to_string(),
            "rollouts bf16-weights, training f32: the ends differ"
        );
        let fp8 = PrecisionFlow::unified(Precision::Fp8);
        assert!(fp8.agrees() && !PrecisionFlow::default().agrees());
        assert_eq!(fp8.to_string(), "fp8 at both ends");
    }
}

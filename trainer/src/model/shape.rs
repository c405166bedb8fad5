//! The model's sizes, and its weights as plain numbers: weights are trained, saved, rounded and compared on
//! the host.

use half::bf16;
use serde::{Deserialize, Serialize};

use crate::random::{Phase, Stream};

/// The sizes of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Maximum number of tokens in a sequence.
    pub context: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Experts per layer.
    pub experts: usize,
    /// Experts that each token is sent to.
    pub top_k: usize,
    /// Hidden units per expert.
    pub hidden: usize,
    /// Whether there is a value head beside the output head.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub critic: bool,
}

/// How a tensor starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Every entry is this number.
    At(f32),
    /// Uniform around 0 with this standard deviation.
    Spread(f32),
}

/// One weight tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Its name, unique in the model.
    pub name: String,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its values, row-major.
    pub values: Vec<f32>,
}

/// All weights of a model, in the order of [`Shape::tensors`].
pub type Weights = Vec<Weight>;

impl Shape {
    /// Name, dimensions and start of every tensor. The value head is the last one, so that it changes no
    /// other tensor's random stream; it starts at 0, the value of knowing nothing.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>, Start)> {
        use Start::{At, Spread};
        let (d, h, e) = (self.width, self.hidden, self.experts);
        let inward = (d as f32).powf(-0.5);
        // Projections that write into the residual stream start smaller, so that depth does not inflate it.
        let depth = (2.0 * self.layers as f32).powf(-0.5);
        let mut list = vec![
            ("embed".into(), vec![self.vocab, d], Spread(0.5)),
            ("position".into(), vec![self.context, d], Spread(0.5)),
        ];
        for layer in 0..self.layers {
            for (name, dims, start) in [
                ("attention.norm", vec![d], At(1.0)),
                ("attention.q", vec![d, d], Spread(inward)),
                ("attention.k", vec![d, d], Spread(inward)),
                ("attention.v", vec![d, d], Spread(inward)),
                ("attention.out", vec![d, d], Spread(inward * depth)),
                ("moe.norm", vec![d], At(1.0)),
                ("moe.router", vec![d, e], Spread(inward)),
                ("moe.up", vec![e, d, h], Spread(inward)),
                ("moe.down", vec![e, h, d], Spread((h as f32).powf(-0.5) * depth)),
            ] {
                list.push((format!("layer{layer}.{name}"), dims, start));
            }
        }
        list.extend([
            ("norm".into(), vec![d], At(1.0)),
            ("head".into(), vec![d, self.vocab], Spread(inward)),
        ]);
        list.extend(self.critic.then(|| ("value".into(), vec![d, 1], At(0.0))));
        list
    }

    /// The initial weights, with one random stream per tensor.
    pub fn init(&self, seed: u64) -> Weights {
        let fill = |(index, (name, dims, start)): (usize, (String, Vec<usize>, Start))| {
            let mut stream = Stream::new(seed, Phase::Init, 0, index as u64);
            let mut draw = || match start {
                Start::At(value) => value,
                Start::Spread(std) => (2.0 * stream.unit() - 1.0) * 3_f32.sqrt() * std,
            };
            let values = (0..dims.iter().product()).map(|_| draw()).collect();
            Weight { name, dims, values }
        };
        self.tensors().into_iter().enumerate().map(fill).collect()
    }
}

/// Rounds every weight to bf16 and back: the weights of an inference engine that stores them in bf16.
pub fn round_to_bf16(weights: &Weights) -> Weights {
    let round = |w: &Weight| Weight {
        values: w.values.iter().map(|&x| bf16::from_f32(x).to_f32()).collect(),
        ..w.clone()
    };
    weights.iter().map(round).collect()
}

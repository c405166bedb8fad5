//! The model: a decoder-only transformer with a mixture of experts in every layer, built on candle.
//!
//! Activations are time-major: row `t * rows + r` of a `[T * rows, width]` tensor is position `t` of sequence
//! `r`. Splitting into heads is then a reshape, a key-value cache grows at its end, and the rows of one
//! sampled position are a contiguous slice.

mod attention;
mod moe;
mod norm;
mod precision;
mod routes;
mod shape;
mod softmax;

use anyhow::{Context, Result};
use candle_core::{D, Device, Tensor, Var};

pub use attention::Cache;
pub use precision::{Precision, PrecisionFlow};
pub use routes::{LayerRoutes, Routes, router};
pub use shape::{Shape, Start, Weight, Weights, round_to_bf16};

use attention::Attention;
use moe::Moe;
use norm::RmsNorm;
use routes::Gate;

struct Layer {
    attention: Attention,
    moe: Moe,
}

/// How a model is run, apart from its weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Use Lockstep's router, which records and replays, instead of candle's.
    pub lockstep_router: bool,
    /// How activations are rounded. The weights are rounded before: see [`Precision::round`].
    pub precision: Precision,
}

/// Weights as candle tensors, ready to run.
pub struct Model {
    shape: Shape,
    gate: Option<Gate>,
    precision: Precision,
    /// All weights in the order of [`Shape::tensors`], so that gradients can be read back.
    all: Vec<Tensor>,
    embed: Tensor,
    position: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Tensor,
    /// The value head, if the model is a critic too.
    value: Option<Tensor>,
}

impl Model {
    /// Builds a model for inference: no graph is recorded.
    pub fn frozen(shape: &Shape, weights: &Weights) -> Result<Self> {
        Self::build(shape, weights, |w| Ok(Tensor::from_slice(&w.values, w.dims.as_slice(), &Device::Cpu)?))
    }

    /// Builds a model whose weights have gradients.
    pub fn trainable(shape: &Shape, weights: &Weights) -> Result<Self> {
        let var = |w: &Weight| Ok(Var::from_slice(&w.values, w.dims.as_slice(), &Device::Cpu)?.into_inner());
        Self::build(shape, weights, var)
    }

    fn build(shape: &Shape, weights: &Weights, tensor: impl Fn(&Weight) -> Result<Tensor>) -> Result<Self> {
        let all: Vec<Tensor> = weights.iter().map(tensor).collect::<Result<_>>()?;
        let mut rest = all.iter().cloned();
        let mut next = || rest.next().context("too few weight tensors for this shape");
        let (embed, position) = (next()?, next()?);
        let mut layers = Vec::new();
        for _ in 0..shape.layers {
            layers.push(Layer {
                attention: Attention::new(
                    shape.heads,
                    RmsNorm::new(next()?),
                    [next()?, next()?, next()?, next()?],
                ),
                moe: Moe::new(shape.top_k, RmsNorm::new(next()?), next()?, next()?, next()?),
            });
        }
        let (norm, head) = (RmsNorm::new(next()?), next()?);
        let value = shape.critic.then(next).transpose()?;
        let shape = shape.clone();
        let precision = Precision::F32;
        Ok(Self { shape, gate: None, precision, all, embed, position, layers, norm, head, value })
    }

    /// Returns the same model, run in this manner.
    pub fn run_as(self, manner: Manner) -> Result<Self> {
        let Shape { experts, top_k, .. } = self.shape;
        let gate = manner.lockstep_router.then(|| Gate::new(experts, top_k)).transpose()?;
        Ok(Self { gate, precision: manner.precision, ..self })
    }

    /// The model's sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether the model can record and replay routing.
    pub fn records(&self) -> bool {
        self.gate.is_some()
    }

    /// Creates an empty cache for `rows` sequences.
    pub fn cache(&self, rows: usize) -> Result<Cache> {
        Cache::new(&self.shape, rows)
    }

    /// Runs the model on `tokens` (`[T * rows]`, time-major) and returns the last layer's output,
    /// `[T * rows, width]`. With a cache, the tokens continue what it holds. `routes` records the routing of
    /// these rows and says which routing to replay.
    pub fn hidden(
        &self,
        tokens: &[u32],
        rows: usize,
        mut cache: Option<&mut Cache>,
        mut routes: Option<&mut Routes>,
    ) -> Result<Tensor> {
        if routes.is_some() && self.gate.is_none() {
            return routes::no_router();
        }
        let start = cache.as_ref().map_or(0, |c| c.len());
        let positions: Vec<u32> = (0..tokens.len()).map(|i| (start + i / rows) as u32).collect();
        let mut x = (self.embed.index_select(&indices(tokens)?, 0)?
            + self.position.index_select(&indices(&positions)?, 0)?)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let (own, stream) = (cache.as_deref_mut().map(|c| (c, index)), self.precision.stream(x)?);
            x = layer.attention.add_to(&stream, rows, own, self.precision)?;
            x = self.precision.stream(x)?;
            let routes = routes.as_deref_mut();
            x = layer.moe.add_to(&x, self.gate.as_ref(), index, routes, self.precision)?;
        }
        x = self.precision.stream(x)?;
        if let Some(cache) = cache {
            cache.advance(tokens.len() / rows);
        }
        self.norm.forward(&x)
    }

    /// Next-token logits for each given row of [`Self::hidden`]'s output.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.precision.stream(hidden.matmul(&self.head)?)
    }

    /// Next-token log-probabilities for each given row of [`Self::hidden`]'s output.
    pub fn log_probs(&self, hidden: &Tensor) -> Result<Tensor> {
        Self::normalized(&self.logits(hidden)?)
    }

    /// The value of each given row of [`Self::hidden`]'s output, `[rows]`, if the model has a value head.
    pub fn values(&self, hidden: &Tensor) -> Result<Option<Tensor>> {
        self.value.as_ref().map(|head| Ok(hidden.matmul(head)?.squeeze(1)?)).transpose()
    }

    /// Turns logits into log-probabilities.
    pub fn normalized(logits: &Tensor) -> Result<Tensor> {
        let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
        Ok(shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(D::Minus1)?.log()?)?)
    }

    /// The gradients of `sum(output * coefficients)` plus the same sum for each of `others`, in the order of
    /// [`Shape::tensors`]. A weight that none of these depend on has gradient zero.
    pub fn gradients(
        &self,
        output: &Tensor,
        coefficients: &[f32],
        others: &[(&Tensor, Vec<f32>)],
    ) -> Result<Vec<Vec<f32>>> {
        let product = |output: &Tensor, coefficients: &[f32]| -> Result<Tensor> {
            let coefficients = Tensor::from_slice(coefficients, output.shape(), &Device::Cpu)?;
            Ok((output * coefficients)?.sum_all()?)
        };
        let mut sum = product(output, coefficients)?;
        for (output, coefficients) in others {
            sum = (sum + product(output, coefficients)?)?;
        }
        let grads = sum.backward()?;
        let read = |t: &Tensor| match grads.get(t) {
            Some(g) => Ok(g.flatten_all()?.to_vec1()?),
            None => Ok(vec![0.0; t.elem_count()]),
        };
        self.all.iter().map(read).collect()
    }
}

/// Indices as a tensor.
fn indices(values: &[u32]) -> Result<Tensor> {
    Ok(Tensor::from_slice(values, values.len(), &Device::Cpu)?)
}

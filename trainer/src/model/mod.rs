//! The model: a decoder-only transformer with a mixture of experts in every layer, on candle.
//!
//! Activations are time-major: row `t * rows + r` of a `[T * rows, width]` tensor is position `t` of sequence `r`. Heads are
//! then a reshape, a key-value cache grows at its end, and sampling one position for all rows is a contiguous slice.

mod attention;
mod moe;
mod norm;
mod shape;
mod softmax;

use anyhow::{Context, Result};
use candle_core::{D, Device, Tensor, Var};

pub use attention::Cache;
pub use shape::{Shape, Weight, Weights, round_to_bf16};

use attention::Attention;
use moe::Moe;
use norm::RmsNorm;

struct Layer {
    attention: Attention,
    moe: Moe,
}

/// Weights as candle tensors, ready to run.
pub struct Model {
    shape: Shape,
    /// Every weight, in the order of [`Shape::tensors`], so that gradients can be read back.
    all: Vec<Tensor>,
    embed: Tensor,
    position: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Tensor,
}

impl Model {
    /// A model that is only run: no graph is recorded.
    pub fn frozen(shape: &Shape, weights: &Weights) -> Result<Self> {
        Self::build(shape, weights, |w| Ok(Tensor::from_slice(&w.values, w.dims.as_slice(), &Device::Cpu)?))
    }

    /// A model whose weights have gradients.
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
        Ok(Self { shape: shape.clone(), all, embed, position, layers, norm, head })
    }

    /// An empty cache for `rows` sequences.
    pub fn cache(&self, rows: usize) -> Result<Cache> {
        Cache::new(&self.shape, rows)
    }

    /// The last layer's output `[T * rows, width]` for `tokens` (`[T * rows]`, time-major), the continuation of what the
    /// cache holds when there is one.
    pub fn hidden(&self, tokens: &[u32], rows: usize, mut cache: Option<&mut Cache>) -> Result<Tensor> {
        let start = cache.as_ref().map_or(0, |c| c.len());
        let positions: Vec<u32> = (0..tokens.len()).map(|i| (start + i / rows) as u32).collect();
        let mut x = (self.embed.index_select(&indices(tokens)?, 0)?
            + self.position.index_select(&indices(&positions)?, 0)?)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.attention.add_to(&x, rows, cache.as_deref_mut().map(|c| (c, index)))?;
            x = layer.moe.add_to(&x)?;
        }
        if let Some(cache) = cache {
            cache.advance(tokens.len() / rows);
        }
        self.norm.forward(&x)
    }

    /// Log-probabilities over the vocabulary of what follows each given row of [`Self::hidden`]'s output.
    pub fn log_probs(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = hidden.matmul(&self.head)?;
        let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
        Ok(shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(D::Minus1)?.log()?)?)
    }

    /// The gradients of `sum(output * coefficients)`, in the order of [`Shape::tensors`]. A weight that the output does not
    /// depend on has gradient zero.
    pub fn gradients(&self, output: &Tensor, coefficients: &[f32]) -> Result<Vec<Vec<f32>>> {
        let coefficients = Tensor::from_slice(coefficients, coefficients.len(), &Device::Cpu)?;
        let grads = (output * coefficients)?.sum_all()?.backward()?;
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

//! Causal self-attention, and the key-value cache that makes sampling linear in the length.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use super::norm::RmsNorm;
use super::precision::Precision;
use super::shape::Shape;
use super::softmax::softmax;

/// Keys and values of the positions run so far, `[context, rows * heads, width / heads]` for each layer.
pub struct Cache {
    len: usize,
    heads: usize,
    layers: Vec<[Tensor; 2]>,
}

impl Cache {
    pub(super) fn new(shape: &Shape, rows: usize) -> Result<Self> {
        let dims = (shape.context, rows * shape.heads, shape.width / shape.heads);
        let zeros = || Tensor::zeros(dims, DType::F32, &Device::Cpu);
        let layers = (0..shape.layers).map(|_| Ok([zeros()?, zeros()?])).collect::<Result<_>>()?;
        Ok(Self { len: 0, heads: shape.heads, layers })
    }

    /// The cache of the sequences `rows`, any of them any number of times, in this order.
    pub fn select(&self, rows: &[u32]) -> Result<Self> {
        let heads = self.heads as u32;
        let columns: Vec<u32> = rows.iter().flat_map(|row| row * heads..(row + 1) * heads).collect();
        let columns = Tensor::from_vec(columns, rows.len() * self.heads, &Device::Cpu)?;
        let own = |all: &Tensor| all.index_select(&columns, 1);
        let layers = self.layers.iter().map(|[k, v]| Ok([own(k)?, own(v)?])).collect::<Result<_>>()?;
        Ok(Self { layers, ..*self })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn advance(&mut self, positions: usize) {
        self.len += positions;
    }

    /// Appends the keys or values of new positions and returns all of them so far.
    fn extend(&mut self, layer: usize, which: usize, new: &Tensor) -> Result<Tensor> {
        let all = &self.layers[layer][which];
        all.slice_set(&new.contiguous()?, 0, self.len)?;
        Ok(all.narrow(0, 0, self.len + new.dim(0)?)?)
    }
}

pub(super) struct Attention {
    heads: usize,
    norm: RmsNorm,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
}

impl Attention {
    pub(super) fn new(heads: usize, norm: RmsNorm, [q, k, v, out]: [Tensor; 4]) -> Self {
        Self { heads, norm, q, k, v, out }
    }

    /// Returns x + attention(norm(x)).
    pub(super) fn add_to(
        &self,
        x: &Tensor,
        rows: usize,
        cache: Option<(&mut Cache, usize)>,
        precision: Precision,
    ) -> Result<Tensor> {
        let (tokens, width) = x.dims2()?;
        let head = width / self.heads;
        let y = precision.input(&self.norm.forward(x)?)?;
        let split = |w: &Tensor| -> Result<Tensor> {
            Ok(y.matmul(w)?.reshape((tokens / rows, rows * self.heads, head))?)
        };
        let (q, mut k, mut v) = (split(&self.q)?, split(&self.k)?, split(&self.v)?);
        if let Some((cache, layer)) = cache {
            k = cache.extend(layer, 0, &k)?;
            v = cache.extend(layer, 1, &v)?;
        }
        let scores = q.transpose(0, 1)?.matmul(&k.permute((1, 2, 0))?)?;
        let weights = softmax(&scores, (head as f32).powf(-0.5), true)?;
        let mixed = weights.matmul(&v.transpose(0, 1)?)?.transpose(0, 1)?.reshape((tokens, width))?;
        Ok((x + precision.input(&mixed)?.matmul(&self.out)?)?)
    }
}

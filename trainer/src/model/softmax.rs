//! Softmax of scaled rows with built-in causal masking. candle's composed softmax passes over the scores a
//! dozen times, forward and backward, and its fused one has no gradient; on these small models it took most
//! of a step's time.

use anyhow::Result;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Shape, Tensor};

/// Row `i` of a `[.., rows, columns]` tensor sees `columns - rows + i + 1` columns if `causal`, otherwise all
/// of them.
struct Softmax {
    scale: f32,
    causal: bool,
}

/// The softmax of `scale * x` over the last dimension.
pub(super) fn softmax(x: &Tensor, scale: f32, causal: bool) -> Result<Tensor> {
    Ok(x.contiguous()?.apply_op1(Softmax { scale, causal })?)
}

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        "scaled-softmax"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let dims = layout.dims();
        let (columns, rows) = match *dims {
            [.., rows, columns] => (columns, rows),
            _ => candle_core::bail!("softmax of a tensor of rank {}", dims.len()),
        };
        let x = values(storage, layout)?;
        let mut y = vec![0_f32; x.len()];
        for (i, (x, y)) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)).enumerate() {
            let seen = if self.causal { columns - rows + i % rows + 1 } else { columns };
            let max = x[..seen].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for (x, y) in x[..seen].iter().zip(&mut *y) {
                *y = ((x - max) * self.scale).exp();
                sum += *y;
            }
            let inverse = 1.0 / sum;
            y[..seen].iter_mut().for_each(|y| *y *= inverse);
        }
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, y: &Tensor, grad: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some(y.contiguous()?.apply_op2_no_bwd(&grad.contiguous()?, self)?))
    }
}

/// The gradient: y * (g - sum(y * g)) * scale.
impl CustomOp2 for Softmax {
    fn name(&self) -> &'static str {
        "scaled-softmax-backward"
    }

    fn cpu_fwd(
        &self,
        y: &CpuStorage,
        layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let columns = layout.dims().last().copied().unwrap_or(1);
        let (y, grad) = (values(y, layout)?, values(grad, grad_layout)?);
        let mut out = Vec::with_capacity(y.len());
        for (y, g) in y.chunks_exact(columns).zip(grad.chunks_exact(columns)) {
            let dot: f32 = y.iter().zip(g).map(|(y, g)| y * g).sum();
            out.extend(y.iter().zip(g).map(|(y, g)| y * (g - dot) * self.scale));
        }
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// The values of a tensor, which must be contiguous.
pub(super) fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice::<f32>()?[start..end]),
        None => candle_core::bail!("an op of this model on a tensor that is not contiguous"),
    }
}

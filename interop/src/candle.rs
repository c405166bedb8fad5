//! candle 0.11: the loss as a `CustomOp1` whose backward pass is the closed form.

use crate::policy::Tokens;
use crate::{Error, Loss, Policy, policy};
use candle_core::{CpuStorage, CustomOp1, DType, Layout, Shape, Tensor};
use lockstep::{Credit, Device, Recipe, Rollouts};

/// Computes the loss of a batch and, if the recipe has a critic, the critic's loss.
///
/// `backward` of either continues into the tensors in `policy`, whose values replace the columns `logp`,
/// `entropy` and `values`. `policy` is the log-probabilities, `&Tensor`, or a [`Policy`]; all tensors are
/// `[N]` or `[B, T]`, with any strides. F16, BF16 and F64 are cast to F32 in the graph, so that gradients
/// come back in their own type. Loss and dL/dlogp have the bits of [`Recipe::loss`]; with another upstream
/// gradient than 1, the product is rounded once.
///
/// `device` is where Lockstep computes; it changes no bit.
///
/// Errors: what [`Recipe::loss`] refuses; a tensor of another shape, of integers, or on a GPU (by name); a
/// tensor that a term of the recipe needs but that is missing, or one that no term reads.
///
/// candle's CUDA and Metal tensors are refused rather than copied implicitly:
/// `tensor.to_device(&candle_core::Device::Cpu)` copies and keeps the gradient. There is no CUDA pass,
/// because candle builds for CUDA only with nvcc, which this workspace does without; a [plan](lockstep::plan)
/// over device memory needs no copy.
pub fn loss<'a>(
    recipe: &Recipe,
    device: &Device,
    rollouts: &Rollouts<'_>,
    credit: &Credit,
    policy: impl Into<Policy<'a, Tensor>>,
) -> Result<Loss<Tensor>, Error> {
    policy::loss(recipe, device, rollouts, credit, policy.into())
}

impl Tokens for Tensor {
    type Scalar = Tensor;

    fn lengths(&self) -> Vec<usize> {
        self.dims().to_vec()
    }

    fn read(&self, argument: &'static str) -> Result<(Self, Vec<f32>), Error> {
        if !self.device().is_cpu() {
            let got = format!("one on {:?}", self.device().location());
            return Err(Error::argument(argument, "a tensor on candle's CPU (`to_device`)", got));
        }
        if !matches!(self.dtype(), DType::F32 | DType::F16 | DType::BF16 | DType::F64) {
            let got = format!("one of {:?}", self.dtype());
            return Err(Error::argument(argument, "a tensor of F32, F16, BF16 or F64", got));
        }
        let tensor = self.to_dtype(DType::F32)?;
        let values = tensor.flatten_all()?.to_vec1()?;
        Ok((tensor, values))
    }

    fn closed_form(&self, value: f32, gradient: &[f32]) -> Result<Tensor, Error> {
        let gradient = Tensor::from_slice(gradient, self.shape(), self.device())?;
        Ok(self.apply_op1(ClosedForm { value, gradient })?)
    }

    fn add(one: Tensor, other: Tensor) -> Result<Tensor, Error> {
        Ok((one + other)?)
    }
}

/// A loss and its gradient. One pass over borrowed columns computed both before the op runs, because an op
/// owns its data.
struct ClosedForm {
    value: f32,
    gradient: Tensor,
}

impl CustomOp1 for ClosedForm {
    fn name(&self) -> &'static str {
        "lockstep-loss"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![self.value]), Shape::from(())))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, upstream: &Tensor) -> candle_core::Result<Option<Tensor>> {
        upstream.broadcast_mul(&self.gradient).map(Some)
    }
}

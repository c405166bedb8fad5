//! burn 0.22: the loss, built from burn's own differentiable operations on any burn device.

use crate::policy::Tokens;
use crate::{Error, Loss, Policy, policy};
use burn_tensor::{DType, FloatDType, Tensor, TensorData};
use lockstep::{Credit, Device, Recipe, Rollouts};

/// Computes the loss of a batch and, if the recipe has a critic, the critic's loss, each of shape `[1]`.
///
/// `backward` of either continues into the tensors in `policy`, whose values replace the columns `logp`,
/// `entropy` and `values`. `policy` is the log-probabilities, `&Tensor`, or a [`Policy`]; all tensors are
/// `[N]` or `[B, T]`. F16, BF16 and F64 are cast to F32 in the graph, so that gradients come back in their
/// own type. Loss and dL/dlogp have the bits of [`Recipe::loss`]; with another upstream gradient than 1, the
/// product is rounded once.
///
/// `device` is where Lockstep computes; it changes no bit. burn does not expose addresses of its memory: for
/// tensors on a GPU, this waits, reads them (4 bytes a token) and writes their gradients back (4 bytes a
/// token).
///
/// Errors: what [`Recipe::loss`] refuses; a tensor of another shape, a quantised one, or one that burn cannot
/// read (by name); a tensor that a term of the recipe needs but that is missing, or one that no term reads.
///
/// The loss is L + Σ coef·(logp − logp′), where logp′ is logp detached. The sum is 0, whatever the
/// numbers, and its gradient is coef.
pub fn loss<'a, const D: usize>(
    recipe: &Recipe,
    device: &Device,
    rollouts: &Rollouts<'_>,
    credit: &Credit,
    policy: impl Into<Policy<'a, Tensor<D>>>,
) -> Result<Loss<Tensor<1>>, Error> {
    policy::loss(recipe, device, rollouts, credit, policy.into())
}

impl<const D: usize> Tokens for Tensor<D> {
    type Scalar = Tensor<1>;

    fn lengths(&self) -> Vec<usize> {
        self.dims().to_vec()
    }

    fn read(&self, argument: &'static str) -> Result<(Self, Vec<f32>), Error> {
        if !matches!(self.dtype(), DType::F32 | DType::Flex32 | DType::F16 | DType::BF16 | DType::F64) {
            let got = format!("one of {:?}", self.dtype());
            return Err(Error::argument(argument, "a tensor of F32, F16, BF16 or F64", got));
        }
        let mut tensor = self.clone().cast(FloatDType::F32);
        let failed = |error: &dyn std::fmt::Display| Error::Burn(format!("{argument}: {error}"));
        let data = tensor.try_to_data().map_err(|error| failed(&error))?;
        let values: Vec<f32> = data.try_into_vec().map_err(|error| failed(&error))?;
        if !values.iter().all(|x| x.is_finite()) {
            // Under the mask anything may lie, and 0 times it must be 0. A live one is refused by the recipe.
            let other = tensor.clone().is_finite().bool_not();
            tensor = tensor.mask_fill(other, 0.0);
        }
        Ok((tensor, values))
    }

    fn closed_form(&self, value: f32, gradient: &[f32]) -> Result<Tensor<1>, Error> {
        let device = self.device();
        let gradient = TensorData::new(gradient.to_vec(), self.shape());
        let gradient = Tensor::from_data(gradient, (&device, DType::F32));
        let nothing = self.clone() - self.clone().detach();
        Ok((nothing * gradient).sum() + Tensor::from_data([value], (&device, DType::F32)))
    }

    fn add(one: Tensor<1>, other: Tensor<1>) -> Result<Tensor<1>, Error> {
        Ok(one + other)
    }
}

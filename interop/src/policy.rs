//! The parts that candle and burn share: the tensors that receive gradients, their shapes, and the call.

use crate::Error;
use std::ops::Deref;

/// The tensors that receive gradients, all of one shape: `[N]`, packed like the columns of the rollouts, or
/// `[B, T]`, with one sequence per row ([`padded`]).
#[derive(Debug)]
pub struct Policy<'a, T> {
    /// Log-probabilities under the policy being trained, in nats: column `logp`.
    pub logp: &'a T,
    /// Entropies of its distributions, in nats: column `entropy`. Required if the recipe has an entropy term.
    pub entropy: Option<&'a T>,
    /// Values by the critic being trained: column `values`. Required if the recipe has a value loss.
    pub values: Option<&'a T>,
}

impl<T> Clone for Policy<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Policy<'_, T> {}

/// Converts log-probabilities to a policy without entropies or values.
impl<'a, T> From<&'a T> for Policy<'a, T> {
    fn from(logp: &'a T) -> Self {
        Policy { logp, entropy: None, values: None }
    }
}

/// A loss that the framework differentiates. Derefs to Lockstep's own loss: `coef`, `metrics`, `row_loss`,
/// ….
#[derive(Debug)]
pub struct Loss<T> {
    /// Policy, KL and entropy terms, a binary32 scalar. Its gradients are dL/dlogp for `logp` and dL/dH for
    /// `entropy`.
    pub loss: T,
    /// The critic's loss, if the recipe has one; its gradient goes to `values`. It is not part of `loss`: add
    /// it, or step the critic on its own.
    pub value_loss: Option<T>,
    /// The result of [`Recipe::loss`](lockstep::Recipe::loss).
    pub terms: lockstep::Loss,
}

impl<T> Deref for Loss<T> {
    type Target = lockstep::Loss;

    fn deref(&self) -> &lockstep::Loss {
        &self.terms
    }
}

/// Returns the `cu_seqlens` of a padded batch of shape `[rows, tokens]`, whose sequences all have the same
/// length. Mark padding with 0 in column `loss_mask`.
///
/// Errors: more tokens than offsets can count.
///
/// ```
/// assert_eq!(lockstep_interop::padded(3, 4)?, [0, 4, 8, 12]);
/// # Ok::<(), lockstep_interop::Error>(())
/// ```
pub fn padded(rows: usize, tokens: usize) -> Result<Vec<u32>, Error> {
    let all = rows.checked_mul(tokens).filter(|all| u32::try_from(*all).is_ok());
    if all.is_none() {
        return Err(Error::argument("rows", "fewer than 2^32 tokens in all", format!("{rows} × {tokens}")));
    }
    Ok((0..=rows).map(|row| (row * tokens) as u32).collect())
}

#[cfg(any(feature = "candle", feature = "burn"))]
pub(crate) use of_tensors::{Tokens, loss};

#[cfg(any(feature = "candle", feature = "burn"))]
mod of_tensors {
    use super::{Loss, Policy};
    use crate::Error;
    use lockstep::{Call, Column, Credit, Device, Recipe, Rollouts};

    /// A framework's tensor of tokens.
    pub(crate) trait Tokens: Sized {
        /// A scalar that the framework differentiates.
        type Scalar;

        /// Returns the lengths of its axes.
        fn lengths(&self) -> Vec<usize>;

        /// Returns the tensor in binary32, in the graph, and its values on the host.
        fn read(&self, argument: &'static str) -> Result<(Self, Vec<f32>), Error>;

        /// Returns `value` as a scalar whose gradient for these tokens is `gradient`.
        fn closed_form(&self, value: f32, gradient: &[f32]) -> Result<Self::Scalar, Error>;

        /// Returns the sum of two scalars.
        fn add(one: Self::Scalar, other: Self::Scalar) -> Result<Self::Scalar, Error>;
    }

    /// [`Recipe::loss`] with tensors in place of the columns that have a gradient.
    pub(crate) fn loss<T: Tokens>(
        recipe: &Recipe,
        device: &Device,
        rollouts: &Rollouts<'_>,
        credit: &Credit,
        policy: Policy<'_, T>,
    ) -> Result<Loss<T::Scalar>, Error> {
        let read = |argument, tensor: Option<&T>| -> Result<_, Error> {
            let Some(tensor) = tensor else { return Ok(None) };
            check_shape(argument, &tensor.lengths(), rollouts)?;
            tensor.read(argument).map(Some)
        };
        let tensors = [
            read("logp", Some(policy.logp))?,
            read("entropy", policy.entropy)?,
            read("values", policy.values)?,
        ];
        let columns = tensors.each_ref().map(|tensor| tensor.as_ref().map(|(_, values)| &values[..]));
        let terms = compute(recipe, device, rollouts, credit, columns)?;

        let closed_form =
            |of: usize, value: Option<f64>, gradient: Option<&[f32]>| match (&tensors[of], value, gradient) {
                (Some((tensor, _)), Some(value), Some(gradient)) => {
                    tensor.closed_form(value as f32, gradient).map(Some)
                }
                _ => Ok(None),
            };
        let Some(mut loss) = closed_form(0, terms.loss, Some(&terms.coef))? else {
            return Err(lockstep::Error::Recipe("the loss was asked for, but not computed".into()).into());
        };
        // The loss already includes the term's value, so only its gradient is added.
        if let Some(term) = closed_form(1, Some(0.0), terms.entropy.as_ref().map(|term| &term.coef[..]))? {
            loss = T::add(loss, term)?;
        }
        let value = terms.value.as_ref();
        let value_loss = closed_form(2, value.map(|term| term.loss), value.map(|term| &term.gradient[..]))?;
        Ok(Loss { loss, value_loss, terms })
    }

    /// Returns an error unless a tensor holds the tokens of the batch.
    fn check_shape(argument: &'static str, shape: &[usize], rollouts: &Rollouts<'_>) -> Result<(), Error> {
        let batch = rollouts.batch()?;
        let (tokens, sequences) = (batch.tokens(), batch.sequences());
        let starts = |row: usize| batch.cu_seqlens().span(row).start;
        let fits = match *shape {
            [n] => n == tokens,
            [rows, t] => {
                rows == sequences && rows * t == tokens && (0..rows).all(|row| starts(row) == row * t)
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let expected =
            format!("shape [{tokens}], or [{sequences}, T] where cu_seqlens is 0, T, 2·T, … (`padded`)");
        Err(Error::argument(argument, expected, format!("shape {shape:?}")))
    }

    /// Calls Lockstep with the tensors' values in place of the columns.
    fn compute(
        recipe: &Recipe,
        device: &Device,
        rollouts: &Rollouts<'_>,
        credit: &Credit,
        [logp, entropy, values]: [Option<&[f32]>; 3],
    ) -> Result<lockstep::Loss, Error> {
        let reads = recipe.reads_of(Call::Loss);
        for (column, tensor, has_gradient) in [
            (Column::entropy, entropy, recipe.entropy.is_some()),
            (Column::values, values, recipe.value.is_some()),
        ] {
            let name = column.name();
            if has_gradient && tensor.is_none() {
                let expected = format!("a tensor: a term of recipe `{}` has a gradient for it", recipe.name);
                return Err(Error::argument(name, expected, "none"));
            }
            if tensor.is_some() && !reads.contains(column) {
                let expected = format!("no tensor: the loss of recipe `{}` does not read it", recipe.name);
                return Err(Error::argument(name, expected, "one"));
            }
        }
        let rollouts = Rollouts {
            logp,
            entropy: entropy.or(rollouts.entropy),
            values: values.or(rollouts.values),
            ..*rollouts
        };
        Ok(recipe.loss(device, &rollouts, credit)?)
    }
}

//! The result of [`Recipe::loss`](crate::Recipe::loss).

use crate::PolicyOutput;
use crate::ops::value_loss::ValueOutput;
use std::ops::Deref;

/// The loss, gradients and metrics of [`Recipe::loss`](crate::Recipe::loss). It derefs to the policy part:
/// `loss.coef` is dL/dlogp, and `loss.loss` is the sum of the policy, KL and entropy terms.
/// [`Recipe::loss_into`](crate::Recipe::loss_into) reuses the buffers.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// The policy, KL and entropy terms, dL/dlogp, and metrics.
    pub policy: PolicyOutput,
    /// The entropy term, if the recipe has one.
    pub entropy: Option<EntropyTerm>,
    /// The critic's loss and dL/dvalue, if the recipe has a value loss; not part of `loss`.
    pub value: Option<ValueOutput>,
}

impl Deref for Loss {
    type Target = PolicyOutput;

    fn deref(&self) -> &PolicyOutput {
        &self.policy
    }
}

/// The entropy term of a loss.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EntropyTerm {
    /// −coef·agg(H), which is part of the loss.
    pub loss: f64,
    /// The aggregated entropy agg(H) in nats, for logging.
    pub entropy: f64,
    /// dL/dH = −coef·W of each token, `[N]`; 0 where masked. It is the `coef_entropy` of
    /// `ops::logits_gradient`.
    pub coef: Vec<f32>,
}

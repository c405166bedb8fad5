//! The result of [`Recipe::loss`](crate::Recipe::loss).

use crate::PolicyOutput;
use crate::ops::value_loss::ValueOutput;
use std::ops::Deref;

/// Loss, gradients and metrics. It derefs to the policy's part: `loss.coef` is dL/dlogp, `loss.loss` the sum
/// of policy, KL and entropy terms. Buffers are kept for the next call of
/// [`Recipe::loss_into`](crate::Recipe::loss_into).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loss {
    /// Policy, KL and entropy terms, dL/dlogp, metrics.
    pub policy: PolicyOutput,
    /// The entropy term, where the recipe has one.
    pub entropy: Option<EntropyTerm>,
    /// The critic's own loss and dL/dvalue, where the recipe has one; not a part of `loss`.
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
pub struct EntropyTerm {
    /// −coef·agg(H), a part of the loss.
    pub loss: f64,
    /// agg(H), what a trainer logs.
    pub entropy: f64,
    /// dL/dH = −coef·W of each token, `[N]`; 0 where masked. What `ops::logits_gradient` takes.
    pub coef: Vec<f32>,
}

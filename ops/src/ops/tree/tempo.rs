//! TEMPO's advantages.

use super::{Outcomes, PrefixTree, Tokens, prefix_tree};
use crate::ops::advantage::{Advantages, GroupParams, group_advantage};
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::Singleton;

/// Parameters of [`tempo`]; formula: [`lockstep_core::tree::tree_advantage`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TempoParams {
    /// Whether to divide by std + eps; `false` is Dr.GRPO's choice.
    pub norm_by_std: bool,
    /// 1 = unbiased, 0 = population.
    pub ddof: u32,
    /// Added to the standard deviation.
    pub eps: f64,
    /// The advantage of a group with one counted sequence; `None` makes such a group an error.
    pub singleton: Option<Singleton>,
    /// How finished responses continue in the tree: `None` = their end is a separate edge; an id = they
    /// continue with this padding id, as in the released code.
    pub pad: Option<u32>,
    /// Whether the advantage after the first masked token of a response (an observation, in multi-turn
    /// rollouts) is the response's own, as in the released code; `false`: the tree continues through
    /// observations (ours).
    pub stop_at_mask: bool,
}

impl TempoParams {
    /// The defaults: sample standard deviation plus 1e-6, advantage 0 for a group of one, ends of responses
    /// as edges, and trees that continue through observations.
    pub const DEFAULT: TempoParams = TempoParams {
        norm_by_std: true,
        ddof: 1,
        eps: 1e-6,
        singleton: Some(Singleton::Zero),
        pad: None,
        stop_at_mask: false,
    };

    fn group(&self) -> GroupParams<'static> {
        GroupParams::grpo(self.norm_by_std, self.ddof, self.eps)
    }
}

impl Default for TempoParams {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Advantages of tokens, and the results that they are computed from.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Tempo {
    /// Advantage per token, `[N]`; 0 where masked and in sequences without an outcome.
    pub advantage: Vec<f32>,
    /// GRPO's advantages, which hold at every token that is not at a branch.
    pub group: Advantages,
    /// The trees.
    pub tree: PrefixTree,
}

/// Computes TEMPO's advantages, `[N]`: (R − mean + V(s_{t+1}) − V(s_t)) / (std + eps) at tokens where
/// responses diverge, and GRPO's advantage everywhere else; formula: [`lockstep_core::tree::tree_advantage`].
///
/// Errors: those of [`prefix_tree`] and [`group_advantage`]; an advantage that is not finite (index).
///
/// ```
/// use lockstep_ops::ops::tree::{Outcomes, TempoParams, tempo};
/// use lockstep_ops::{Batch, Device};
/// // ab and ac: the first token is shared, the second decides.
/// let batch = Batch::new(&[0, 2, 4], &[0, 2], None)?;
/// let tokens: &[i32] = &[7, 8, 7, 9];
/// let outcomes = Outcomes::new(&[1.0, 0.0]);
/// let out = tempo(&Device::cpu(), &batch, tokens.into(), &outcomes, &TempoParams::default())?;
/// assert_eq!(out.advantage[0].to_bits(), out.group.advantage[0].to_bits());
/// assert!((out.advantage[1] - 2.0 * out.advantage[0]).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn tempo(
    device: &Device,
    batch: &Batch<'_>,
    tokens: Tokens<'_>,
    outcomes: &Outcomes<'_>,
    params: &TempoParams,
) -> Result<Tempo, Error> {
    let choice = GroupParams { singleton: params.singleton, ..params.group() };
    let group = group_advantage(device, batch, outcomes.rewards, outcomes.valid, &choice)?;
    let tree = prefix_tree(device, batch, tokens, outcomes, params.pad)?;
    let std = params.norm_by_std.then_some((&group.std[..], params.eps));
    let mut advantage = tree.advantages(device, batch, outcomes, Some(&group.advantage), std)?;
    if params.stop_at_mask {
        let live = |i: &usize| batch.loss_mask().at(*i);
        for (sequence, own) in group.advantage.iter().enumerate() {
            let span = batch.cu_seqlens().span(sequence);
            let behind = (span.start..span.end).skip_while(live);
            behind.filter(live).for_each(|i| advantage[i] = *own);
        }
    }
    let bad = |(i, x): (usize, &f32)| !x.is_finite() && batch.loss_mask().at(i);
    match advantage.iter().enumerate().position(bad) {
        None => Ok(Tempo { advantage, group, tree }),
        Some(index) => {
            let hint = "the rewards of the group are too large for f32, or eps is 0 and they are too close";
            Err(Argument::NotFinite { result: "token advantage", index, hint }.into())
        }
    }
}

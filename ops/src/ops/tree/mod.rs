//! Prefix trees: TEMPO's per-token advantages, and values of tree rollouts. The formulas are in
//! [`lockstep_core::tree`]; `docs/trees.md` works through a tree by hand.

mod explicit;
mod nodes;
mod spread;
mod statistics;
mod tempo;

pub use explicit::{ExplicitTree, StepBaseline, StepParams, StepValues, step_values};
pub use nodes::Node;
pub use spread::{Segments, spread};
pub use statistics::TreeStatistics;
pub use tempo::{Tempo, TempoParams, tempo};

use super::locate;
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::require;
use lockstep_core::tree::{self, TreeAdvantage, TreeNodes, TreeSort};

/// Token ids, in either type that tokenizers use. Only equality and one fixed order matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens<'a> {
    /// Unsigned.
    U32(&'a [u32]),
    /// Signed.
    I32(&'a [i32]),
}

impl<'a> From<&'a [u32]> for Tokens<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Tokens::U32(tokens)
    }
}

impl<'a> From<&'a [i32]> for Tokens<'a> {
    fn from(tokens: &'a [i32]) -> Self {
        Tokens::I32(tokens)
    }
}

impl<'a> Tokens<'a> {
    fn view(self) -> In<'a, u32> {
        match self {
            Tokens::U32(tokens) => In::new(tokens),
            Tokens::I32(tokens) => In::bits_of(tokens),
        }
    }

    /// Number of tokens N.
    pub fn len(self) -> usize {
        self.view().len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The outcomes of a tree's sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcomes<'a> {
    /// Outcome reward per sequence, `[S]`; NaN = no outcome (truncated, no score): the sequence does not
    /// affect any value.
    pub rewards: &'a [f32],
    /// Sequences whose entry is 0 are excluded as if their reward were NaN, `[S]`; `None` = no sequence is.
    pub valid: Option<&'a [u8]>,
    /// Weight of each sequence in the values, `[S]`; `None` = 1. A sequence of weight 0 does not affect any
    /// value.
    pub weights: Option<&'a [f32]>,
}

impl<'a> Outcomes<'a> {
    /// Outcomes with rewards only.
    pub fn new(rewards: &'a [f32]) -> Self {
        Outcomes { rewards, valid: None, weights: None }
    }

    fn check(&self, batch: &Batch<'_>) -> Result<(), Error> {
        batch.check_sequences("rewards", self.rewards.len())?;
        if let Some(valid) = self.valid {
            require::length("valid", batch.sequences(), "one per sequence", valid.len())?;
        }
        let counted = |i: usize| self.valid.is_none_or(|valid| valid[i] != 0);
        let expected = "a finite reward, or NaN for a sequence without one";
        locate::each("rewards", self.rewards, expected, |i, r| !(counted(i) && r.is_infinite()))?;
        let Some(weights) = self.weights else { return Ok(()) };
        batch.check_sequences("weights", weights.len())?;
        check_weights(weights)
    }
}

fn check_weights(weights: &[f32]) -> Result<(), Error> {
    locate::each("weights", weights, "a finite weight of at least 0", |_, w| w >= 0.0 && w.is_finite())
}

fn value(argument: &'static str, index: usize, expected: &'static str, got: f64) -> Error {
    Argument::Value { argument, index: Some(index), expected, got }.into()
}

/// The prefix trees of the groups of a batch. All arrays are `[S]`; [`lockstep_core::tree::tree_nodes`]
/// defines them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PrefixTree {
    /// Sequences in lexicographic order, group by group.
    pub order: Vec<u32>,
    /// Number of tokens that each position shares with the one before it: the depth of its node.
    pub lcp: Vec<u32>,
    /// V of each position's node; at a group's first position, V of the whole group. NaN without outcomes.
    pub value: Vec<f64>,
    /// Number of counted sequences of the node.
    pub counted: Vec<u32>,
    /// The position that represents the node, or [`NONE`](tree::NONE).
    pub node: Vec<u32>,
    /// The parent node, or [`NONE`](tree::NONE).
    pub parent: Vec<u32>,
    /// Last branching node on each sequence's path, or [`NONE`](tree::NONE).
    pub leaf: Vec<u32>,
}

/// Reusable scratch memory of the sort: [`tree::scratch`] entries.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    words: Vec<u32>,
}

/// Builds the prefix trees of a batch from its `tokens` `[N]`. `pad` is described in
/// [`lockstep_core::tree::tree_sort`]: `None` is our choice, an id that of TEMPO's released code.
///
/// Errors: lengths that disagree; an infinite reward, or a weight that is negative or not finite (index).
///
/// ```
/// use lockstep_ops::ops::tree::{Outcomes, prefix_tree};
/// use lockstep_ops::{Batch, Device};
/// // abc, abd, aef
/// let batch = Batch::new(&[0, 3, 6, 9], &[0, 3], None)?;
/// let tokens: &[u32] = &[1, 2, 3, 1, 2, 4, 1, 5, 6];
/// let tree = prefix_tree(&Device::cpu(), &batch, tokens.into(), &Outcomes::new(&[1.0, 0.0, 0.0]), None)?;
/// assert_eq!((&tree.order[..], &tree.lcp[..]), (&[0, 1, 2][..], &[0, 2, 1][..]));
/// assert_eq!(tree.value[1..], [0.5, 1.0 / 3.0]);      // V(ab), V(a)
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn prefix_tree(
    device: &Device,
    batch: &Batch<'_>,
    tokens: Tokens<'_>,
    outcomes: &Outcomes<'_>,
    pad: Option<u32>,
) -> Result<PrefixTree, Error> {
    let mut tree = PrefixTree::default();
    tree.build(device, batch, tokens, outcomes, pad, &mut Scratch::default())?;
    Ok(tree)
}

impl PrefixTree {
    /// Like [`prefix_tree`], but into this tree; its memory and that of `scratch` are reused.
    pub fn build(
        &mut self,
        device: &Device,
        batch: &Batch<'_>,
        tokens: Tokens<'_>,
        outcomes: &Outcomes<'_>,
        pad: Option<u32>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        batch.check_tokens("tokens", tokens.len())?;
        outcomes.check(batch)?;
        self.sort(device, batch, tokens.view(), pad, scratch)?;
        self.find_nodes(device, batch.cu_groups(), outcomes)
    }

    fn sort(
        &mut self,
        device: &Device,
        batch: &Batch<'_>,
        tokens: In<'_, u32>,
        pad: Option<u32>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let (sequences, cu_groups) = (batch.sequences(), batch.cu_groups());
        self.order.clear();
        self.order.extend(0..sequences as u32);
        self.lcp.clear();
        self.lcp.resize(sequences, 0);
        scratch.words.resize(tree::scratch(sequences), 0);
        let (order, rest) = scratch.words.split_at_mut(sequences);
        let (lcp, rest) = rest.split_at_mut(sequences);
        let (middle, cu_merges) = rest.split_at_mut(sequences);
        let longest = (0..cu_groups.rows()).map(|group| cu_groups.span(group).len()).max().unwrap_or(0);
        for round in 0..tree::rounds(longest as u32) {
            let rows = tree::merges(cu_groups, 1 << round, cu_merges, middle);
            device.run(&TreeSort {
                cu_merges: Offsets::new("cu_merges", &cu_merges[..=rows], sequences, "sequences")?,
                middle: In::new(&middle[..rows]),
                cu_seqlens: batch.cu_seqlens(),
                tokens,
                pad,
                order: In::new(&self.order),
                lcp: In::new(&self.lcp),
                sorted: Out::new(order),
                sorted_lcp: Out::new(lcp),
            })?;
            self.order.swap_with_slice(order);
            self.lcp.swap_with_slice(lcp);
        }
        Ok(())
    }

    /// Finds the nodes from `order` and `lcp`.
    fn find_nodes(
        &mut self,
        device: &Device,
        cu_groups: Offsets<'_>,
        outcomes: &Outcomes<'_>,
    ) -> Result<(), Error> {
        let sequences = self.order.len();
        self.value.resize(sequences, 0.0);
        for out in [&mut self.counted, &mut self.node, &mut self.parent, &mut self.leaf] {
            out.resize(sequences, 0);
        }
        device.run(&TreeNodes {
            cu_groups,
            order: In::new(&self.order),
            lcp: In::new(&self.lcp),
            rewards: In::new(outcomes.rewards),
            valid: Mask::new(outcomes.valid),
            weights: outcomes.weights.map(In::new),
            value: Out::new(&mut self.value),
            counted: Out::new(&mut self.counted),
            node: Out::new(&mut self.node),
            parent: Out::new(&mut self.parent),
            leaf: Out::new(&mut self.leaf),
        })
    }

    /// Computes the advantage of each token, `[N]`: the `advantage` `[S]` of its sequence (`None`: 0) plus
    /// its TD correction divided by the `std` `[G]` plus eps of its group (`None`: undivided). `outcomes` are
    /// those of the tree. Without both options, the result is the TD correction itself.
    ///
    /// Errors: lengths that disagree; an eps out of its domain. Results may be non-finite; the caller has to
    /// check, as [`tempo`] does.
    pub fn advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        outcomes: &Outcomes<'_>,
        advantage: Option<&[f32]>,
        std: Option<(&[f32], f64)>,
    ) -> Result<Vec<f32>, Error> {
        let mut token_advantage = Vec::new();
        self.advantages_into(device, batch, outcomes, advantage, std, &mut token_advantage)?;
        Ok(token_advantage)
    }

    /// Like [`PrefixTree::advantages`], but into `token_advantage`, whose memory is reused.
    pub fn advantages_into(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        outcomes: &Outcomes<'_>,
        advantage: Option<&[f32]>,
        std: Option<(&[f32], f64)>,
        token_advantage: &mut Vec<f32>,
    ) -> Result<(), Error> {
        outcomes.check(batch)?;
        batch.check_sequences("order of the tree", self.order.len())?;
        if let Some(advantage) = advantage {
            batch.check_sequences("advantage", advantage.len())?;
        }
        if let Some((std, _)) = std {
            require::length("std", batch.groups(), "one per group of `cu_groups`", std.len())?;
        }
        token_advantage.resize(batch.tokens(), 0.0);
        device.run(&TreeAdvantage {
            cu_seqlens: batch.cu_seqlens(),
            cu_groups: batch.cu_groups(),
            loss_mask: batch.loss_mask(),
            rewards: In::new(outcomes.rewards),
            valid: Mask::new(outcomes.valid),
            lcp: In::new(&self.lcp),
            value: In::new(&self.value),
            parent: In::new(&self.parent),
            leaf: In::new(&self.leaf),
            advantage: advantage.map(In::new),
            std: std.map(|(std, _)| In::new(std)),
            eps: std.map_or(0.0, |(_, eps)| eps),
            token_advantage: Out::new(token_advantage),
        })
    }

    /// V at the root of each group, `[G]`: the (weighted) mean of its outcomes; NaN without outcomes.
    pub fn roots(&self, batch: &Batch<'_>) -> Vec<f64> {
        let first = |group| {
            let span = batch.cu_groups().span(group);
            if span.is_empty() { f64::NAN } else { self.value[span.start] }
        };
        (0..batch.groups()).map(first).collect()
    }
}

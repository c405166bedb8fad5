//! TEMPO: advantages of single tokens from a prefix tree.
//!
//! **Formula** (TEMPO 2509.18314; docs/maths/trees.md), for token t of response i, with s_t its first t
//! tokens:
//!
//! ```text
//! A[i,t] = A_i + (V(s_{t+1}) − V(s_t)) / (std_g + eps)
//! ```
//!
//! A_i is the response's advantage from [`group_advantage`](crate::advantage::GroupAdvantage): (R_i −
//! mean)/(std + eps) for TEMPO, so that A equals TEMPO's ((R_i − mean) + V(s_{t+1}) − V(s_t))/(std + eps);
//! any other baseline works as well. The second term, the *TD correction*, is nonzero only at tokens where
//! responses diverge: everywhere else `A[i,t]` **is** A_i, bit for bit.
//!
//! **Shapes**: `rewards`, `valid`, `advantage` `[S]` by sequence; `lcp`, `value`, `parent`, `leaf` `[S]` from
//! [`TreeNodes`](super::TreeNodes); `std` `[G]`, `cu_groups` `[G+1]`; `token_advantage` `[N]`.
//!
//! **Special cases**: a response that is not counted (NaN reward, or `valid` = 0) gets 0. A masked token gets
//! 0, although the tree continues through it. A node without a value corrects nothing. A divisor of 0 is
//! treated as 1.
//!
//! **Accuracy**: V and the correction are binary64; A_i and std are already binary32, so a corrected token
//! carries their two roundings in addition to its own.
//!
//! **Variants**: without `std` the correction is not divided (Dr.GRPO); without `advantage`, A is the
//! correction alone.

use super::NONE;
use crate::Error;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::require;
use crate::team::Team;

crate::kernel! {
    /// The op `tree_advantage`: TEMPO's advantage of each token.
    pub struct TreeAdvantage<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Offsets of groups, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Tokens that get an advantage, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Outcome rewards, `[S]`.
        pub rewards: In<'a, f32> [sequences],
        /// Sequences that count, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// Depth of each node, `[S]`.
        pub lcp: In<'a, u32> [sequences],
        /// Value V of each node, `[S]`.
        pub value: In<'a, f64> [sequences],
        /// Parent of each node, `[S]`, or [`NONE`].
        pub parent: In<'a, u32> [sequences],
        /// The last node on each sequence's path, `[S]`, or [`NONE`].
        pub leaf: In<'a, u32> [sequences],
        /// Advantage of each sequence, `[S]`; absent for 0.
        pub advantage: Option<In<'a, f32>> [sequences],
        /// Standard deviation of each group, `[G]`; absent to not divide.
        pub std: Option<In<'a, f32>> [groups],
        /// Added to the standard deviation.
        pub eps: f64,
        /// Advantage of each token, `[N]`.
        pub token_advantage: Out<'a, f32> [tokens],
    }
    unsafe "tree_advantage", over cu_seqlens (tokens, sequences),
        require |k| crate::advantage::Scale::Std { ddof: 1, eps: k.eps }.check(),
        let groups = |k| k.cu_groups.rows(),
        check |k| k.check_indices();
}

impl TreeAdvantage<'_> {
    fn check_indices(&self) -> Result<(), Error> {
        let sequences = self.cu_seqlens.rows();
        require::length("cu_groups", sequences, "sequences", self.cu_groups.sizes().0)?;
        for s in 0..sequences {
            let (leaf, parent) = (self.leaf.at(s), self.parent.at(s));
            let wrong = |argument, expected, got: u32| Err(require::value(argument, Some(s), expected, got));
            if leaf != NONE && leaf as usize >= sequences {
                return wrong("leaf", "a position below the number of sequences, or NONE", leaf);
            }
            // Depths decrease on the way up, so that every path ends.
            let above = parent == NONE
                || ((parent as usize) < sequences && self.lcp.at(parent as usize) < self.lcp.at(s));
            if !above {
                return wrong("parent", "a position with a smaller `lcp`, or NONE", parent);
            }
        }
        Ok(())
    }

    /// Divisor of the corrections in the group of `sequence`.
    #[inline(always)]
    fn divisor(&self, sequence: usize) -> f64 {
        let Some(std) = self.std else { return 1.0 };
        // Finds the last group that begins at or before it.
        let (mut low, mut high) = (0, self.cu_groups.rows());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let after = self.cu_groups.span(middle).start > sequence;
            high = if after { middle } else { high };
            low = if after { low } else { middle };
        }
        let divisor = f64::from(std.at(low)) + self.eps;
        if divisor == 0.0 { 1.0 } else { divisor }
    }

    /// Writes the same value at every live token of `span`.
    #[inline(always)]
    fn fill<T: Team>(&self, team: &T, span: Span, value: f32) {
        team.fill(span, self.loss_mask, *self.token_advantage, value);
    }
}

impl Kernel for TreeAdvantage<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let tokens = self.cu_seqlens.span(row);
        let reward = self.rewards.at(row);
        let counted = self.valid.at(row) && !reward.is_nan();
        let own = match self.advantage {
            Some(advantage) if counted => advantage.at(row),
            _ => 0.0,
        };
        let own = num::canonical(own);
        let divisor = self.divisor(row);
        // From the leaf to the root. Each stretch is written only once, because lanes do not see each other's
        // writes.
        let (mut end, mut inner) = (tokens.end, f64::from(reward));
        let mut node = if counted { self.leaf.at(row) } else { NONE };
        while node != NONE {
            let (depth, outer) = (self.lcp.at(node as usize) as usize, self.value.at(node as usize));
            if depth < tokens.len() {
                let branch = tokens.start + depth;
                self.fill(team, Span::new(branch + 1, end), own);
                let correction = inner - outer;
                // Also covers nodes without a value.
                let none = correction == 0.0 || correction.is_nan();
                let combined = num::canonical((f64::from(own) + num::div64(correction, divisor)) as f32);
                let live = self.loss_mask.at(branch);
                if team.leads() {
                    let value = if none { own } else { combined };
                    self.token_advantage.put(branch, if live { value } else { 0.0 });
                }
                end = branch;
            }
            inner = outer;
            node = self.parent.at(node as usize);
        }
        self.fill(team, Span::new(tokens.start, end), own);
    }
}

//! The branching nodes of a prefix tree, with their values.
//!
//! **Formula** (TEMPO 2509.18314; docs/maths/trees.md): with the responses in order, each position p except
//! the first of its group identifies the node where its response diverges from its predecessor, at depth h =
//! `lcp[p]`: the longest interval around p within which `lcp` is at least h.
//!
//! ```text
//! V(node) = Σ w_k R_k / Σ w_k  over the counted responses k of the interval
//! ```
//!
//! A node with m children has m − 1 positions; the lowest represents it. The first position of a group holds
//! the value of the whole group.
//!
//! **Shapes**: everything is `[S]`, except `cu_groups` `[G+1]`. `lcp`, `value`, `counted`, `node`, `parent`
//! are indexed by position; `rewards`, `valid`, `weights`, `leaf` by sequence.
//!
//! **Special cases**: a response with a NaN reward, `valid` = 0 or weight 0 is not counted: it affects no
//! value. A node without counted responses has the value NaN. If all counted rewards are equal, the value is
//! exactly that reward; the values of two nodes with the same counted responses have the same bits, so that a
//! difference that is 0 in exact arithmetic is 0.
//!
//! **Accuracy**: binary64, each node's sum in the order of its responses.

use super::NONE;
use crate::Error;
use crate::num::{self, canonical64};
use crate::op::{Kernel, check_indices};
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::team::Team;

crate::kernel! {
    /// The op `tree_nodes`: value, parent and number of responses of each branching node.
    pub struct TreeNodes<'a> {
        /// Offsets of groups, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Sequence at each position, `[S]`.
        pub order: In<'a, u32> [sequences],
        /// Number of tokens (steps) shared with the preceding response, `[S]`.
        pub lcp: In<'a, u32> [sequences],
        /// Outcome rewards, `[S]`.
        pub rewards: In<'a, f32> [sequences],
        /// Sequences that count, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// Weight of each sequence, `[S]`; absent for 1.
        pub weights: Option<In<'a, f32>> [sequences],
        /// Value V of the node at each position, `[S]`.
        pub value: Out<'a, f64> [sequences],
        /// Number of its counted responses, `[S]`.
        pub counted: Out<'a, u32> [sequences],
        /// Position that represents the node, `[S]`; [`NONE`] at the first position of a group.
        pub node: Out<'a, u32> [sequences],
        /// The parent node, or [`NONE`], `[S]`.
        pub parent: Out<'a, u32> [sequences],
        /// The last branching node on each sequence's path, or [`NONE`], `[S]`.
        pub leaf: Out<'a, u32> [sequences],
    }
    unsafe "tree_nodes", over cu_groups (sequences, _), check |k| k.check_indices();
}

impl Kernel for TreeNodes<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        if span.is_empty() {
            return;
        }
        if team.leads() {
            self.bounds(span);
        }
        team.settle();
        let kernel = self;
        team.for_each(span, move |at| {
            // The representative of a node stores its end, which is above its own position; the other
            // positions store the representative, which is below theirs.
            let end = kernel.node.get(at) as usize;
            if end > at {
                let first = at == span.start;
                // A node without a parent is the whole group, whose value is at the first position.
                if first || kernel.parent.get(at) != NONE {
                    kernel.mean(at, kernel.counted.get(at) as usize, end);
                }
                kernel.node.put(at, if first { NONE } else { at as u32 });
            }
        });
        team.settle();
        team.for_each(span, move |at| {
            if at > span.start {
                let node = kernel.node.get(at) as usize;
                let parent = kernel.parent.get(node);
                let same = if parent == NONE { span.start } else { node };
                if same != at {
                    kernel.value.put(at, kernel.value.get(same));
                    kernel.counted.put(at, kernel.counted.get(same));
                }
                // The representative has it already, and other positions are reading it now.
                if node != at {
                    kernel.parent.put(at, parent);
                }
            }
            kernel.leaf.put_in(span, kernel.order.at(at) as usize, kernel.deeper(span, at, at + 1));
        });
    }
}

impl TreeNodes<'_> {
    fn check_indices(&self) -> Result<(), Error> {
        (0..self.cu_groups.rows())
            .map(|group| self.cu_groups.span(group))
            .try_for_each(|own| check_indices("order", self.order, own, own, "a sequence of the same group"))
    }

    /// Computes the start, end and parent of each node, on one lane. Each position is pushed on a stack at
    /// most once, so this is linear in the number of responses.
    ///
    /// The open nodes form a stack linked by `parent`, the deepest on top. Until [`mean`](Self::mean) is
    /// done, `counted` holds the start of a node and `node` its end, both at the node's lowest position
    /// (whose final `node` is that position itself).
    #[inline(always)]
    fn bounds(&self, span: Span) {
        let (lcp, node, parent, counted) = (self.lcp, *self.node, *self.parent, *self.counted);
        let Span { start: first, end } = span;
        counted.put(first, first as u32);
        node.put(first, end as u32);
        parent.put(first, NONE);
        // The first position of the group marks the bottom of the stack.
        let (mut top, mut reached) = (first, 0);
        let mut at = first + 1;
        while at < end {
            let (depth, mut start) = (lcp.at(at), at - 1);
            while top != first && reached > depth {
                start = counted.get(top) as usize;
                node.put(top, at as u32);
                let below = parent.get(top) as usize;
                reached = lcp.at(below);
                // The parent is the deeper of the two neighbouring nodes.
                let ends = below == first || reached < depth;
                parent.put(top, if ends { at as u32 } else { below as u32 });
                top = below;
            }
            if top != first && reached == depth {
                node.put(at, top as u32);
            } else {
                counted.put(at, start as u32);
                parent.put(at, top as u32);
                (top, reached) = (at, depth);
            }
            at += 1;
        }
        while top != first {
            let below = parent.get(top) as usize;
            node.put(top, end as u32);
            parent.put(top, if below == first { NONE } else { below as u32 });
            top = below;
        }
    }

    /// Writes V of the responses at positions `start..end`, and how many of them are counted, for position
    /// `at`.
    #[inline(always)]
    fn mean(&self, at: usize, start: usize, end: usize) {
        let (order, rewards, valid, weights) = (self.order, self.rewards, self.valid, self.weights);
        let (mut total, mut weight, mut count) = (0.0, 0.0, 0);
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        let mut k = start;
        while k < end {
            let i = order.at(k) as usize;
            let (reward, own) = (rewards.at(i), weights.map_or(1.0, |weights| weights.at(i)));
            let counts = valid.at(i) & !reward.is_nan() & (own != 0.0);
            // A sum that began with +0 is never -0, so adding +0 leaves it unchanged.
            let (term, own) =
                if counts { (f64::from(own) * f64::from(reward), f64::from(own)) } else { (0.0, 0.0) };
            total += term;
            weight += own;
            count += u32::from(counts);
            low = if counts & (reward < low) { reward } else { low };
            high = if counts & (reward > high) { reward } else { high };
            k += 1;
        }
        let mean = if low == high { f64::from(low) } else { num::div64(total, weight) };
        // 0/0 = NaN without counted responses.
        self.value.put(at, canonical64(mean));
        self.counted.put(at, count);
    }

    /// Returns the node at `left` or `right`, whichever is the deeper branch; a position at the start or end
    /// of the group is not a branch.
    #[inline(always)]
    fn deeper(&self, span: Span, left: usize, right: usize) -> u32 {
        let (is_left, is_right) = (left > span.start, right < span.end);
        if is_left && (!is_right || self.lcp.at(left) > self.lcp.at(right)) {
            self.node.get(left)
        } else if is_right {
            self.node.get(right)
        } else {
            NONE
        }
    }
}

//! The branching nodes of a prefix tree, with their values.
//!
//! **Formula** (TEMPO 2509.18314; docs/maths/trees.md): with the responses in order, position p (but the
//! first of its group) names the node where its response leaves the one before it, of depth h = `lcp[p]`: the
//! longest interval around p whose `lcp` inside is at least h.
//!
//! ```text
//! V(node) = Σ w_k R_k / Σ w_k  over the counted responses k of the interval
//! ```
//!
//! A node with m children has m − 1 positions; the lowest stands for it. The first position of a group holds
//! the value of the whole group.
//!
//! **Shapes**: everything is `[S]`, and `cu_groups` `[G+1]`. `lcp`, `value`, `counted`, `node`, `parent` by
//! position, `rewards`, `valid`, `weights`, `leaf` by sequence.
//!
//! **Special cases**: a response with a NaN reward, `valid` = 0 or weight 0 is not counted: it moves no
//! value. A node without counted responses has the value NaN. Counted rewards that are equal are the value
//! exactly, and the values of two nodes with the same counted responses have the same bits, so that a
//! difference that is 0 in exact arithmetic is 0.
//!
//! **Accuracy**: binary64, each node's sum in the order of its responses.

use super::NONE;
use crate::Error;
use crate::num::{self, canonical64};
use crate::op::{Kernel, check_indices};
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::team::Team;

/// The op `tree_nodes`.
#[derive(Debug)]
pub struct TreeNodes<'a> {
    /// Offsets of groups, `[G+1]`.
    pub cu_groups: Offsets<'a>,
    /// Which sequence stands at each position, `[S]`.
    pub order: In<'a, u32>,
    /// Tokens (steps) that it shares with the one before it, `[S]`.
    pub lcp: In<'a, u32>,
    /// Outcome rewards, `[S]`.
    pub rewards: In<'a, f32>,
    /// Which sequences are counted, `[S]`.
    pub valid: Mask<'a>,
    /// Weight of each sequence, `[S]`; absent: 1.
    pub weights: Option<In<'a, f32>>,
    /// V of the node, `[S]`.
    pub value: Out<'a, f64>,
    /// Its counted responses, `[S]`.
    pub counted: Out<'a, u32>,
    /// The position that stands for the node, `[S]`; [`NONE`] at the first of a group.
    pub node: Out<'a, u32>,
    /// The node above, or [`NONE`], `[S]`.
    pub parent: Out<'a, u32>,
    /// The last branching node on a sequence's path, or [`NONE`], `[S]`.
    pub leaf: Out<'a, u32>,
}

crate::kernel_args!(unsafe TreeNodes<'_> { cu_groups, order, lcp, rewards, valid, weights, value, counted, node, parent, leaf });

impl Kernel for TreeNodes<'_> {
    const NAME: &'static str = "tree_nodes";

    fn check_bounds(&self) -> Result<(), Error> {
        let (sequences, groups) = self.cu_groups.sizes();
        crate::lengths!(self; sequences => order, lcp, rewards, valid, weights, value, counted, node, parent, leaf);
        for group in 0..groups {
            let own = self.cu_groups.span(group);
            check_indices("order", self.order, own, own, "a sequence of the same group")?;
        }
        Ok(())
    }

    fn rows(&self) -> usize {
        self.cu_groups.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_groups.span(row).len()
    }

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
            // Who stands for a node knows its end, which is behind it; the others name who does, which is
            // before them.
            let end = kernel.node.get(at) as usize;
            if end > at {
                let first = at == span.start;
                // A node without one above is the whole group, whose value the first position has.
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
                // Who stands for a node has it already, and others read it now.
                if node != at {
                    kernel.parent.put(at, parent);
                }
            }
            kernel.leaf.put_in(span, kernel.order.at(at) as usize, kernel.deeper(span, at, at + 1));
        });
    }
}

impl TreeNodes<'_> {
    /// Where each node begins and ends, and the node above it, by one lane: each position is put on a stack
    /// at most once, so that this is linear in responses.
    ///
    /// The nodes that go on are a stack, linked by `parent`, the deepest on top. Until [`mean`](Self::mean)
    /// is done `counted` holds where a node begins and `node`, which at its lowest position will be that
    /// position, where it ends.
    #[inline(always)]
    fn bounds(&self, span: Span) {
        let (lcp, node, parent, counted) = (self.lcp, *self.node, *self.parent, *self.counted);
        let Span { start: first, end } = span;
        counted.put(first, first as u32);
        node.put(first, end as u32);
        parent.put(first, NONE);
        // The first position of the group stands for the end of the stack.
        let (mut top, mut reached) = (first, 0);
        let mut at = first + 1;
        while at < end {
            let (depth, mut start) = (lcp.at(at), at - 1);
            while top != first && reached > depth {
                start = counted.get(top) as usize;
                node.put(top, at as u32);
                let below = parent.get(top) as usize;
                reached = lcp.at(below);
                // The node above is the deeper one of both neighbours.
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

    /// V of the responses at positions `start..end`, and how many of them are counted, for position `at`.
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
            // A sum that began with +0 is never -0, so that adding +0 leaves it as it is.
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
        // 0/0 without any.
        self.value.put(at, canonical64(mean));
        self.counted.put(at, count);
    }

    /// The node of whichever of positions `left` and `right` is the deeper branch; a position at the start or
    /// end of the group is none.
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

//! The branching nodes of a prefix tree, with their values.
//!
//! **Formula** (TEMPO 2509.18314; maths.md §5.1): with the responses in order, position p (but the first of its group) names the node
//! where its response leaves the one before it, of depth h = `lcp[p]`: the longest interval around p whose `lcp` inside is at least h.
//!
//! ```text
//! V(node) = Σ w_k R_k / Σ w_k  over the counted responses k of the interval
//! ```
//!
//! A node with m children has m − 1 positions; the lowest stands for it. The first position of a group holds the value of the whole group.
//!
//! **Shapes**: everything is `[S]`, and `cu_groups` `[G+1]`. `lcp`, `value`, `counted`, `node`, `parent` by position, `rewards`, `valid`,
//! `weights`, `leaf` by sequence.
//!
//! **Special cases**: a response with a NaN reward, `valid` = 0 or weight 0 is not counted: it moves no value. A node without
//! counted responses has the value NaN. Counted rewards that are equal are the value exactly, and the values of two nodes with the same counted
//! responses have the same bits, so that a difference that is 0 in exact arithmetic is 0.
//!
//! **Accuracy**: binary64, each node's sum in the order of its responses.

use super::NONE;
use crate::num::{self, canonical64};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::team::Team;

/// The op `tree_nodes`.
#[derive(Clone, Copy, Debug)]
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

crate::kernel_args!(TreeNodes<'_> { cu_groups, order, lcp, rewards, valid, weights, value, counted, node, parent, leaf });

/// Where the node of a position begins and ends, and who stands for it.
#[derive(Clone, Copy)]
struct Interval {
    start: usize,
    end: usize,
    node: usize,
}

/// The common prefixes of a group.
#[derive(Clone, Copy)]
struct Shared<'a> {
    lcp: In<'a, u32>,
    span: Span,
}

impl Shared<'_> {
    /// The node of depth `depth` that contains position `at`.
    #[inline(always)]
    fn around(self, at: usize, depth: u32) -> Interval {
        let (mut start, mut end, mut node) = (at, at + 1, at);
        while start > self.span.start && self.lcp.at(start) >= depth {
            node = if self.lcp.at(start) == depth { start } else { node };
            start -= 1;
        }
        while end < self.span.end && self.lcp.at(end) >= depth {
            // The lowest, if there is none to the left.
            node = if node == start && self.lcp.at(end) == depth { end } else { node };
            end += 1;
        }
        Interval { start, end, node }
    }

    /// Depth of the last branch around positions `start..end`: 1 + the depth, or 0 when the group ends on both sides.
    #[inline(always)]
    fn above(self, start: usize, end: usize) -> u64 {
        let left = if start > self.span.start { u64::from(self.lcp.at(start)) + 1 } else { 0 };
        let right = if end < self.span.end { u64::from(self.lcp.at(end)) + 1 } else { 0 };
        if left > right { left } else { right }
    }

    /// The node just above positions `start..end`, or [`NONE`].
    #[inline(always)]
    fn parent(self, start: usize, end: usize) -> u32 {
        let above = self.above(start, end);
        if above == 0 { NONE } else { self.around(start, (above - 1) as u32).node as u32 }
    }
}

impl Kernel for TreeNodes<'_> {
    const NAME: &'static str = "tree_nodes";

    fn rows(&self) -> usize {
        self.cu_groups.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_groups.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        if T::ALONE {
            self.in_order(span);
            return;
        }
        let (kernel, shared) = (*self, Shared { lcp: self.lcp, span });
        team.for_each(span, move |at| {
            let first = at == shared.span.start;
            let found = if first {
                Interval { start: at, end: shared.span.end, node: at }
            } else {
                shared.around(at, shared.lcp.at(at))
            };
            let (value, counted) = kernel.mean(found.start, found.end);
            kernel.value.put(at, value);
            kernel.counted.put(at, counted);
            kernel.node.put(at, if first { NONE } else { found.node as u32 });
            kernel.parent.put(at, if first { NONE } else { shared.parent(found.start, found.end) });
            kernel.leaf.put(kernel.order.at(at) as usize, shared.parent(at, at + 1));
        });
    }
}

impl TreeNodes<'_> {
    /// V of the responses at positions `start..end`, and how many of them are counted.
    #[inline(always)]
    fn mean(&self, start: usize, end: usize) -> (f64, u32) {
        let (order, rewards, valid, weights) = (self.order, self.rewards, self.valid, self.weights);
        let (mut total, mut weight, mut count) = (0.0, 0.0, 0);
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        let mut k = start;
        while k < end {
            let i = order.at(k) as usize;
            let (reward, own) = (rewards.at(i), weights.map_or(1.0, |weights| weights.at(i)));
            if valid.at(i) && !reward.is_nan() && own != 0.0 {
                total += f64::from(own) * f64::from(reward);
                weight += f64::from(own);
                count += 1;
                low = if reward < low { reward } else { low };
                high = if reward > high { reward } else { high };
            }
            k += 1;
        }
        let mean = if low == high { f64::from(low) } else { num::div64(total, weight) };
        // 0/0 without any.
        (canonical64(mean), count)
    }

    /// The node of whichever of positions `left` and `right` is the deeper branch; a position at the start or end of the group is none.
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

    /// A group by one thread: where intervals begin and end by jumps over what lies deeper, each node's mean once.
    ///
    /// Jumps are linear in responses. A response is summed once for each branch on its path, of which it has at most its length and one: linear
    /// in tokens. Until the last pass `parent` holds where an interval begins and `counted` where it ends.
    fn in_order(&self, span: Span) {
        let TreeNodes { lcp, node, parent, counted, .. } = *self;
        let Span { start: first, end } = span;
        if span.is_empty() {
            return;
        }
        for at in first + 1..end {
            let depth = lcp.at(at);
            let mut left = at - 1;
            while left > first && lcp.at(left) > depth {
                left = parent.get(left) as usize;
            }
            let again = left > first && lcp.at(left) == depth;
            node.put(at, if again { node.get(left) } else { at as u32 });
            parent.put(at, if again { parent.get(left) } else { left as u32 });
        }
        for at in (first + 1..end).rev() {
            let mut right = at + 1;
            while right < end && lcp.at(right) >= lcp.at(at) {
                right = counted.get(right) as usize;
            }
            counted.put(at, right as u32);
        }
        let (value, count) = self.mean(first, end);
        self.value.put(first, value);
        counted.put(first, count);
        node.put(first, NONE);
        parent.put(first, NONE);
        for at in first + 1..end {
            let (left, right, stands) =
                (parent.get(at) as usize, counted.get(at) as usize, node.get(at) as usize);
            let (value, count) = match stands == at {
                true => self.mean(left, right),
                false => (self.value.get(stands), counted.get(stands)),
            };
            self.value.put(at, value);
            counted.put(at, count);
            parent.put(at, self.deeper(span, left, right));
        }
        for at in first..end {
            self.leaf.put(self.order.at(at) as usize, self.deeper(span, at, at + 1));
        }
    }
}

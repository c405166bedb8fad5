//! GRPOVI: increases the variance of rewards while preserving their mean under the policy and their order.
//!
//! **Formula** (2505.23247; docs/maths/rewards.md), over the counted members of a group in descending order
//! of reward (ties by index):
//!
//! ```text
//! p = softmax(logp of the sequences),  c = Σ p r,  bounds m and M
//! maximise Σ p z²  subject to  Σ p z = c,  m ≤ z ≤ M,  z not increasing
//! optimum:  z = M for the first k,  m for the last n − l,  between them α = (c − M S_A − m S_C)/S_B
//! ```
//!
//! The search starts at k = 0, l = n. At each step it takes whichever of (k + 1, l) and (k, l − 1) has the
//! larger Σ p z², as long as one is feasible (S_B > 0, m ≤ α ≤ M) and larger than before. An exhaustive
//! search over all (k, l) gives the same result (conformance/tests/all/outcome/mod.rs).
//!
//! **Shapes**: `rewards`, `logp`, `shaped` `[S]`; `cu_groups` `[G+1]`.
//!
//! **Special cases**: a NaN reward or a sequence that is not `valid` gives NaN, "no score", and has no
//! probability. If all counted rewards are equal they are unchanged. Bounds are widened to contain the
//! group's own rewards. Without `logp` all members are equally likely.
//!
//! **Accuracy**: probabilities are `f32` exponentials of log p − max log p (underflow gives 0, never NaN);
//! sums are in binary64 in member order; the result is rounded to `f32` once. Σ p z² is compared through the
//! variance Σ p (z − c)², which does not suffer cancellation.
//!
//! **Variants**: `merge_ties` moves equal rewards together, so that they stay equal (our choice); without it
//! ties are broken by index and may separate, as the paper allows. m and M are a reward model's range; −∞ and
//! +∞ stand for the group's own least reward minus `margin` and greatest reward plus `margin`.
//!
//! **Cost**: there is no array of ranks and hence no memory: each of at most n steps finds the next member by
//! a pass. At most 2 n² iterations, each with an exponential, all of them executed by every lane of a GPU:
//! suited to groups of up to a few hundred.

use crate::advantage::members::Members;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::require;
use crate::team::Team;

crate::kernel! {
    /// The op `variance_increase`: GRPOVI's reward of each sequence.
    pub struct VarianceIncrease<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Outcome reward of each sequence, `[S]`.
        pub rewards: In<'a, f32> [sequences],
        /// Sequences that count, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// Log-probability of each sequence under the reference policy, `[S]`: `row_sum` of
        /// [`Aggregate`](crate::aggregate::Aggregate).
        pub logp: Option<In<'a, f64>> [sequences],
        /// m; −∞ for the group's least reward minus `margin`.
        pub low: f64,
        /// M; +∞ for the group's greatest reward plus `margin`.
        pub high: f64,
        /// Distance used by infinite `low` and `high`; at least 0.
        pub margin: f64 where not_negative,
        /// Whether equal rewards stay equal.
        pub merge_ties: bool,
        /// Shaped rewards z, `[S]`.
        pub shaped: Out<'a, f32> [sequences],
    }
    unsafe "variance_increase", over cu_groups (sequences, _),
        work |k, row| k.cu_groups.span(row).len().saturating_pow(2),
        require |k| require::scalar("low", k.low < k.high, "a number below `high`", k.low);
}

/// The counted members, with their unnormalised probabilities.
#[derive(Clone, Copy)]
struct Weighted<'a> {
    members: Members<'a>,
    logp: Option<In<'a, f64>>,
    greatest: f64,
}

impl Weighted<'_> {
    #[inline(always)]
    fn of<A: Arith>(self, i: usize) -> f64 {
        match self.logp {
            Some(logp) => f64::from(num::exp::<A>((logp.at(i) - self.greatest) as f32)),
            None => 1.0,
        }
    }
}

/// The partition into members at M, at m, and between: the last member of either end in the order (reward
/// descending, index ascending).
#[derive(Clone, Copy)]
struct Ends {
    top: f64,
    top_index: usize,
    bottom: f64,
    bottom_index: usize,
}

impl Ends {
    #[inline(always)]
    fn is_at_top(self, i: usize, reward: f64) -> bool {
        reward > self.top || (reward == self.top && i <= self.top_index)
    }

    #[inline(always)]
    fn is_at_bottom(self, i: usize, reward: f64) -> bool {
        reward < self.bottom || (reward == self.bottom && i >= self.bottom_index)
    }

    #[inline(always)]
    fn is_between(self, i: usize, reward: f64) -> bool {
        !self.is_at_top(i, reward) && !self.is_at_bottom(i, reward)
    }
}

/// A partition of the members with its α and variance.
#[derive(Clone, Copy)]
struct Split {
    ends: Ends,
    middle: f64,
    variance: f64,
}

/// Evaluates the partition `ends` in one pass; the variance is −1 if it is not feasible.
#[inline(always)]
fn split<A: Arith>(weighted: Weighted<'_>, span: Span, ends: Ends, [low, high, mean]: [f64; 3]) -> Split {
    // Masses, and what the middle must make up for: Σ p r between, Σ p (r − bound) outside. No mass is
    // computed as 1 − S_A − S_C.
    let (mut at_top, mut at_bottom, mut between, mut owed) = (0.0, 0.0, 0.0, 0.0);
    let mut i = span.start;
    while i < span.end {
        let reward = weighted.members.reward(i);
        let (top, bottom) = (ends.is_at_top(i, reward), ends.is_at_bottom(i, reward));
        let p = if weighted.members.is(i) { weighted.of::<A>(i) } else { 0.0 };
        let bound = if top { high } else { low };
        let apart = reward - if top || bottom { bound } else { 0.0 };
        owed += if weighted.members.is(i) { p * apart } else { 0.0 };
        at_top += if top { p } else { 0.0 };
        at_bottom += if bottom && !top { p } else { 0.0 };
        between += if top || bottom { 0.0 } else { p };
        i += 1;
    }
    let middle = num::div64(owed, between);
    let (up, down, off) = (high - mean, low - mean, middle - mean);
    let variance = at_top * (up * up) + at_bottom * (down * down) + between * (off * off);
    let feasible = between > 0.0 && middle >= low && middle <= high;
    Split { ends, middle, variance: if feasible { variance } else { -1.0 } }
}

impl Kernel for VarianceIncrease<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        let members = Members { rewards: self.rewards, valid: self.valid };
        let most = team.max(span, move |i| members.value_or(i, f32::NEG_INFINITY));
        let least = team.min(span, move |i| members.value_or(i, f32::INFINITY));
        let [n] = team.sum(span, move |i| [if members.is(i) { 1.0 } else { 0.0 }]);

        let (most, least) = (f64::from(most), f64::from(least));
        let high = if self.high == f64::INFINITY { most + self.margin } else { self.high };
        let low = if self.low == f64::NEG_INFINITY { least - self.margin } else { self.low };
        let (high, low) = (if high < most { most } else { high }, if low > least { least } else { low });

        let mut greatest = f64::NEG_INFINITY;
        let (mut mass, mut mean) = (0.0, 0.0);
        if let Some(logp) = self.logp {
            let mut i = span.start;
            while i < span.end {
                let own = if members.is(i) { logp.at(i) } else { f64::NEG_INFINITY };
                greatest = if own > greatest { own } else { greatest };
                i += 1;
            }
        }
        let weighted = Weighted { members, logp: self.logp, greatest };
        let mut i = span.start;
        while i < span.end {
            let p = if members.is(i) { weighted.of::<T::Arith>(i) } else { 0.0 };
            mass += p;
            mean += if members.is(i) { p * members.reward(i) } else { 0.0 };
            i += 1;
        }
        let limits = [low, high, num::div64(mean, mass)];

        let nobody =
            Ends { top: f64::INFINITY, top_index: 0, bottom: f64::NEG_INFINITY, bottom_index: usize::MAX };
        let unchanged = most == least || n == 0.0;
        let mut best = split::<T::Arith>(weighted, span, nobody, limits);
        let mut looking = !unchanged;
        while looking {
            // The next member from either end.
            let (mut first, mut first_index) = (f64::NEG_INFINITY, 0);
            let (mut last, mut last_index) = (f64::INFINITY, 0);
            let mut i = span.start;
            while i < span.end {
                let reward = members.reward(i);
                let between = members.is(i) && best.ends.is_between(i, reward);
                let (higher, lower) = (between && reward > first, between && reward <= last);
                (first, first_index) = if higher { (reward, i) } else { (first, first_index) };
                (last, last_index) = if lower { (reward, i) } else { (last, last_index) };
                i += 1;
            }
            let first_index = if self.merge_ties { usize::MAX } else { first_index };
            let last_index = if self.merge_ties { 0 } else { last_index };
            let more = Ends { top: first, top_index: first_index, ..best.ends };
            let more = split::<T::Arith>(weighted, span, more, limits);
            let less = Ends { bottom: last, bottom_index: last_index, ..best.ends };
            let less = split::<T::Arith>(weighted, span, less, limits);
            let better = if less.variance > more.variance { less } else { more };
            looking = better.variance > best.variance;
            best = if looking { better } else { best };
        }
        let out = *self.shaped;
        team.for_each(span, move |i| {
            let reward = members.reward(i);
            // Sums instead of a choice among three captured numbers, which LLVM turns into a choice of
            // addresses: 24 bytes of local memory.
            let (top, bottom) = (best.ends.is_at_top(i, reward), best.ends.is_at_bottom(i, reward));
            let one = |holds: bool| if holds { 1.0 } else { 0.0 };
            let moved = one(top) * high + one(bottom && !top) * low + one(!top && !bottom) * best.middle;
            let moved = if unchanged { reward } else { moved };
            out.put(i, if members.is(i) { num::canonical(moved as f32) } else { num::canonical_nan() });
        });
    }
}

//! The optimal token baseline: one baseline per position, weighted by each sequence's accumulated score norm.
//!
//! **Formula** (verl's optimal token baseline; docs/maths/correction.md), with i over the sequences of a
//! prompt, t the position in the response, and m the mask:
//!
//! ```text
//! W_it = Σ_{u ≤ t} m (1 − 2 p_u + Σ_v p_v²) [· w_u²]
//! b_t  = Σ_i m G_it W_it / (Σ_i m W_it + eps),    A_it = G_it − b_t
//! ```
//!
//! 1 − 2p + Σp² is the squared norm of the score of the sampled token with respect to the logits. w_u are
//! rollout-correction weights, if there are any.
//!
//! **Shapes**: `returns` G, `weights` W, `advantage` `[N]`; `cu_seqlens` `[S+1]`, `cu_groups` `[G+1]`. W is
//! the prefix sum of the score norms, as [`RowScan`](crate::aggregate::RowScan) computes it.
//!
//! **Special cases**: a masked token takes up a position, but has no weight and gets 0. A group of one has
//! b = 0. With `lone_tail` (verl's `handle_zero_tail`), b is also 0 for the tail of a sequence that has more
//! live tokens than every other: from the position that equals the second-largest number of live tokens on.
//! If no token is masked, that is where this sequence is the only one left.
//!
//! **Accuracy**: binary64, in the order of i, rounded to `f32` once.

use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::require;
use crate::team::Team;

crate::kernel! {
    /// The op `optimal_token_baseline`: one advantage per token.
    pub struct OptimalTokenBaseline<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Offsets of sequences, in tokens, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Returns, `[N]`.
        pub returns: In<'a, f32> [tokens],
        /// Running sums of the score norms, `[N]`.
        pub weights: In<'a, f32> [tokens],
        /// Added to the sum of the weights, at least 0.
        pub eps: f64 where not_negative,
        /// Number of live tokens of each sequence, `[S]`, if the tail of the longest has no baseline; absent
        /// = it has one.
        pub lone_tail: Option<In<'a, u32>> [sequences],
        /// Advantages A, `[N]`.
        pub advantage: Out<'a, f32> [tokens],
    }
    unsafe "optimal_token_baseline", over cu_groups (_, _), work |k, row| k.tokens(row),
        let tokens = |k| k.cu_seqlens.sizes().0,
        let sequences = |k| k.cu_seqlens.rows(),
        check |k| require::length("cu_groups", k.cu_seqlens.rows(), "sequences", k.cu_groups.sizes().0);
}

impl OptimalTokenBaseline<'_> {
    /// Number of tokens of a group.
    fn tokens(&self, row: usize) -> usize {
        let group = self.cu_groups.span(row);
        match group.is_empty() {
            true => 0,
            false => self.cu_seqlens.span(group.end - 1).end - self.cu_seqlens.span(group.start).start,
        }
    }
}

/// Squared norm of the score (the gradient of logp with respect to the logits) of a token: 1 − 2p + Σ_v p_v².
///
/// `p` is the token's probability and `sum_squares` is Σ_v p_v². The result is at least 0, however the
/// arguments were rounded.
#[inline(always)]
pub fn score_norm(p: f64, sum_squares: f64) -> f64 {
    let norm = (1.0 - 2.0 * p) + sum_squares;
    if norm < 0.0 { 0.0 } else { norm }
}

#[derive(Clone, Copy)]
struct Tail<'a> {
    live: Option<In<'a, u32>>,
}

impl Tail<'_> {
    /// Number of live tokens of sequence `s`; 0 for every sequence without `lone_tail`.
    #[inline(always)]
    fn live(&self, s: usize) -> u32 {
        match self.live {
            Some(live) => live.at(s),
            None => 0,
        }
    }
}

impl Kernel for OptimalTokenBaseline<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (group, offsets, mask) = (self.cu_groups.span(row), self.cu_seqlens, self.loss_mask);
        let (returns, weights, advantage) = (self.returns, self.weights, *self.advantage);
        let (eps, one) = (self.eps, group.len() < 2);
        let tail = Tail { live: self.lone_tail };
        let (mut longest, mut most, mut second) = (0, 0, 0);
        let mut s = group.start;
        while s < group.end {
            let (length, live) = (offsets.span(s).len(), tail.live(s));
            longest = if length > longest { length } else { longest };
            let below = if live < most { live } else { most };
            second = if below > second { below } else { second };
            most = if live > most { live } else { most };
            s += 1;
        }
        team.for_each(Span::new(0, longest), move |t| {
            let (mut weighted, mut total) = (0.0, 0.0);
            let mut s = group.start;
            while s < group.end {
                let span = offsets.span(s);
                if t < span.len() {
                    let i = span.start + t;
                    let weight = f64::from(weights.at(i));
                    let live = mask.at(i);
                    weighted += if live { f64::from(returns.at(i)) * weight } else { 0.0 };
                    total += if live { weight } else { 0.0 };
                }
                s += 1;
            }
            let baseline = if one { 0.0 } else { num::div64(weighted, total + eps) };
            let mut s = group.start;
            while s < group.end {
                let span = offsets.span(s);
                if t < span.len() {
                    let i = span.start + t;
                    // If two sequences tie for the most, `second` equals `most` and neither is alone.
                    let alone = (tail.live(s) > second) & (t >= second as usize);
                    let baseline = if alone { 0.0 } else { baseline };
                    let centred = num::canonical((f64::from(returns.at(i)) - baseline) as f32);
                    advantage.put(i, if mask.at(i) { centred } else { 0.0 });
                }
                s += 1;
            }
        });
    }
}

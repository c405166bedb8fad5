//! Importance weights for rollout correction, and the loss mask after rejection.
//!
//! **Formula** (docs/maths/correction.md), with d = logp_old − logp_rollout:
//!
//! ```text
//! ρ = exp(clip(d, ±bound)) of a token, exp(clip(Σ d, ±bound)) of a sequence,
//!     exp(clip(mean d, ±bound)) geometric, or 1
//! truncate: w = clip(ρ, low, high)     mask: w = ρ if low <= ρ <= high, else 0     plain: w = ρ
//! kept_mask = loss_mask where token and sequence pass all rejections, else 0
//! weights   = w where kept, else 0
//! ```
//!
//! A weight multiplies the policy loss *after* the gate (docs/maths/disagreements.md, row 22); it is a
//! constant.
//!
//! **Shapes**: `logp_old`, `logp_rollout`, `weights`, `kept_mask` `[N]`; `row_sums` `[SUMS][S]`, `row_maxima`
//! `[4][S]`, `row_kept` `[S]`. Log-probabilities and log-ratios are in nats.
//!
//! **Special cases**: masked tokens have weight 0 and mask 0. A sequence may have no token left, because a
//! sequence statistic rejects it, because token statistics reject all of its tokens, or because it had no
//! live token. Its `row_kept` is then 0, its loss is 0, and it is excluded from its group's baseline (`valid`
//! of the group advantage). The band of a rule does not reject: under `mask`, a token outside it has weight 0
//! but stays in the mask. Statistics and batch normalisation use the weights before rejection, over the
//! original mask (verl).
//!
//! **Gradient**: none; no gradient flows through a weight.
//!
//! **Variants**: level, rule, bound and rejection of each framework:
//!
//! | framework | level | rule | bound | rejection |
//! |---|---|---|---|---|
//! | verl TIS, IcePop | token or sequence | truncate (high); mask (low, high) | 20 | any |
//! | TRL (default: sequence, mask, high 3) | token or sequence | truncate or mask | none | |
//! | slime | token | truncate 0 to 2, or IcePop | none | |
//! | NeMo RL seq-mask-tis | token | plain | none | seq_mean_k1 on ρ |
//! | AReaL decoupled PPO | token | plain (logp_old is the proximal policy) | none | any, seq_max_k1 too |
//! | ROLL | any | truncate or plain | none | k1 on ρ, diff |
//! | Geo-RS | one | | 20 | seq_mean_k1 on ρ |
//!
//! TRL's modes are named `token_truncate` … `sequence_mask`.
//!
//! Whether the loss is then divided by the token count of the original mask (AReaL, NeMo RL, TRL) or of the
//! kept mask (verl) is the caller's named choice (docs/maths/disagreements.md, row 5).

use super::reject::{Bands, Differences, Rejections, SequenceSums};
use super::{clip, k2_k3};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::flag;
use crate::ragged::{In, Mask, Offsets, Out, Stream};
use crate::require;
use crate::team::{Element, Lane, Team};

/// The level at which the ratio ρ is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum WeightLevel {
    /// ρ = 1: rejection only.
    One,
    /// The ratio of each token.
    #[default]
    Token,
    /// The product of the ratios of the sequence, shared by all of its tokens.
    Sequence,
    /// The geometric mean of the ratios of the sequence, shared by all of its tokens.
    Geometric,
}

crate::launch_args!(
    enum WeightLevel {
        One,
        Token,
        Sequence,
        Geometric,
    }
);

/// The rule that turns ρ into a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Rule {
    /// clip(ρ, low, high): TIS.
    #[default]
    Truncate,
    /// ρ if it is within [low, high], both ends included, else 0: IcePop, MIS.
    Mask,
    /// ρ itself.
    Plain,
}

crate::launch_args!(
    enum Rule {
        Truncate,
        Mask,
        Plain,
    }
);

/// Index of each statistic in `row_sums`: sums over live tokens, before rejection except for
/// [`KEPT`](sum::KEPT).
pub mod sum {
    /// Σ (w − 1).
    pub const EXCESS: usize = 0;
    /// Σ (w − 1)².
    pub const EXCESS_SQUARED: usize = 1;
    /// Σ w, which is accurate for weights near 0, where w − 1 is not.
    pub const WEIGHT: usize = 2;
    /// Σ (ρ − 1).
    pub const RAW_EXCESS: usize = 3;
    /// Number of tokens with ρ above the band.
    pub const ABOVE: usize = 4;
    /// Number of tokens with ρ below the band.
    pub const BELOW: usize = 5;
    /// Number of tokens kept by rejection.
    pub const KEPT: usize = 6;
    /// Number of live tokens.
    pub const TOKENS: usize = 7;
    /// Mean of w over the row; 0 without live tokens.
    pub const ROW_WEIGHT: usize = 8;
    /// 1 for a row with live tokens.
    pub const LIVE: usize = 9;
    /// Number of statistics.
    pub const SUMS: usize = 10;
}

/// Number of statistics that are sums of the sweep; they come first.
const TOKEN_SUMS: usize = 7;

crate::kernel! {
    /// The op `rollout_correction`: a weight and a mask entry per token, and statistics per sequence.
    pub struct RolloutCorrection<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// The trainer's log-probabilities, `[N]`.
        pub logp_old: In<'a, f32> [tokens],
        /// The sampler's log-probabilities, `[N]`.
        pub logp_rollout: In<'a, f32> [tokens],
        /// The level at which ρ is taken.
        pub level: WeightLevel,
        /// The rule that turns ρ into a weight.
        pub rule: Rule,
        /// Lower and upper bound of ρ, for the rule and for [`sum::ABOVE`] and [`sum::BELOW`].
        pub band: [f32; 2],
        /// Whether the lower bound applies to the rule; otherwise it applies only to the statistics.
        pub bounded_below: bool,
        /// Bound on log-ratios before they are exponentiated; ∞ = none.
        pub bound: f32 where bound,
        /// Which tokens and sequences are rejected.
        pub rejections: Rejections where valid,
        /// Weights, `[N]`.
        pub weights: Out<'a, f32> [tokens],
        /// 1 if the token is live and kept, `[N]`.
        pub kept_mask: Out<'a, u8> [tokens],
        /// 1 if the sequence has a token left, `[S]`.
        pub row_kept: Out<'a, u8> [sequences],
        /// Statistics of each sequence, `[SUMS][S]`; see [`sum`].
        pub row_sums: Out<'a, f64> [sum::SUMS * sequences],
        /// max w, max −w, max ρ and max −ρ, `[4][S]`.
        pub row_maxima: Out<'a, f32> [4 * sequences],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input is not a log-probability or a weight is
        /// not finite.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "rollout_correction", over cu_seqlens (tokens, sequences),
        require |k| {
            let [low, high] = k.band;
            let ordered = low >= 0.0 && low <= high && high > 0.0;
            let got = if low >= 0.0 { high } else { low };
            require::scalar("band", ordered, "0 <= low <= high, and high above 0", got)
        };
}

impl Kernel for RolloutCorrection<'_> {
    crate::row_by_variant!(0; 1);

    /// 1: with rejection by differences of probabilities, which cost two exponentials per token.
    #[inline(always)]
    fn variant(&self) -> usize {
        usize::from(self.rejections.difference != Differences::OPEN)
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let (span, mask, bound, rejections) =
            (self.cu_seqlens.span(row), self.loss_mask, self.bound, self.rejections);
        let (old, rollout) = (self.logp_old, self.logp_rollout);
        // No condition on the count: a condition kept live to the end would make gfx942 spill.
        let count = team.count(span, mask);
        let (tokens, n) = (count as f64, count.max(1) as f64);
        let ins = [Stream::Array(old), Stream::Array(rollout)];

        let of_sequence = matches!(self.level, WeightLevel::Sequence | WeightLevel::Geometric);
        // The bands of a token; a rejected sequence gets closed ones.
        let (mut shared, mut bands) = (0.0, rejections.token);
        if of_sequence | rejections.needs_sequences() {
            let swept = team.sweep(span, mask, ins, [], &Divergence { bound });
            let [total, k1, k2, k3] = swept.sums;
            let log = if self.level == WeightLevel::Geometric { num::div64(total, n) } else { total };
            shared = if of_sequence { clip(log as f32, bound) } else { 0.0 };
            let found = SequenceSums { tokens, sums: [k1, k2, k3], maxima: swept.maxima };
            if !rejections.keeps_sequence::<T::Arith>(found, bound) {
                bands = Bands::CLOSED;
            }
        }
        if V == 1 {
            let [sum] = team.sweep(span, mask, ins, [], &Difference).sums;
            if !rejections.difference.keeps_sequence(sum, n) {
                bands = Bands::CLOSED;
            }
        }
        // The rule as its cuts and the values beyond them: on a GPU, numbers are cheaper to keep than
        // conditions.
        let [low, high] = self.band;
        let lowest = if self.bounded_below { low } else { f32::NEG_INFINITY };
        let (cuts, ends) = match self.rule {
            Rule::Truncate => ([lowest, high], [low, high]),
            Rule::Mask => ([lowest, high], [0.0, 0.0]),
            Rule::Plain => ([f32::NEG_INFINITY, f32::INFINITY], [0.0, 0.0]),
        };
        let per_token = self.level == WeightLevel::Token;
        let difference = rejections.difference.token;
        let token = Token::<V> { shared, per_token, band: self.band, cuts, ends, bound, bands, difference };
        let swept = team.sweep(span, mask, ins, [Some(*self.weights)], &token);
        let kept_mask = *self.kept_mask;
        team.for_each(span, move |i| {
            kept_mask.put(i, u8::from(mask.at(i) & token.keeps::<T::Arith>(old.at(i), rollout.at(i))));
        });
        if team.leads() {
            let rows = self.cu_seqlens.rows();
            for (k, &value) in swept.sums.iter().enumerate() {
                self.row_sums.put(k * rows + row, value);
            }
            let total = swept.sums[sum::WEIGHT];
            self.row_sums.put(sum::TOKENS * rows + row, tokens);
            self.row_sums.put(sum::ROW_WEIGHT * rows + row, num::canonical64(num::div64(total, n)));
            self.row_sums.put(sum::LIVE * rows + row, count.min(1) as f64);
            for (k, &value) in swept.maxima.iter().enumerate() {
                self.row_maxima.put(k * rows + row, value);
            }
            self.row_kept.put(row, u8::from(swept.sums[sum::KEPT] > 0.0));
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

/// Sums of log-ratios and of k1, k2 and k3, for the statistics of a sequence.
struct Divergence {
    bound: f32,
}

impl Element<2, 0, 4, 2> for Divergence {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 4, 2> {
        // Bad inputs raise the alarm of the sweep that follows.
        let d = input(0) - input(1);
        let x = clip(d, self.bound);
        let [k2, k3] = k2_k3::<A>(x);
        Lane { out: [], sum: [d, -x, k2, k3], max: [d, -d], alarm: 0 }
    }
}

/// e^old − e^rollout.
#[inline(always)]
fn difference<A: Arith>(old: f32, rollout: f32) -> f32 {
    num::exp::<A>(old) - num::exp::<A>(rollout)
}

/// Sum of the differences of probabilities.
struct Difference;

impl Element<2, 0, 1, 0> for Difference {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        Lane { out: [], sum: [difference::<A>(input(0), input(1))], max: [], alarm: 0 }
    }
}

/// One token's weight and statistics; the fields are constant over a row.
#[derive(Clone, Copy)]
struct Token<const V: usize> {
    /// The shared log-ratio, unless `per_token`.
    shared: f32,
    per_token: bool,
    band: [f32; 2],
    /// Bounds of ρ, beyond which the weight is the corresponding entry of `ends`.
    cuts: [f32; 2],
    ends: [f32; 2],
    bound: f32,
    bands: Bands,
    difference: [f32; 2],
}

impl<const V: usize> Token<V> {
    /// Whether the token passes every rejection.
    #[inline(always)]
    fn keeps<A: Arith>(&self, old: f32, rollout: f32) -> bool {
        let kept = self.bands.keep::<A>(clip(old - rollout, self.bound));
        if V == 0 {
            return kept;
        }
        let ([low, high], difference) = (self.difference, difference::<A>(old, rollout));
        kept & (low <= difference) & (difference <= high)
    }
}

impl<const V: usize> Element<2, 1, TOKEN_SUMS, 4> for Token<V> {
    const COUNTS: u32 = 1 << sum::ABOVE | 1 << sum::BELOW | 1 << sum::KEPT;

    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, TOKEN_SUMS, 4> {
        let (old, rollout) = (input(0), input(1));
        let x = clip(old - rollout, self.bound);
        let log = if self.per_token { x } else { self.shared };
        let (rho, raw) = (num::exp::<A>(log), num::expm1::<A>(log));
        let (above, below) = (rho > self.band[1], rho < self.band[0]);
        let (cut_above, cut_below) = (rho > self.cuts[1], rho < self.cuts[0]);
        // w and w − 1 are selected alike, so that w − 1 loses no digits near 1.
        let weight = if cut_above { self.ends[1] } else { rho };
        let weight = if cut_below { self.ends[0] } else { weight };
        let excess = if cut_above | cut_below { weight - 1.0 } else { raw };
        let kept = self.keeps::<A>(old, rollout);
        let alarm = flag::worse(flag::logp(old), flag::logp(rollout));
        Lane {
            out: [if kept { weight } else { 0.0 }],
            sum: [
                excess,
                excess * excess,
                weight,
                raw,
                num::count(above),
                num::count(below),
                num::count(kept),
            ],
            max: [weight, -weight, rho, -rho],
            alarm: flag::worse(alarm, flag::finite(weight)),
        }
    }
}

//! The GMPO policy loss: one geometric-mean ratio per sequence, whose log-ratios are clipped token by token.
//!
//! **Formula** (2507.20673; docs/maths/gates.md), with d = guard(logp − logp_old), over the L_i live tokens
//! of sequence i:
//!
//! ```text
//! c_t = sgn(A_t)·min(sgn(A_t)·d_t, sgn(A_t)·clip(d_t, −clip_log_low, clip_log_high))     0 where A_t = 0
//! r_i = exp(Σ c_t / (L_i + 1e-8)),  A_i = Σ A_t / (L_i + 1e-8),  w_i = exp(Σ ln(w_t + 1e-10) / (L_i + 1e-8))
//! L   = Σ_i −A_i·r_i·w_i / denominator
//! ```
//!
//! The other [means](Mean) are from GMPO's ablations and from HMPO:
//!
//! ```text
//! ClippedSum  r_i = exp(clip(Σ d_t) / (L_i + 1e-8)), the clip as above by the sign of A_i
//! Product     r_i = exp(Σ c_t)
//! Harmonic    r_i = (L_i + 1e-8) / Σ exp(−c_t)
//! ```
//!
//! With `ClippedSum`, either all tokens of a sequence keep their gradient or none does. With `Product`, the
//! gradient is not divided by L_i. With `Harmonic`, dL/dlogp_t = −A_i·r_i·w_i·exp(−c_t) / (denominator·Σ
//! exp(−c_t)).
//!
//! **Gradient**: dL/dlogp_t = −A_i·r_i·w_i / (denominator·(L_i + 1e-8)) where c_t = d_t (A_t > 0:
//! d ≤ `clip_log_high`; A_t < 0: d ≥ −`clip_log_low`), else 0. A, w and logp_old are constants.
//!
//! **Shapes**: per token `[N]`, per sequence `[S]`; `row_sums` and `row_maxima` as in [`policy_loss`](super).
//!
//! **Special cases**: a token at a bound keeps its gradient. A_t = 0 gives c_t = 0 and no gradient. A
//! sequence without live tokens has loss 0, but is still counted if the denominator counts all rows. Outside
//! the guard's bound, the [guard](Guard) decides the gradient.
//!
//! **Variants** (docs/maths/disagreements.md, row 23): the bounds apply to the *logarithm*. verl uses
//! `clip_ratio_low` and `clip_ratio_high` as such bounds; the paper's band (e^−0.4, e^0.4) is 0.4 and 0.4. To
//! convert bounds on the ratio, use [`bounds_of_ratio`]. verl divides by *all* rows whatever aggregation is
//! set: the denominator is S.
//!
//! **Statistics**: those of [`sum`], with ratios of tokens. The gate's weight is 1 for a token that keeps its
//! gradient, else 0. As in verl, `CLIP_HIGH` and `CLIP_LOW` count every token outside the band, on either
//! side, in sequences with A_i > 0 and A_i < 0 respectively. The policy term of a token is that of its
//! sequence.

use super::{MetricsOut, sum};
use crate::Error;
use crate::aggregate::weight;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::ratio::Guard;
use crate::require;
use crate::team::{Element, Lane, Team};

/// Added to a length, as verl does.
const EPS: f64 = 1e-8;
/// Added to a weight before its logarithm, as verl does.
const WEIGHT_EPS: f32 = 1e-10;

/// How a sequence's ratio is formed from the ratios of its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Mean {
    /// The geometric mean of clipped ratios.
    #[default]
    Geometric,
    /// The geometric mean of ratios, with the sum of their logarithms clipped (`gmpo_seqclip`).
    ClippedSum,
    /// The product of clipped ratios (`gmpo_without_norm`).
    Product,
    /// The harmonic mean of clipped ratios (HMPO).
    Harmonic,
}

crate::launch_args!(
    enum Mean {
        Geometric,
        ClippedSum,
        Product,
        Harmonic,
    }
);

crate::kernel! {
    /// The op `policy_loss_gmpo`: a gradient coefficient per token, and optional losses and metrics.
    pub struct PolicyLossGmpo<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Log-probabilities of the current policy, `[N]`; the only differentiable input.
        pub logp: In<'a, f32> [tokens],
        /// Log-probabilities of the proximal policy, `[N]`.
        pub logp_old: In<'a, f32> [tokens],
        /// Advantage, `[S]` or `[N]`.
        pub advantage: In<'a, f32> [advantages],
        /// Whether `advantage` has one entry per token.
        pub advantage_per_token: bool,
        /// Rollout-correction weights, `[N]`; absent = 1.
        pub weights: Option<In<'a, f32>> [tokens],
        /// Guard of the token log-ratio.
        pub guard: Guard where valid,
        /// How a sequence's ratio is formed.
        pub mean: Mean,
        /// How far a log-ratio, or the sum for [`Mean::ClippedSum`], may fall below 0, in nats; at least 0.
        pub clip_log_low: f32,
        /// How far it may rise above 0, in nats; at least 0.
        pub clip_log_high: f32,
        /// Divisor of the sum over sequences; 0 gives a loss of 0.
        pub denominator: f64,
        /// The denominator from memory, in place of `denominator`: the sum of these partial counts, as in
        /// [`WeightFrom`](crate::aggregate::WeightFrom::denominator).
        pub denominator_from: Option<In<'a, u64>>,
        /// Gradient dL/dlogp, `[N]`.
        pub coef: Out<'a, f32> [tokens],
        /// Each sequence's share of the loss, `[S]`, if requested.
        pub row_loss: Option<Out<'a, f64>> [sequences],
        /// Number of live tokens, `[S]`.
        pub row_tokens: Out<'a, u32> [sequences],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input or a result is invalid.
        pub row_alarm: Out<'a, u32> [sequences],
        /// Metrics, if requested.
        pub metrics: Option<MetricsOut<'a>>,
    }
    unsafe "policy_loss_gmpo", over cu_seqlens (tokens, sequences),
        require |k| {
            check_bounds(k.clip_log_low, k.clip_log_high)?;
            match k.denominator_from {
                Some(partials) => weight::check_partials("denominator", partials),
                None => require::not_negative("denominator", k.denominator),
            }
        },
        let advantages = |k| if k.advantage_per_token { tokens } else { sequences },
        check |k| k.metrics.as_ref().map_or(Ok(()), |metrics| metrics.check_bounds(sequences));
}

impl PolicyLossGmpo<'_> {
    #[inline(always)]
    fn sequence<T: Team, const ANY: bool, const K: usize, const E: usize>(&self, team: &T, row: usize)
    where
        Token<ANY>: Element<4, 0, K, E>,
    {
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let tokens = team.count(span, mask);
        let advantage = match self.advantage_per_token {
            true => Stream::Array(self.advantage),
            false => Stream::Constant(self.advantage.at(row)),
        };
        let (logp, logp_old) = (Stream::Array(self.logp), Stream::Array(self.logp_old));
        let bounds = [-self.clip_log_low, self.clip_log_high];
        let of_sum = matches!(self.mean, Mean::ClippedSum);
        let [low, high] = if of_sum { [f32::NEG_INFINITY, f32::INFINITY] } else { bounds };
        let token = Token::<ANY> {
            guard: self.guard,
            inverse: matches!(self.mean, Mean::Harmonic),
            low,
            high,
            weighted: self.weights.is_some(),
            band: self.metrics.as_ref().map_or([0.0; 2], |metrics| metrics.band),
        };
        let first =
            team.sweep(span, mask, [logp, logp_old, advantage, Stream::or(self.weights, 1.0)], [], &token);
        let length = tokens as f64 + EPS;
        let mean = num::div64(first.sums[ADVANTAGE], length) as f32;
        let sum = first.sums[CLIPPED];
        let [low64, high64] = [f64::from(bounds[0]), f64::from(bounds[1])];
        let bounded = if (mean > 0.0) & (sum > high64) {
            high64
        } else if (mean < 0.0) & (sum < low64) {
            low64
        } else {
            sum
        };
        let sum_kept = !of_sum | (bounded == sum);
        // The divisor of a token's gradient, and the exponent of the ratio; ratio and weight share one
        // exponential.
        let (divisor, of_ratio) = match self.mean {
            Mean::Geometric => (length, num::div64(sum, length)),
            Mean::ClippedSum => (length, num::div64(bounded, length)),
            Mean::Product => (1.0, sum),
            Mean::Harmonic => (sum, 0.0),
        };
        let exponent = (of_ratio + num::div64(first.sums[LOG_WEIGHT], length)) as f32;
        let harmonic = if (ANY && token.inverse) & (tokens != 0) { num::div64(length, sum) } else { 1.0 };
        let denominator = weight::total(team, self.denominator_from, self.denominator);
        let scale = if denominator == 0.0 { 0.0 } else { num::div64(1.0, denominator) };
        // + 0: never −0.
        let loss = f64::from(-mean * num::exp::<T::Arith>(exponent)) * harmonic + 0.0;
        let divisor = if tokens == 0 { 1.0 } else { divisor };
        let value = if sum_kept { num::div64(loss * scale, divisor) as f32 } else { 0.0 };
        let kept = Kept::<ANY> { guard: token.guard, inverse: token.inverse, low, high, value };
        team.sweep(span, mask, [logp, logp_old, advantage], [Some(*self.coef)], &kept);
        if team.leads() {
            // A row has fewer than 2³² tokens: its offsets are u32.
            self.row_tokens.put(row, tokens as u32);
            self.row_alarm.put(row, flag::worse(first.alarm, flag::finite(value)));
            let loss = if tokens == 0 { 0.0 } else { num::canonical64(loss) };
            if let Some(row_loss) = &self.row_loss {
                row_loss.put(row, num::canonical64(loss * scale));
            }
            let maxima = (first.maxima.first(), first.maxima.last());
            if let (Some(metrics), (Some(&high), Some(&low))) = (&self.metrics, maxima) {
                let rows = self.cu_seqlens.rows();
                let sum = |k: usize| first.sums.get(k).copied().unwrap_or(0.0);
                let at = |k: usize| sum(FIRST_METRIC + k);
                let beyond = (first.sums[CLIPPED] < low64) | (first.sums[CLIPPED] > high64);
                let outside = match of_sum {
                    true if beyond => tokens as f64,
                    _ => sum(OUTSIDE),
                };
                let put = |k: usize, x: f64| metrics.row_sums.put(k * rows + row, x);
                put(sum::LOSS, num::canonical64(loss * scale));
                put(sum::POLICY, num::canonical64(loss * tokens as f64));
                put(sum::KL_REF, 0.0);
                put(sum::K1, at(0));
                put(sum::EXCESS, at(1));
                put(sum::EXCESS_SQUARED, at(2));
                put(sum::GATE, if sum_kept { at(3) } else { 0.0 });
                put(sum::CLIP_HIGH, if mean > 0.0 { outside } else { 0.0 });
                put(sum::CLIP_LOW, if mean < 0.0 { outside } else { 0.0 });
                put(sum::CLIP_DUAL, 0.0);
                put(sum::GUARDED, at(4));
                put(sum::IN_BAND, at(5));
                put(sum::NEG_LOGP, at(6));
                metrics.row_maxima.put(row, high);
                metrics.row_maxima.put(rows + row, low);
            }
        }
    }
}

/// Checks the clip bounds of a log-ratio.
///
/// Errors: [`Error::Value`] if either is negative or not finite.
pub fn check_bounds(low: f32, high: f32) -> Result<(), Error> {
    require::not_negative("clip_log_low", low)?;
    require::not_negative("clip_log_high", high)
}

/// Converts a clip range of the ratio to bounds of its logarithm: −ln(1 − low) and ln(1 + high).
///
/// The clip range of the ratio is from 1 − `low` to 1 + `high`.
///
/// ```
/// use lockstep_core::{num::Soft, policy_loss::gmpo::bounds_of_ratio};
/// assert_eq!(bounds_of_ratio::<Soft>(0.5, 1.0), [std::f32::consts::LN_2; 2]);
/// ```
pub fn bounds_of_ratio<A: Arith>(low: f32, high: f32) -> [f32; 2] {
    [-num::log1p::<A>(-low), num::log1p::<A>(high)]
}

impl Kernel for PolicyLossGmpo<'_> {
    #[inline(always)]
    fn variant(&self) -> usize {
        usize::from(self.metrics.is_some())
    }

    /// On a CPU, loops without a per-token test for a harmonic mean and a straight-through guard, unless the
    /// call has one.
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let any = !T::FAST_VARIANTS || self.mean == Mean::Harmonic || self.guard.is_straight_through();
        match (self.variant(), any) {
            (0, true) => team.row_as::<0, Self>(self, row),
            (0, false) => team.row_as::<2, Self>(self, row),
            (_, true) => team.row_as::<1, Self>(self, row),
            (_, false) => team.row_as::<3, Self>(self, row),
        }
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        match V {
            0 => self.sequence::<T, true, 3, 0>(team, row),
            1 => self.sequence::<T, true, 11, 2>(team, row),
            2 => self.sequence::<T, false, 3, 0>(team, row),
            _ => self.sequence::<T, false, 11, 2>(team, row),
        }
    }
}

/// Index of each sum of the first sweep.
const CLIPPED: usize = 0;
const ADVANTAGE: usize = 1;
const LOG_WEIGHT: usize = 2;
const OUTSIDE: usize = 3;
const FIRST_METRIC: usize = 4;

/// The first sweep: the sums for a sequence's ratio, advantage and weight.
#[derive(Clone, Copy)]
struct Token<const ANY: bool> {
    guard: Guard,
    /// Whether to sum inverse ratios; read only if `ANY`, that is, if the mean may be harmonic or the guard
    /// straight-through.
    inverse: bool,
    low: f32,
    high: f32,
    weighted: bool,
    band: [f32; 2],
}

/// A log-ratio clipped to the bounds that can be active for this sign of the advantage.
#[inline(always)]
fn clipped(d: f32, advantage: f32, low: f32, high: f32) -> f32 {
    let floor = if advantage < 0.0 && d < low { low } else { d };
    let both = if advantage > 0.0 && d > high { high } else { floor };
    if advantage == 0.0 { 0.0 } else { both }
}

impl<const ANY: bool> Token<ANY> {
    #[inline(always)]
    fn terms<A: Arith>(&self, input: &impl Fn(usize) -> f32) -> ([f32; 3], u32) {
        let (logp, logp_old, advantage, weight) = (input(0), input(1), input(2), input(3));
        let alarm = flag::worse(flag::logp(logp), flag::logp(logp_old));
        let alarm = flag::worse(alarm, flag::worse(flag::finite(advantage), flag::weight(weight)));
        let (d, _) = self.guard.apply_as::<A>(logp - logp_old);
        let log_weight = if self.weighted { num::ln::<A>(weight + WEIGHT_EPS) } else { 0.0 };
        let bounded = clipped(d, advantage, self.low, self.high);
        let term = if ANY && self.inverse { num::exp::<A>(-bounded) } else { bounded };
        ([term, advantage, log_weight], alarm)
    }
}

impl<const ANY: bool> Element<4, 0, 3, 0> for Token<ANY> {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 3, 0> {
        let (sum, alarm) = self.terms::<A>(&input);
        Lane { out: [], sum, max: [], alarm }
    }
}

impl<const ANY: bool> Element<4, 0, 11, 2> for Token<ANY> {
    const COUNTS: u32 = 1 << OUTSIDE | 0b111 << 7;

    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 11, 2> {
        let ([term, advantage, log_weight], alarm) = self.terms::<A>(&input);
        let (d, inside) = self.guard.apply_as::<A>(input(0) - input(1));
        let ratio = num::exp::<A>(d);
        let excess = ratio - 1.0;
        let kept = (clipped(d, advantage, self.low, self.high) == d) & (advantage != 0.0);
        let in_band = (ratio >= self.band[0]) & (ratio <= self.band[1]);
        let sum = [
            term,
            advantage,
            log_weight,
            num::count((d < self.low) | (d > self.high)),
            -d,
            excess,
            excess * excess,
            num::count(kept),
            num::count(!inside),
            num::count(in_band),
            -input(0),
        ];
        Lane { out: [], sum, max: [ratio, -ratio], alarm }
    }
}

/// The second sweep: writes the sequence's value for each token that keeps its gradient.
struct Kept<const ANY: bool> {
    guard: Guard,
    inverse: bool,
    low: f32,
    high: f32,
    value: f32,
}

impl<const ANY: bool> Element<3, 1, 0, 0> for Kept<ANY> {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let (d, inside) = self.guard.apply_as::<A>(input(0) - input(1));
        let advantage = input(2);
        let kept = (clipped(d, advantage, self.low, self.high) == d) & (advantage != 0.0);
        let value = if ANY && self.inverse { self.value * num::exp::<A>(-d) } else { self.value };
        let gradient = match ANY {
            true => self.guard.gradient(value, inside),
            false if inside => value,
            false => 0.0,
        };
        let coef = if kept { gradient } else { 0.0 };
        // A NaN must raise the alarm; otherwise the sweep does not make it the canonical NaN.
        Lane { out: [coef + 0.0], sum: [], max: [], alarm: flag::finite(coef) }
    }
}

//! Token weights that depend on how far the whole sequence has moved off-policy.
//!
//! **Formula** (docs/maths/gates.md), with d = logp − logp_behave, over the live tokens of a sequence with
//! advantage A, and u the caller's token weights (1 if absent). The weight of every live token is, by rule:
//!
//! * [`Vespo`](SequenceRule::Vespo): φ = exp(λ + k·ln W − λ·W) with
//!   ln W = clip(Σ clip(d, ±20) + Σ clip(ln u, ln 1e-8, 20), ln 1e-8, 20) and (k, λ) chosen by A ≥ 0.
//!   Source: VESPO as in TRL; bounds recalled.
//! * [`Topr`](SequenceRule::Topr): u, times min(exp(Σ d), 1) if A < 0. Source: TOPR, 2503.14286 (recalled).
//! * [`OffPolicyMask`](SequenceRule::OffPolicyMask): u, or 0 if A < 0 and mean(−d) > delta. Source:
//!   DeepSeek-V3.2; TRL, slime.
//!
//! With a REINFORCE gate, the first two give the whole loss l = −φ·A·logp; the mask can be combined with any
//! gate.
//!
//! **Shapes**: `logp`, `logp_behave`, `weights`, `out` `[N]`; `advantage` `[S]`.
//!
//! **Gradient**: none; weights are constants.
//!
//! **Special cases**: masked tokens write 0, so a sequence without live tokens writes only zeros. A φ that is
//! not finite becomes 0.
//!
//! **Variants**: for the mask, TRL takes `logp_behave` from the sampler if it has its log-probabilities,
//! slime takes `logp_old`; the op uses whichever is passed. VESPO includes u in φ and does not multiply by it
//! again.

use crate::Error;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::require;
use crate::team::{Element, Lane, Team};

/// The rule for the weight of a sequence's tokens; the formulas are in the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SequenceRule {
    /// VESPO's gamma weight.
    Vespo {
        /// k where A ≥ 0; TRL uses 2.
        k_pos: f32,
        /// λ where A ≥ 0; TRL uses 3.
        lambda_pos: f32,
        /// k where A < 0; TRL uses 3.
        k_neg: f32,
        /// λ where A < 0; TRL uses 2.
        lambda_neg: f32,
    },
    /// TOPR: full weight for A ≥ 0, and the sequence's ratio truncated at 1 for A < 0.
    Topr,
    /// Drops sequences with A < 0 from which the policy has moved away.
    OffPolicyMask {
        /// Largest mean of logp_behave − logp, in nats, of a sequence that is kept.
        delta: f32,
    },
}

impl SequenceRule {
    /// VESPO with TRL's constants.
    pub const VESPO: SequenceRule =
        SequenceRule::Vespo { k_pos: 2.0, lambda_pos: 3.0, k_neg: 3.0, lambda_neg: 2.0 };

    /// Checks the parameters.
    ///
    /// Errors: [`Error::Value`] if a k or λ is negative or not finite, or `delta` is not finite.
    pub fn check(&self) -> Result<(), Error> {
        match *self {
            SequenceRule::Vespo { k_pos, lambda_pos, k_neg, lambda_neg } => {
                require::not_negative("k_pos", k_pos)?;
                require::not_negative("lambda_pos", lambda_pos)?;
                require::not_negative("k_neg", k_neg)?;
                require::not_negative("lambda_neg", lambda_neg)
            }
            SequenceRule::Topr => Ok(()),
            SequenceRule::OffPolicyMask { delta } => require::finite("delta", delta),
        }
    }
}

crate::launch_args!(enum SequenceRule (k_pos: f32, lambda_pos: f32, k_neg: f32, lambda_neg: f32) {
    0 => Vespo { k_pos, lambda_pos, k_neg, lambda_neg }, 1 => Topr, 2 => OffPolicyMask { delta: k_pos }
});

/// VESPO's bound on the log-ratios of tokens and of the sequence.
const LOG_MAX: f32 = 20.0;
/// VESPO's lower bound on ln u and ln W, ln 1e-8.
const LOG_MIN: f32 = f32::from_bits(0xc193_5d8e); // -18.4206810
/// ln 1e-8 in binary64.
const LEAST: f64 = f64::from_bits(0xc032_6bb1_bbb5_5516); // -18.420680743952367

crate::kernel! {
    /// The op `sequence_weight`: one weight per token.
    pub struct SequenceWeight<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Log-probabilities of the current policy, `[N]`.
        pub logp: In<'a, f32> [tokens],
        /// Log-probabilities of the policy that the current one is compared with, `[N]`.
        pub logp_behave: In<'a, f32> [tokens],
        /// Advantage, `[S]`.
        pub advantage: In<'a, f32> [sequences],
        /// The caller's weights u, `[N]`; absent = 1.
        pub weights: Option<In<'a, f32>> [tokens],
        /// The rule for the weight.
        pub rule: SequenceRule where valid,
        /// Resulting weights, `[N]`.
        pub out: Out<'a, f32> [tokens],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input is invalid.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "sequence_weight", over cu_seqlens (tokens, sequences);
}

impl Kernel for SequenceWeight<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let tokens = team.count(span, mask);
        let vespo = matches!(self.rule, SequenceRule::Vespo { .. });
        let bound = if vespo { LOG_MAX } else { f32::INFINITY };
        let weights = Stream::or(self.weights, 1.0);
        let ins = [Stream::Array(self.logp), Stream::Array(self.logp_behave), weights];
        let swept =
            team.sweep(span, mask, ins, [], &Moved { bound, swallow: vespo & self.weights.is_some() });
        let [moved, rest, log_weights] = swept.sums;
        let moved = moved + rest;
        let advantage = self.advantage.at(row);
        let negative = advantage < 0.0;
        let (own, keep) = match self.rule {
            SequenceRule::Vespo { k_pos, lambda_pos, k_neg, lambda_neg } => {
                let (k, lambda) = if negative { (k_neg, lambda_neg) } else { (k_pos, lambda_pos) };
                // In binary64: the exponent is steep in ln W.
                let log_w = moved + log_weights;
                let log_w = if log_w > LEAST { log_w } else { LEAST };
                let log_w = if log_w < f64::from(LOG_MAX) { log_w } else { f64::from(LOG_MAX) };
                let (k, lambda) = (f64::from(k), f64::from(lambda));
                let phi = num::exp64(lambda + k * log_w - lambda * num::exp64(log_w)) as f32;
                (if phi <= f32::MAX { phi } else { 0.0 }, false)
            }
            SequenceRule::Topr => {
                let d = moved as f32;
                let truncated = num::exp::<T::Arith>(if d < 0.0 { d } else { 0.0 });
                (if negative { truncated } else { 1.0 }, true)
            }
            SequenceRule::OffPolicyMask { delta } => {
                let mean = num::div64(-moved, if tokens > 1 { tokens as f64 } else { 1.0 });
                (if negative & (mean > f64::from(delta)) { 0.0 } else { 1.0 }, true)
            }
        };
        team.sweep(span, mask, [weights], [Some(*self.out)], &Scaled { own, keep });
        if team.leads() {
            let alarm = if tokens == 0 { 0 } else { flag::finite(advantage) };
            self.row_alarm.put(row, flag::worse(swept.alarm, alarm));
        }
    }
}

/// x clamped to between two bounds.
#[inline(always)]
fn clip(x: f32, low: f32, high: f32) -> f32 {
    let raised = if x < low { low } else { x };
    if raised > high { high } else { raised }
}

/// Sums of clipped log-ratios, of what binary32 leaves of them, and of log-weights.
struct Moved {
    bound: f32,
    /// Whether the weights become part of the sequence's ratio.
    swallow: bool,
}

impl Element<3, 0, 3, 0> for Moved {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 3, 0> {
        let (logp, logp_behave, weight) = (input(0), input(1), input(2));
        let alarm = flag::worse(flag::weight(weight), flag::worse(flag::logp(logp), flag::logp(logp_behave)));
        let difference = logp - logp_behave;
        let d = clip(difference, -self.bound, self.bound);
        // What rounding took from the difference, exactly.
        let of_behave = difference - logp;
        let rest = (logp - (difference - of_behave)) - (logp_behave + of_behave);
        let rest = if d == difference { rest } else { 0.0 };
        let log_weight = if self.swallow { clip(num::ln::<A>(weight), LOG_MIN, LOG_MAX) } else { 0.0 };
        Lane { out: [], sum: [d, rest, log_weight], max: [], alarm }
    }
}

/// The sequence's weight, times the token's own if `keep`.
struct Scaled {
    own: f32,
    keep: bool,
}

impl Element<1, 1, 0, 0> for Scaled {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let weight = if self.keep { self.own * input(0) } else { self.own };
        // A NaN must raise the alarm; otherwise the sweep does not make it the canonical NaN.
        Lane { out: [weight], sum: [], max: [], alarm: flag::finite(weight) }
    }
}

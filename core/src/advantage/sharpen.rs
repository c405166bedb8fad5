//! Advantages adjusted by how likely the policy's own answers were: XRPO's novelty and ACE's overconfidence.
//!
//! **Formula** (docs/maths/rewards.md), with x_i the log-probability of sequence i, minus that of the
//! reference if there is one, divided by the number of tokens if `tokens` is given:
//!
//! ```text
//! Novelty         correct: A_i + min( max(λ (1 − η_i), 0), κ max(A_i, 0) ),  η_i = exp(x_i − mean x)
//! Overconfidence  A_i < 0: A_i · min(1 + α softplus(x_i), cap);  `relu`: max(x_i, 0) for the softplus
//! others          unchanged
//! ```
//!
//! `Novelty` is XRPO-style (2510.06672, from reviews, our reading): x per token, no reference, λ 2.5, κ 0.5.
//! `Overconfidence` is ACE (2602.21420; c_i is the paper's, the form and constants are from secondary
//! summaries or ours): x = log π_θ(y) − log π_ref(y) of the whole sequence, α 1, and a cap of 5 (ours,
//! because x grows with length).
//!
//! **Shapes**: `advantage`, `rewards`, `logp`, `logp_ref`, `tokens`, `sharpened` `[S]`; `cu_groups` `[G+1]`.
//! `logp` and `logp_ref` are sums over tokens, in nats: `row_sum` of
//! [`Aggregate`](crate::aggregate::Aggregate).
//!
//! **Special cases**: a sequence with a NaN reward, or one that is not `valid`, has advantage 0 and does not
//! enter the mean. If x is per token, a sequence without tokens has x = 0. A correct answer with a negative
//! advantage gets no bonus and no penalty (ours).
//!
//! **Accuracy**: x and the mean in binary64, one `f32` exponential, products in binary64, rounded to `f32`
//! once.
//!
//! **Gradient**: none; advantages are constants.

use super::members::Members;
use crate::Error;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::require;
use crate::team::Team;

/// How advantages are adjusted; the formulas are in the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sharpening {
    /// A bonus for correct answers that the policy found less likely than average (XRPO-style, our reading).
    Novelty {
        /// Coefficient λ of the bonus, at least 0; XRPO uses 2.5.
        lambda: f64,
        /// Largest bonus as a multiple κ of the advantage, at least 0; XRPO uses 0.5.
        kappa: f64,
    },
    /// Larger penalties for answers with a negative advantage that the policy finds likely (ACE).
    Overconfidence {
        /// Coefficient α of the softplus, at least 0; usually 1.
        alpha: f64,
        /// Largest factor, at least 1; usually 5.
        cap: f64,
        /// Uses max(x, 0) instead of the softplus.
        relu: bool,
    },
}

impl Sharpening {
    /// Checks the parameters.
    ///
    /// Errors: [`Error::Value`] if `lambda`, `kappa` or `alpha` is negative or not finite, or `cap` is
    /// below 1.
    pub fn check(self) -> Result<(), Error> {
        let (numbers, cap) = match self {
            Sharpening::Novelty { lambda, kappa } => ([("lambda", lambda), ("kappa", kappa)], 1.0),
            Sharpening::Overconfidence { alpha, cap, .. } => ([("alpha", alpha), ("alpha", alpha)], cap),
        };
        numbers.into_iter().try_for_each(|(argument, got)| require::not_negative(argument, got))?;
        require::scalar("cap", cap >= 1.0, "a number of at least 1", cap)
    }
}

crate::launch_args!(enum Sharpening (first: f64, second: f64) {
    0 => Novelty { lambda: first, kappa: second },
    1 => Overconfidence { alpha: first, cap: second, relu: false },
    2 => Overconfidence { alpha: first, cap: second, relu: true }
});

crate::kernel! {
    /// The op `sharpen`: one adjusted advantage per sequence.
    pub struct Sharpen<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Advantage of each sequence, `[S]`.
        pub advantage: In<'a, f32> [sequences],
        /// Outcome reward per sequence, `[S]`.
        pub rewards: In<'a, f32> [sequences],
        /// Which sequences are counted, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// An answer is correct if its reward is above this.
        pub threshold: f32 where finite,
        /// Log-probability of each sequence, `[S]`.
        pub logp: In<'a, f64> [sequences],
        /// Log-probability of each sequence under the reference, `[S]`; absent = 0.
        pub logp_ref: Option<In<'a, f64>> [sequences],
        /// Number of live tokens of each sequence, which x is divided by, `[S]`; absent = x of the whole
        /// sequence.
        pub tokens: Option<In<'a, u32>> [sequences],
        /// How advantages are adjusted.
        pub sharpening: Sharpening where valid,
        /// Adjusted advantages, `[S]`.
        pub sharpened: Out<'a, f32> [sequences],
    }
    unsafe "sharpen", over cu_groups (sequences, _);
}

impl Kernel for Sharpen<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        let members = Members { rewards: self.rewards, valid: self.valid };
        let (logp, logp_ref, tokens) = (self.logp, self.logp_ref, self.tokens);
        let score = move |i: usize| {
            let reference = match logp_ref {
                Some(reference) => reference.at(i),
                None => 0.0,
            };
            let length = match tokens {
                Some(tokens) => f64::from(tokens.at(i)),
                None => 1.0,
            };
            if length == 0.0 { 0.0 } else { num::div64(logp.at(i) - reference, length) }
        };
        let [n, total] = team.sum(span, move |i| if members.is(i) { [1.0, score(i)] } else { [0.0; 2] });
        let mean = num::div64(total, n);
        let (advantage, threshold) = (self.advantage, self.threshold);
        let (sharpening, out) = (self.sharpening, *self.sharpened);
        team.for_each(span, move |i| {
            let (a, x) = (f64::from(advantage.at(i)), score(i));
            let sharp = match sharpening {
                Sharpening::Novelty { lambda, kappa } => {
                    let likely = f64::from(num::exp::<T::Arith>((x - mean) as f32));
                    let bonus = lambda * (1.0 - likely);
                    let bonus = if bonus > 0.0 { bonus } else { 0.0 };
                    let limit = if a > 0.0 { kappa * a } else { 0.0 };
                    let bonus = if bonus > limit { limit } else { bonus };
                    a + if members.rewards.at(i) > threshold { bonus } else { 0.0 }
                }
                Sharpening::Overconfidence { alpha, cap, relu } => {
                    let x = x as f32;
                    let positive = if x < 0.0 { 0.0 } else { x };
                    let soft = num::log1p::<T::Arith>(num::exp::<T::Arith>(-x.abs()));
                    let excess = f64::from(positive) + if relu { 0.0 } else { f64::from(soft) };
                    let factor = 1.0 + alpha * excess;
                    let factor = if factor > cap { cap } else { factor };
                    a * if a < 0.0 { factor } else { 1.0 }
                }
            };
            out.put(i, if members.is(i) { num::canonical(sharp as f32) } else { 0.0 });
        });
    }
}

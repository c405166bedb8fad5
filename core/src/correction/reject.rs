//! Rejection of tokens and sequences for which the trainer's and the sampler's policies are too far apart.
//!
//! **Formula** (verl's rollout_rs; docs/maths/correction.md), with d = logp_old − logp_rollout,
//! x = clip(d, ±bound), k1 = −x, k2 = x²/2, k3 = e^x − 1 − x, and diff = e^logp_old − e^logp_rollout:
//!
//! ```text
//! token_k1, token_k2, token_k3, token_diff     the token stays if its number is in the band
//! seq_{sum,mean}_{k1,k2,k3,diff}               the sequence stays if its sum or mean over live tokens is
//! seq_max_k2, seq_max_k3                       … if its maximum is
//! seq_max_k1                                   … if the k1 of its largest ρ is (AReaL)
//! band of k1: ln low <= k1 <= ln high          of diff: low <= diff <= high          of k2, k3: at most high
//! ```
//!
//! If several rejections are set, all bands must hold. Both ends of a band are inside.
//!
//! **Special cases**: the mean, sum and maximum over no tokens are 0. A sequence statistic keeps or rejects
//! the whole sequence; a token statistic rejects single tokens. All statistics use the *original* mask: a
//! rejected token still counts in the statistics of its sequence.
//!
//! **Variants** (docs/maths/disagreements.md, row 9): verl's documentation describes a band on ρ, but its
//! code tests k1 = −ln ρ, which is a band on 1/ρ; the two agree only if low = 1/high. [`K1Band`] chooses
//! between them. Geometric rejection (Geo-RS, NeMo's seq-mask-tis) is `seq_mean_k1` with a band on ρ. ROLL
//! bounds ratios, differences of probabilities, or both.

use super::{clip, k2_k3};
use crate::Error;
use crate::num::{self, Arith, Soft};
use crate::require;

/// The ratio that a band for `k1` bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum K1Band {
    /// ρ = p_old / p_rollout: verl's documentation, Geo-RS, NeMo RL.
    #[default]
    Rho,
    /// 1/ρ: verl's code.
    InverseRho,
}

macro_rules! statistics {
    ($($statistic:ident $name:literal)*) => {
        /// The statistic that a rejection tests: verl's, AReaL's largest ratio, or ROLL's differences of
        /// probabilities.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "snake_case")
        )]
        #[allow(missing_docs)]
        pub enum Statistic { $($statistic),* }

        impl Statistic {
            /// All statistics.
            pub const ALL: [Statistic; [$($name),*].len()] = [$(Statistic::$statistic),*];

            /// The statistic's name; verl's name if verl has it.
            pub fn name(self) -> &'static str {
                match self { $(Statistic::$statistic => $name),* }
            }
        }
    };
}

statistics! {
    TokenK1 "token_k1"
    TokenK2 "token_k2"
    TokenK3 "token_k3"
    SeqSumK1 "seq_sum_k1"
    SeqSumK2 "seq_sum_k2"
    SeqSumK3 "seq_sum_k3"
    SeqMeanK1 "seq_mean_k1"
    SeqMeanK2 "seq_mean_k2"
    SeqMeanK3 "seq_mean_k3"
    SeqMaxK2 "seq_max_k2"
    SeqMaxK3 "seq_max_k3"
    SeqMaxK1 "seq_max_k1"
    TokenDiff "token_diff"
    SeqSumDiff "seq_sum_diff"
    SeqMeanDiff "seq_mean_diff"
}

impl Statistic {
    /// Whether its band is given as ratios.
    pub fn is_k1(self) -> bool {
        matches!(self, Statistic::TokenK1 | Statistic::SeqSumK1 | Statistic::SeqMeanK1 | Statistic::SeqMaxK1)
    }

    /// Whether the statistic is a difference of probabilities.
    pub fn is_difference(self) -> bool {
        matches!(self, Statistic::TokenDiff | Statistic::SeqSumDiff | Statistic::SeqMeanDiff)
    }
}

/// Bounds on k1, k2 and k3, in nats; those of k1 are values of k1, not ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bands {
    /// Lower and upper bound of k1.
    pub k1: [f32; 2],
    /// Upper bound of k2.
    pub k2: f32,
    /// Upper bound of k3.
    pub k3: f32,
}

crate::launch_args!(Bands { k1, k2, k3 });

impl Bands {
    /// Bands that reject nothing.
    pub const OPEN: Bands =
        Bands { k1: [f32::NEG_INFINITY, f32::INFINITY], k2: f32::INFINITY, k3: f32::INFINITY };
    /// Bands that reject everything.
    pub(super) const CLOSED: Bands = Bands { k1: [f32::INFINITY, f32::NEG_INFINITY], ..Bands::OPEN };

    #[inline(always)]
    fn hold(self, k1: f64, k2: f64, k3: f64) -> bool {
        let [low, high] = self.k1.map(f64::from);
        (low <= k1) & (k1 <= high) & (k2 <= f64::from(self.k2)) & (k3 <= f64::from(self.k3))
    }

    /// Whether a token with the clipped log-ratio `x` is kept.
    #[inline(always)]
    pub(super) fn keep<A: Arith>(self, x: f32) -> bool {
        let ([k2, k3], k1) = (k2_k3::<A>(x), -x);
        (self.k1[0] <= k1) & (k1 <= self.k1[1]) & (k2 <= self.k2) & (k3 <= self.k3)
    }

    fn is_open(self) -> bool {
        self == Bands::OPEN
    }
}

/// Bands of the difference p_old − p_rollout, each as lower and upper bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Differences {
    /// Band for each token.
    pub token: [f32; 2],
    /// Band for the sum over a sequence.
    pub sum: [f32; 2],
    /// Band for the mean over a sequence.
    pub mean: [f32; 2],
}

crate::launch_args!(Differences { token, sum, mean });

impl Differences {
    const EVERYTHING: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];
    /// Bands that reject nothing.
    pub const OPEN: Differences = Differences {
        token: Differences::EVERYTHING,
        sum: Differences::EVERYTHING,
        mean: Differences::EVERYTHING,
    };

    /// Whether a sequence with this sum of differences over `tokens` tokens (at least 1) is kept.
    #[inline(always)]
    pub(super) fn keeps_sequence(self, sum: f64, tokens: f64) -> bool {
        let inside = |[low, high]: [f32; 2], x: f64| (f64::from(low) <= x) & (x <= f64::from(high));
        inside(self.sum, sum) & inside(self.mean, num::div64(sum, tokens))
    }
}

/// All rejections together; unused ones are [open](Bands::OPEN).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rejections {
    /// Bands for each token.
    pub token: Bands,
    /// Bands for the sums over a sequence.
    pub sum: Bands,
    /// Bands for the means over a sequence.
    pub mean: Bands,
    /// Bands for the maxima over a sequence; for k1, the k1 of its largest ρ.
    pub max: Bands,
    /// Bands for the differences of probabilities.
    pub difference: Differences,
}

crate::launch_args!(Rejections { token, sum, mean, max, difference });

/// Sums and maxima from which a sequence's statistics are computed.
#[derive(Clone, Copy)]
pub(super) struct SequenceSums {
    /// Number of live tokens.
    pub(super) tokens: f64,
    /// Σ k1, Σ k2, Σ k3.
    pub(super) sums: [f64; 3],
    /// max d and max −d; −∞ without live tokens.
    pub(super) maxima: [f32; 2],
}

impl Rejections {
    /// No rejection: everything is kept.
    pub const NONE: Rejections = Rejections {
        token: Bands::OPEN,
        sum: Bands::OPEN,
        mean: Bands::OPEN,
        max: Bands::OPEN,
        difference: Differences::OPEN,
    };

    /// Adds a rejection by `statistic`, with bounds `low` and `high`.
    ///
    /// * For a `k1`, the bounds are ratios, on ρ or 1/ρ as `band` says; 0 and ∞ mean that there is no bound
    ///   at that end. An absent `low` is 1/high.
    /// * For a difference of probabilities, the bounds are differences. An absent `low` is −high.
    /// * For k2 and k3, in nats, `high` is the only bound.
    ///
    /// Errors: [`Error::Value`] for a `high` that is not positive and finite (a k1: positive; a difference:
    /// finite), or a `low` that is above `high`, negative (a k1) or not finite (a difference);
    /// [`Error::Combination`] for a `low` with k2 or k3.
    pub fn with(
        mut self,
        statistic: Statistic,
        low: Option<f32>,
        high: f32,
        band: K1Band,
    ) -> Result<Self, Error> {
        let value =
            |argument, expected, got: f32| Error::Value { argument, index: None, expected, got: got.into() };
        if statistic.is_difference() {
            if !high.is_finite() {
                return Err(value("rejection.high", "a finite number", high));
            }
            let low = low.unwrap_or(-high);
            if !(low.is_finite() && low <= high) {
                return Err(value("rejection.low", "a finite number, at most `high`", low));
            }
            let difference = &mut self.difference;
            *match statistic {
                Statistic::SeqSumDiff => &mut difference.sum,
                Statistic::SeqMeanDiff => &mut difference.mean,
                _ => &mut difference.token,
            } = [low, high];
            return Ok(self);
        }
        if !(high > 0.0 && (high.is_finite() || statistic.is_k1())) {
            return Err(value("rejection.high", "a positive finite number", high));
        }
        let group = match statistic {
            Statistic::SeqSumK1 | Statistic::SeqSumK2 | Statistic::SeqSumK3 => &mut self.sum,
            Statistic::SeqMeanK1 | Statistic::SeqMeanK2 | Statistic::SeqMeanK3 => &mut self.mean,
            Statistic::SeqMaxK1 | Statistic::SeqMaxK2 | Statistic::SeqMaxK3 => &mut self.max,
            _ => &mut self.token,
        };
        if statistic.is_k1() {
            let low = low.unwrap_or(num::div(1.0, high));
            if !(low >= 0.0 && low <= high) {
                return Err(value("rejection.low", "a number of at least 0, at most `high`", low));
            }
            // The library's own logarithm, because the host's differs between machines.
            let [low, high] = [low, high].map(num::ln::<Soft>);
            group.k1 = match band {
                K1Band::InverseRho => [low, high],
                K1Band::Rho => [-high, -low],
            };
            return Ok(self);
        }
        if low.is_some() {
            let expected = "none: k2 and k3 are at least 0 and have only an upper bound";
            return Err(Error::Combination { argument: "rejection.low", expected });
        }
        match statistic {
            Statistic::TokenK2 | Statistic::SeqSumK2 | Statistic::SeqMeanK2 | Statistic::SeqMaxK2 => {
                group.k2 = high;
            }
            _ => group.k3 = high,
        }
        Ok(self)
    }

    /// Whether there is no rejection.
    pub fn is_none(&self) -> bool {
        *self == Rejections::NONE
    }

    /// Whether a sequence statistic of k1, k2 or k3 is used.
    #[inline(always)]
    pub(super) fn needs_sequences(&self) -> bool {
        !(self.sum.is_open() & self.mean.is_open() & self.max.is_open())
    }

    /// Checks that no bound is NaN.
    ///
    /// Errors: [`Error::Value`] if one is.
    pub fn check(&self) -> Result<(), Error> {
        let Rejections { token, sum, mean, max, difference } = *self;
        let bands = [token, sum, mean, max].map(|own| [own.k1[0], own.k1[1], own.k2, own.k3]);
        let differences = [difference.token, difference.sum, difference.mean];
        let bounds = bands.as_flattened().iter().chain(differences.as_flattened());
        bounds.into_iter().try_for_each(|&bound| {
            require::scalar("rejections", !bound.is_nan(), "bounds that are not NaN", bound)
        })
    }

    /// Whether the sequence is kept.
    #[inline(always)]
    pub(super) fn keeps_sequence<A: Arith>(&self, found: SequenceSums, bound: f32) -> bool {
        let SequenceSums { tokens, sums: [k1, k2, k3], maxima } = found;
        let live = tokens > 0.0;
        let n = if live { tokens } else { 1.0 };
        // Both estimates are convex with their minimum at 0, so the largest is at the smallest or largest d.
        let top = clip(maxima[0], bound);
        let [high2, high3] = k2_k3::<A>(top);
        let [low2, low3] = k2_k3::<A>(clip(-maxima[1], bound));
        let largest = |a: f32, b: f32| f64::from(if !live { 0.0 } else { num::max(a, b) });
        self.sum.hold(k1, k2, k3)
            & self.mean.hold(num::div64(k1, n), num::div64(k2, n), num::div64(k3, n))
            & self.max.hold(
                if live { f64::from(-top) } else { 0.0 },
                largest(high2, low2),
                largest(high3, low3),
            )
    }
}

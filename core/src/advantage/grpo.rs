//! Group-relative advantages of outcome rewards: GRPO, Dr.GRPO, RLOO, OPO, GPG, MC-GRPO, MaxRL, pass@k and
//! others. Each is a [`Baseline`] with a [`Scale`], as [their table](super::baseline) lists.
//!
//! **Formula** (`statistics.md`, `advantages.md` and `correction.md` in docs/maths), over the n counted
//! members of a group:
//!
//! ```text
//! A_i = (R_i − b) / scale,   limited to ±limit
//! std = sqrt(Σ (R_i − mean)² / (n − ddof)),  eps outside the root
//! ```
//!
//! **Shapes**: `rewards`, `advantage`, `weights`, `lengths`, `residual` `[S]`; `cu_groups` `[G+1]`; `given`,
//! `mean`, `std`, `counted`, `status`, `pivot` `[G]`; `moments` [`[6]`](crate::aggregate::moments).
//!
//! **Special cases**:
//! * A member with a NaN reward, or with `valid` = 0, is *excluded*: it affects no statistic and its
//!   advantage is 0.
//! * If all counted rewards are equal, std is exactly 0 (decided on the inputs, max = min, never on a
//!   computed std), and so is every advantage whose baseline is a statistic of the group.
//! * With one counted member, [`Singleton`] decides for those baselines. With none, everything is 0.
//! * Ties go to the lowest index.
//!
//! **Accuracy**: the mean and the two-pass variance are binary64; the advantage rounds to `f32` once, and
//! `residual` is the rest. Medians
//! and leave-one-out deviations take n² steps, which suits groups of up to a few thousand.
//!
//! **Variants** (docs/maths/disagreements.md): ddof 1 (verl, TRL) or 0; eps 1e-6 (verl), 1e-4 (TRL), 1e-8,
//! 1e-9 (OpenRLHF); a group of one gets 0 (TRL) or the raw reward (verl's list version: b := 0, own
//! scale := 1). Against a given baseline, the scale of a group of one is 0, so R − b is not divided. VCPO's
//! code divides only by a deviation above 1e-8: `least_std`.
//!
//! The baselines are computed in `group_baseline.rs`; statistics over pairs of members are in `members.rs`.

use super::baseline::{Baseline, Scale};
use super::group_baseline::Summary;
use super::members::Members;
use crate::Error;
use crate::aggregate::moments;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::Team;

/// The advantage of a group with one counted member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Singleton {
    /// 0, since there is nothing to compare with (TRL).
    Zero,
    /// The reward: b := 0 and own scale := 1, so that A = R/(1 + eps), or R if the scale does not divide
    /// (verl).
    RawReward,
}

crate::launch_args!(
    enum Singleton {
        Zero,
        RawReward,
    }
);

/// Bits of the output `status`.
pub mod status {
    /// The group has one counted member.
    pub const SINGLETON: u32 = 1;
    /// All counted rewards are equal.
    pub const CONSTANT: u32 = 2;
    /// The group has no counted member.
    pub const NONE_COUNTED: u32 = 4;
    /// A reward was excluded because it is NaN.
    pub const NAN_EXCLUDED: u32 = 8;
    /// A counted reward is infinite, so the results of this group are meaningless.
    pub const INFINITE: u32 = 16;
    /// The weight of a counted member is negative or not finite, or the given baseline of a group that has
    /// members is not finite.
    pub const BAD_BASELINE: u32 = 32;
}

/// The `pivot` of a group without one.
pub const NO_PIVOT: u32 = u32::MAX;

crate::kernel! {
    /// The op `group_advantage`: one advantage per sequence, and the statistics of each group.
    pub struct GroupAdvantage<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Outcome reward per sequence, `[S]`.
        pub rewards: In<'a, f32> [sequences],
        /// Which sequences are counted, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// What rewards are compared with.
        pub baseline: Baseline where valid,
        /// What the difference is divided by.
        pub scale: Scale where valid,
        /// What a group with one counted member gets.
        pub singleton: Singleton,
        /// Largest magnitude of an advantage; ∞ = no limit.
        pub limit: f64 where bound,
        /// A standard deviation of at most this value is not divided by; at 0, only a deviation of exactly 0.
        /// For [`Scale::Std`] and [`Scale::Batch`]; 0 otherwise.
        pub least_std: f64 where not_negative,
        /// Weights of [`Baseline::Weighted`], `[S]`.
        pub weights: Option<In<'a, f32>> [sequences],
        /// Lengths of [`Baseline::Length`], `[S]`: `row_tokens` of
        /// [`Aggregate`](crate::aggregate::Aggregate).
        pub lengths: Option<In<'a, u32>> [sequences],
        /// Baseline or prior of each group, `[G]`.
        pub given: Option<In<'a, f32>> [groups],
        /// Statistics of the whole batch, `[6]`, as [`FoldMoments`](crate::aggregate::FoldMoments) writes
        /// them; they stay on the device, so the host does not wait.
        pub moments: Option<In<'a, f64>> [moments::MOMENTS],
        /// Advantages, `[S]`.
        pub advantage: Out<'a, f32> [sequences],
        /// The baseline, or the mean for `LeaveOneOut`, `[G]`.
        pub mean: Out<'a, f32> [groups],
        /// The scale without its eps or floor, or the standard deviation for `None` and `LeaveOneOutStd`,
        /// `[G]`.
        pub std: Out<'a, f32> [groups],
        /// Number of counted members, `[G]`.
        pub counted: Out<'a, u32> [groups],
        /// [`status`] bits, `[G]`.
        pub status: Out<'a, u32> [groups],
        /// Position of the pivot within its group, or [`NO_PIVOT`], `[G]`. MC-GRPO leaves the pivot out of
        /// the batch.
        pub pivot: Option<Out<'a, u32>> [groups],
        /// What rounding took from each advantage, `[S]`: GDPO's sums of advantages may cancel.
        pub residual: Option<Out<'a, f32>> [sequences],
    }
    unsafe "group_advantage", over cu_groups (sequences, groups), work |k, row| k.visits(row),
        require |k| {
            let expected = "0: only the scales std and batch divide by a standard deviation";
            if k.least_std > 0.0 && !k.holds_back() {
                return Err(Error::Combination { argument: "least_std", expected });
            }
            let absent = [
                ("weights", k.baseline.needs_weights() && k.weights.is_none()),
                ("lengths", k.baseline == Baseline::Length && k.lengths.is_none()),
                ("given", k.baseline.needs_given() && k.given.is_none()),
                ("moments", k.scale.needs_moments() && k.moments.is_none()),
            ];
            let expected = "needed by this baseline or scale";
            match absent.into_iter().find(|(_, absent)| *absent) {
                Some((argument, _)) => Err(Error::Combination { argument, expected }),
                None => Ok(()),
            }
        };
}

impl GroupAdvantage<'_> {
    /// Number of members that a row visits: medians and leave-one-out deviations visit every pair.
    fn visits(&self, row: usize) -> usize {
        let n = self.cu_groups.span(row).len();
        if self.variant() == 0 { n } else { n.saturating_mul(n) }
    }

    /// Whether `least_std` applies to the scale.
    #[inline(always)]
    fn holds_back(&self) -> bool {
        matches!(self.scale, Scale::Std { .. } | Scale::Batch { .. })
    }

    #[inline(always)]
    pub(super) fn members(&self) -> Members<'_> {
        Members { rewards: self.rewards, valid: self.valid }
    }
}

impl Kernel for GroupAdvantage<'_> {
    crate::row_by_variant!(0, 1; 2);

    /// 0: passes over the group only. 1 and 2 visit every pair of members, for medians and for leave-one-out
    /// deviations.
    #[inline(always)]
    fn variant(&self) -> usize {
        match (self.baseline, self.scale) {
            (_, Scale::LeaveOneOutStd { .. }) => 2,
            (Baseline::Median, _) | (_, Scale::Mad { .. }) => 1,
            _ => 0,
        }
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        let members = self.members();
        let counted = move |i| members.is(i);
        let reward = move |i| members.reward(i);
        let value = move |i| members.rewards.at(i);

        let [n, total, nan] = team.sum(span, move |i| {
            let is_nan = members.valid.at(i) && value(i).is_nan();
            [
                f64::from(u8::from(counted(i))),
                if counted(i) { reward(i) } else { 0.0 },
                f64::from(u8::from(is_nan)),
            ]
        });
        let high = team.max(span, move |i| if counted(i) { value(i) } else { f32::NEG_INFINITY });
        let low = team.min(span, move |i| if counted(i) { value(i) } else { f32::INFINITY });

        let (none, singleton) = (n == 0.0, n == 1.0);
        let constant = high == low && !none;
        let own = self.baseline.is_of_the_group();
        let raw = singleton && own && self.singleton == Singleton::RawReward;
        let mean = if none {
            0.0
        } else if constant {
            f64::from(low)
        } else {
            num::div64(total, n)
        };
        let [squares] = team.sum(span, move |i| {
            let centred = reward(i) - mean;
            [if counted(i) { centred * centred } else { 0.0 }]
        });
        let summary = Summary { n, total, high, low, mean, constant };
        let deviation = move |ddof: u32| {
            let freedom = n - f64::from(ddof);
            if constant || none { 0.0 } else { <T::Arith as Arith>::sqrt64(num::div64(squares, freedom)) }
        };

        let [weight, weighted, bad_weights] = self.weighted(team, span);
        let given = match self.given {
            Some(given) if !own => f64::from(given.at(row)),
            _ => 0.0,
        };
        let (baseline, pivot) =
            self.baseline_of::<V, T>(team, span, summary, [weight, weighted, given], squares);
        let baseline = if raw || (none && own) { 0.0 } else { baseline };
        let gain =
            if self.baseline == Baseline::LeaveOneOut && n > 1.0 { num::div64(n, n - 1.0) } else { 1.0 };

        let (spread, added) = match self.scale {
            Scale::None { ddof } => (deviation(ddof), 0.0),
            Scale::Std { ddof, eps } => (deviation(ddof), eps),
            Scale::LeaveOneOutStd { ddof, eps } => (deviation(ddof), eps),
            Scale::Mad { floor } => {
                let mad =
                    if V == 1 && n > 0.0 { members.median_distance(team, span, n, baseline) } else { 0.0 };
                (mad, floor)
            }
            Scale::Mean { eps } => (mean, eps),
            Scale::Batch { ddof, eps } => match self.moments {
                Some(batch) => (moments::std::<T::Arith>(batch, ddof), eps),
                None => (0.0, eps),
            },
            Scale::RootMeanSquare { ddof, eps } => {
                let (freedom, apart) = (n - f64::from(ddof), mean - baseline);
                let sum = gain * gain * (squares + n * (apart * apart));
                let root = <T::Arith as Arith>::sqrt64(num::div64(sum, freedom));
                (if freedom > 0.0 { root } else { 1.0 }, eps)
            }
            Scale::Nonzero { norm } => match self.moments {
                Some(batch) => (norm * moments::nonzero_fraction(batch), 0.0),
                None => (0.0, 0.0),
            },
        };
        let of_batch = self.scale.needs_moments();
        let spread = if raw && !of_batch { 1.0 } else { spread };
        let is_mad = matches!(self.scale, Scale::Mad { .. });
        // Unused where every member has its own deviation; reading it there would make gfx942 spill.
        let least_std = if V == 2 { 0.0 } else { self.least_std };
        let is_std = self.holds_back();
        let no_scale = (spread == 0.0 || (is_std && spread <= least_std)) && (!is_mad || added == 0.0);
        let undivided = matches!(self.scale, Scale::None { .. }) || no_scale;
        let divisor = if undivided { 1.0 } else { spread + added };

        let empty_weights =
            matches!(self.baseline, Baseline::Weighted { .. } | Baseline::Length) && weight == 0.0;
        let equal = constant && own && !empty_weights && !raw;
        let zero = none || equal || (matches!(self.scale, Scale::Mean { .. }) && spread == 0.0);
        let second = self.baseline == Baseline::Second && !raw;
        // Number of members at each extreme, to decide on the inputs which members have equal others.
        let mut ends = [0.0; 2];
        if V == 2 {
            ends = team.sum(span, move |i| {
                let at = move |end| f64::from(u8::from(counted(i) && value(i) == end));
                [at(low), at(high)]
            });
        }
        let (scale, limit, out) = (self.scale, self.limit, *self.advantage);
        let residual = self.residual.as_deref().copied();
        team.for_each(span, move |i| {
            let centred = gain * (reward(i) - baseline);
            let mut divisor = divisor;
            if V == 2
                && let Scale::LeaveOneOutStd { ddof, eps } = scale
            {
                let reward = value(i);
                let alike = constant
                    || (reward == high && ends[0] == n - 1.0)
                    || (reward == low && ends[1] == n - 1.0);
                divisor = if raw {
                    1.0 + eps
                } else if alike || n < 3.0 {
                    1.0
                } else {
                    members.std_of_others::<T::Arith>(span, i, n, ddof) + eps
                };
            }
            let advantage = num::div64(centred, divisor);
            let advantage = if advantage > limit {
                limit
            } else if advantage < -limit {
                -limit
            } else {
                advantage
            };
            let other = second && (i - span.start) as u32 != pivot;
            let advantage = if zero || other || !counted(i) { 0.0 } else { advantage };
            let rounded = num::canonical(advantage as f32);
            out.put(i, rounded);
            if let Some(residual) = &residual {
                residual.put(i, num::canonical((advantage - f64::from(rounded)) as f32));
            }
        });
        if team.leads() {
            let infinite = !none && (high == f32::INFINITY || low == f32::NEG_INFINITY);
            let bit = move |holds: bool, bit: u32| if holds { bit } else { 0 };
            let bits = bit(singleton, status::SINGLETON)
                | bit(constant, status::CONSTANT)
                | bit(none, status::NONE_COUNTED)
                | bit(nan > 0.0, status::NAN_EXCLUDED)
                | bit(infinite, status::INFINITE)
                | bit(bad_weights > 0.0 || (!given.is_finite() && !span.is_empty()), status::BAD_BASELINE);
            self.mean.put(row, num::canonical(baseline as f32));
            self.std.put(row, num::canonical(spread as f32));
            self.counted.put(row, n as u32);
            self.status.put(row, bits);
            if let Some(out) = &self.pivot {
                out.put(row, pivot);
            }
        }
    }
}

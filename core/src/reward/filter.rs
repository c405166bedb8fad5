//! Filters that decide which groups and sequences remain in a batch.
//!
//! **Formula** (docs/maths/advantages.md and docs/maths/rewards.md), over the n counted members of a group,
//! with x the metric of each; the statistic of each criterion is in the last column:
//!
//! ```text
//! Varied      keep the group iff max x ≠ min x or n ≤ 1    DAPO dynamic sampling 2503.14476         std
//! Spread      keep it iff std x > eta, ddof 0              UI-S1 2509.11543                         std
//! SolveRate   keep it iff mean 1[x > threshold] < limit    RAPO 2509.24107, at the end of an epoch  the mean
//! Balanced    keep it iff |Σ x| / n ≤ tau                  BRPO 2506.00103, secondary               |Σ x|/n
//! Equal       keep the sequences with x = value            PSR: 1, NSR: 0; 2506.01347               fraction
//! Nonzero     keep those with x ≠ 0                        SPIRAL 2506.24119                        fraction
//! AtMost      keep those with x ≤ limit                    DAPO overlong filtering, x the length    fraction
//! ```
//!
//! **Shapes**: `metric`, `keep` `[S]`; `kept`, `statistic` `[G]`; `cu_groups` `[G+1]`.
//!
//! **Special cases**: group criteria keep or drop a group as a whole, including members that are not counted
//! (NaN metric, or not `valid`); sequence criteria drop those members. A group without counted members is
//! kept by `Varied` only if it has at most one member in total, so that a group of several NaN is dropped;
//! `Spread`, `SolveRate` and `Balanced` drop it.
//!
//! **Accuracy**: `Varied` is decided on the inputs, max = min, never on a computed deviation (0.1 eight times
//! has a deviation of 1e-9 in binary32, docs/maths/statistics.md). Statistics are binary64, rounded to `f32`
//! once.

use crate::Error;
use crate::advantage::members::Members;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::require;
use crate::team::Team;

/// The condition for a group or sequence to remain; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Criterion {
    /// Keeps groups whose members differ, and groups of one.
    Varied,
    /// Keeps groups whose standard deviation (ddof 0) is above `eta`.
    Spread {
        /// Least deviation, exclusive; UI-S1: 0.3.
        eta: f64,
    },
    /// Keeps groups that are not solved yet.
    SolveRate {
        /// A metric above this counts as solved.
        threshold: f64,
        /// Solve rate from which a group is dropped; RAPO: 0.9.
        limit: f64,
    },
    /// Keeps groups whose mean is near 0.
    Balanced {
        /// Bound on |mean|; 0.6 in a reimplementation of BRPO.
        tau: f64,
    },
    /// Keeps sequences whose metric equals `value`.
    Equal {
        /// The value to keep.
        value: f64,
    },
    /// Keeps sequences whose metric is not 0.
    Nonzero,
    /// Keeps sequences whose metric is at most `limit`.
    AtMost {
        /// The largest metric to keep.
        limit: f64,
    },
}

impl Criterion {
    /// Whether the criterion keeps or drops whole groups.
    #[inline(always)]
    pub fn is_of_groups(self) -> bool {
        !matches!(self, Criterion::Equal { .. } | Criterion::Nonzero | Criterion::AtMost { .. })
    }

    /// Checks that the criterion's numbers are in their domain.
    ///
    /// Errors: a number that is not finite; a negative `eta` or `tau`.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Criterion::Spread { eta } => require::not_negative("eta", eta),
            Criterion::SolveRate { threshold, limit } => {
                require::finite("threshold", threshold)?;
                require::finite("limit", limit)
            }
            Criterion::Balanced { tau } => require::not_negative("tau", tau),
            Criterion::Equal { value } => require::finite("value", value),
            Criterion::AtMost { limit } => require::finite("limit", limit),
            Criterion::Varied | Criterion::Nonzero => Ok(()),
        }
    }
}

crate::launch_args!(enum Criterion (first: f64, second: f64) {
    0 => Varied, 1 => Spread { eta: first }, 2 => SolveRate { threshold: first, limit: second },
    3 => Balanced { tau: first }, 4 => Equal { value: first }, 5 => Nonzero, 6 => AtMost { limit: first }
});

crate::kernel! {
    /// The op `filter_groups`: which groups and sequences remain in the batch.
    pub struct FilterGroups<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Metric of each sequence, such as reward, accuracy, length or advantage, `[S]`.
        pub metric: In<'a, f32> [sequences],
        /// Sequences that count, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// The condition to remain.
        pub criterion: Criterion where valid,
        /// 1 if the sequence remains, else 0, `[S]`; serves as `valid` or as a mask of later ops.
        pub keep: Out<'a, u8> [sequences],
        /// Number of remaining sequences of the group, `[G]`.
        pub kept: Out<'a, u32> [groups],
        /// The statistic that was compared, `[G]`; 0 without counted members.
        pub statistic: Out<'a, f32> [groups],
    }
    unsafe "filter_groups", over cu_groups (sequences, groups);
}

impl Kernel for FilterGroups<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        let (members, criterion) = (Members { rewards: self.metric, valid: self.valid }, self.criterion);
        let wanted = move |i: usize| {
            let x = members.reward(i);
            members.is(i)
                && match criterion {
                    Criterion::SolveRate { threshold, .. } => x > threshold,
                    Criterion::Equal { value } => x == value,
                    Criterion::Nonzero => x != 0.0,
                    Criterion::AtMost { limit } => x <= limit,
                    _ => false,
                }
        };
        let [n, total, hits] = team.sum(span, move |i| {
            let one = |holds: bool| if holds { 1.0 } else { 0.0 };
            [one(members.is(i)), if members.is(i) { members.reward(i) } else { 0.0 }, one(wanted(i))]
        });
        let value = move |i| members.value_or(i, f32::NEG_INFINITY);
        let high = team.max(span, value);
        let low = team.min(span, move |i| members.value_or(i, f32::INFINITY));
        let constant = high == low;
        let mean = if constant { f64::from(low) } else { num::div64(total, n) };
        let [squares] = team.sum(span, move |i| {
            let centred = members.reward(i) - mean;
            [if members.is(i) { centred * centred } else { 0.0 }]
        });
        let std = if constant { 0.0 } else { <T::Arith as Arith>::sqrt64(num::div64(squares, n)) };
        let none = n == 0.0;
        let alone = span.len() <= 1 || n == 1.0;
        let (statistic, all) = match criterion {
            Criterion::Varied => (std, alone || !(constant || none)),
            Criterion::Spread { eta } => (std, !none && std > eta),
            Criterion::SolveRate { limit, .. } => (num::div64(hits, n), num::div64(hits, n) < limit),
            Criterion::Balanced { tau } => (num::div64(total, n).abs(), num::div64(total, n).abs() <= tau),
            _ => (num::div64(hits, n), false),
        };
        let (groups, out) = (criterion.is_of_groups(), *self.keep);
        team.for_each(span, move |i| out.put(i, u8::from(if groups { all } else { wanted(i) })));
        if team.leads() {
            let size = if all { span.len() as u32 } else { 0 };
            self.kept.put(row, if groups { size } else { hits as u32 });
            self.statistic.put(row, if none { 0.0 } else { num::canonical(statistic as f32) });
        }
    }
}

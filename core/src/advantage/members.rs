//! The counted members of a group. Passed by value: a closure that holds a reference to its kernel keeps the
//! kernel in memory on AMD (312 bytes of scratch, measured).

use super::grpo::NO_PIVOT;
use crate::num::{self, Arith};
use crate::ragged::{In, Mask, Span};
use crate::team::Team;

/// Rewards, and which of them are counted.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    pub(crate) rewards: In<'a, f32>,
    pub(crate) valid: Mask<'a>,
}

impl Members<'_> {
    /// Whether member i is counted: it is valid and its reward is not NaN.
    #[inline(always)]
    pub(crate) fn is(self, i: usize) -> bool {
        self.valid.at(i) && !self.rewards.at(i).is_nan()
    }

    /// Reward of member i.
    #[inline(always)]
    pub(crate) fn reward(self, i: usize) -> f64 {
        f64::from(self.rewards.at(i))
    }

    /// Reward of member i, or `other` if it is not counted.
    #[inline(always)]
    pub(crate) fn value_or(self, i: usize, other: f32) -> f32 {
        if self.is(i) { self.rewards.at(i) } else { other }
    }

    /// Distance of member i's reward from `centre`; NaN if it is not counted.
    #[inline(always)]
    fn distance(self, i: usize, centre: f64) -> f64 {
        let distance = (self.reward(i) - centre).abs();
        if self.is(i) { distance } else { f64::NAN }
    }

    /// Reward of member i; NaN if it is not counted.
    #[inline(always)]
    fn value(self, i: usize) -> f64 {
        if self.is(i) { self.reward(i) } else { f64::NAN }
    }

    /// Position of the lower median of the n counted members; the lowest position among equal rewards.
    #[inline(always)]
    pub(crate) fn median<T: Team>(self, team: &T, span: Span, n: f64) -> u32 {
        select(team, span, (n as u32 - 1) / 2, move |i| self.value(i))
    }

    /// Lower median of the distances of the n counted members from `centre`.
    #[inline(always)]
    pub(crate) fn median_distance<T: Team>(self, team: &T, span: Span, n: f64, centre: f64) -> f64 {
        let middle = select(team, span, (n as u32 - 1) / 2, move |i| self.distance(i, centre));
        // Infinite rewards have unordered distances; the group's status reports them.
        if middle == NO_PIVOT { 0.0 } else { self.distance(span.start + middle as usize, centre) }
    }

    /// Standard deviation of the counted members other than `skip`; n includes `skip`.
    #[inline(always)]
    pub(crate) fn std_of_others<A: Arith>(self, span: Span, skip: usize, n: f64, ddof: u32) -> f64 {
        let mut total = 0.0;
        let mut j = span.start;
        while j < span.end {
            total += if j != skip && self.is(j) { self.reward(j) } else { 0.0 };
            j += 1;
        }
        let mean = num::div64(total, n - 1.0);
        let mut squares = 0.0;
        let mut j = span.start;
        while j < span.end {
            let centred = self.reward(j) - mean;
            squares += if j != skip && self.is(j) { centred * centred } else { 0.0 };
            j += 1;
        }
        A::sqrt64(num::div64(squares, n - 1.0 - f64::from(ddof)))
    }
}

/// Lowest position in `span` of a member whose `key` is the k-th smallest, counted from 0; members with a NaN
/// key are left out. Takes n² steps.
#[inline(always)]
fn select<T: Team>(team: &T, span: Span, k: u32, key: impl Fn(usize) -> f64 + Copy) -> u32 {
    let lowest = team.min(span, move |i| {
        let own = key(i);
        let (mut below, mut equal) = (0u32, 0u32);
        let mut j = span.start;
        while j < span.end {
            let other = key(j);
            below += u32::from(other < own);
            equal += u32::from(other == own);
            j += 1;
        }
        if below <= k && k < below + equal { (i - span.start) as f32 } else { f32::INFINITY }
    });
    if lowest == f32::INFINITY { NO_PIVOT } else { lowest as u32 }
}

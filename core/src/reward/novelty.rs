//! EVOL-RL: reward bands by majority vote, placed within each band by novelty.
//!
//! **Formula** (2509.15194; docs/maths/rewards.md), with S the similarities within a group and w the weight
//! of the mean:
//!
//! ```text
//! u_i = 1 − ( w · mean_{j ≠ i of i's class} S_ij + (1 − w) · max_{j ≠ i} S_ij )
//! n_i = (u_i − min u)/(max u − min u) over i's class;
//!       1 in a class of one, 1/2 where all u of a class are equal
//! R_i = majority + width · n_i,   minority + width · n_i,   or `invalid`
//! ```
//!
//! With the paper's numbers: 0.5 to 1 for the majority and −1 to −0.5 for the others; 1.0 and −0.5 for a
//! class of one; 0.75 and −0.75 if all members of a class are equally novel.
//!
//! **Shapes**: `classes`, `novelty`, `shaped` `[S]`; `similarity` `[Σ n²]`, the n × n matrices of the groups
//! one after the other in row-major order; `pair_start` `[G]`, the index at which each matrix begins;
//! `cu_groups` `[G+1]`.
//!
//! **Special cases**: invalid answers have no novelty and are excluded from the neighbours of others (our
//! choice: they have no answer to compare). A sequence that is not `valid` gets NaN, "no score". The diagonal
//! of S has no effect. A class of one uses the mean over all other answers (visible only in `novelty`). A NaN
//! similarity makes the rewards of its class NaN; the host rejects it.
//!
//! **Accuracy**: similarities in binary64; novelty is rounded to `f32` once, and the bands are decided and
//! computed from these `f32` values. Five passes of n² steps each.

use crate::Error;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::require;
use crate::team::Team;

/// Class of an answer other than the majority's.
pub const MINORITY: u32 = 0;
/// Class of the majority's answer.
pub const MAJORITY: u32 = 1;
/// Class of a missing answer; larger numbers mean the same.
pub const INVALID: u32 = 2;

crate::kernel! {
    /// The op `novelty_bands`: EVOL-RL's reward of each sequence.
    pub struct NoveltyBands<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Start of each group's matrix in `similarity`, `[G]`.
        pub pair_start: In<'a, u64> [groups],
        /// Similarities, `[Σ n²]`.
        pub similarity: In<'a, f32>,
        /// Class of each answer: [`MINORITY`], [`MAJORITY`] or [`INVALID`], `[S]`.
        pub classes: In<'a, u32> [sequences],
        /// Sequences that count, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// w, from 0 to 1; the paper's value is 0.5.
        pub mean_weight: f64 where unit,
        /// Lowest reward of the majority; the paper's value is 0.5.
        pub majority: f64 where finite,
        /// Lowest reward of the minority; the paper's value is −1.
        pub minority: f64 where finite,
        /// Width of a band; the paper's value is 0.5.
        pub width: f64 where finite,
        /// Reward of an invalid answer; −1.
        pub invalid: f64 where finite,
        /// Shaped reward, `[S]`.
        pub shaped: Out<'a, f32> [sequences],
        /// Novelty u, `[S]`; 0 if absent.
        pub novelty: Out<'a, f32> [sequences],
    }
    unsafe "novelty_bands", over cu_groups (sequences, groups),
        work |k, row| k.cu_groups.span(row).len().saturating_pow(2),
        check |k| k.check_indices();
}

impl NoveltyBands<'_> {
    fn check_indices(&self) -> Result<(), Error> {
        let expected = "a start followed by the n² similarities of its group";
        for group in 0..self.cu_groups.rows() {
            let (n, first) = (self.cu_groups.span(group).len() as u64, self.pair_start.at(group));
            if first.saturating_add(n.saturating_mul(n)) > self.similarity.len() as u64 {
                return Err(require::value("pair_start", Some(group), expected, first as f64));
            }
        }
        Ok(())
    }
}

/// A group by value, so that closures capture it instead of the kernel.
#[derive(Clone, Copy)]
struct Answers<'a> {
    span: Span,
    first: usize,
    similarity: In<'a, f32>,
    classes: In<'a, u32>,
    valid: Mask<'a>,
    mean_weight: f64,
}

impl Answers<'_> {
    #[inline(always)]
    fn has_novelty(self, i: usize) -> bool {
        self.valid.at(i) && self.classes.at(i) < INVALID
    }

    #[inline(always)]
    fn is_of(self, i: usize, class: u32) -> bool {
        self.valid.at(i) && self.classes.at(i) == class
    }

    #[inline(always)]
    fn novelty(self, i: usize) -> f32 {
        let row = self.first + (i - self.span.start) * self.span.len();
        let own = self.classes.at(i);
        let (mut peers, mut peer_sum, mut others, mut sum) = (0.0, 0.0, 0.0, 0.0);
        let mut nearest = f64::NEG_INFINITY;
        let mut j = self.span.start;
        while j < self.span.end {
            let counts = j != i && self.has_novelty(j);
            let s = f64::from(self.similarity.at(row + (j - self.span.start)));
            let peer = counts && self.classes.at(j) == own;
            peers += if peer { 1.0 } else { 0.0 };
            peer_sum += if peer { s } else { 0.0 };
            others += if counts { 1.0 } else { 0.0 };
            sum += if counts { s } else { 0.0 };
            // A NaN enters and stays.
            nearest = if counts && (s > nearest || s.is_nan()) { s } else { nearest };
            j += 1;
        }
        let mean = if peers > 0.0 { num::div64(peer_sum, peers) } else { num::div64(sum, others) };
        let u = 1.0 - (self.mean_weight * mean + (1.0 - self.mean_weight) * nearest);
        num::canonical(if others == 0.0 { 0.0 } else { u as f32 })
    }

    /// Number of members, least and greatest novelty of a class.
    #[inline(always)]
    fn range<T: Team>(self, team: &T, class: u32) -> (f64, f32, f32) {
        let [n] = team.sum(self.span, move |i| [if self.is_of(i, class) { 1.0 } else { 0.0 }]);
        let of = move |i, other| if self.is_of(i, class) { self.novelty(i) } else { other };
        let low = team.min(self.span, move |i| of(i, f32::INFINITY));
        (n, low, team.max(self.span, move |i| of(i, f32::NEG_INFINITY)))
    }
}

impl Kernel for NoveltyBands<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let answers = Answers {
            span: self.cu_groups.span(row),
            first: self.pair_start.at(row) as usize,
            similarity: self.similarity,
            classes: self.classes,
            valid: self.valid,
            mean_weight: self.mean_weight,
        };
        let (n_major, low_major, high_major) = answers.range(team, MAJORITY);
        let (n_minor, low_minor, high_minor) = answers.range(team, MINORITY);
        let (majority, minority, width, invalid) = (self.majority, self.minority, self.width, self.invalid);
        let (shaped, novelty) = (*self.shaped, *self.novelty);
        team.for_each(answers.span, move |i| {
            let major = answers.is_of(i, MAJORITY);
            let n = if major { n_major } else { n_minor };
            let (low, high) = if major { (low_major, high_major) } else { (low_minor, high_minor) };
            let (low, high) = (f64::from(low), f64::from(high));
            let u = if answers.has_novelty(i) { answers.novelty(i) } else { 0.0 };
            let inside = num::div64(f64::from(u) - low, high - low);
            let inside = if high == low { 0.5 } else { inside };
            let inside = if n == 1.0 { 1.0 } else { inside };
            let reward = if major { majority } else { minority } + width * inside;
            let reward = if answers.has_novelty(i) { reward } else { invalid };
            shaped.put(
                i,
                if answers.valid.at(i) { num::canonical(reward as f32) } else { num::canonical_nan() },
            );
            novelty.put(i, u);
        });
    }
}

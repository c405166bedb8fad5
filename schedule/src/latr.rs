//! LATR: branches where a second token is likely enough, and prunes branches that turn out to say the same.
//!
//! **Formula** (2510.24302, official code; docs/maths/schedules.md):
//!
//! ```text
//! branch: candidate j >= 2 goes on when p_j > 0.15 and p_1 − p_j < 0.25; the first always does;
//!     at most 2 per token
//! capacity G of a root: candidates in order of (rank, row) until G are kept
//! look-ahead, when a branch is r ∈ {20, 30, 50} tokens old, its last r tokens against its parent's:
//!     prune if suffix match > 0.2 or ROUGE-L > 0.5 (or edit distance/r < threshold, when enabled);
//!     not if either has an end-of-sequence token
//! optional: prune a branch with ln p − max ln p < step · ln(threshold)
//! ```
//!
//! The share of LATR rollouts decreases from 1 to 0.25 over training: [`ramp`](super::ramp).
//!
//! **Shapes**: probabilities of the candidates in descending order `[n]`; `tokens` `[r]`; number of
//! candidates per row `[rows]`.
//!
//! **Variants**: "2 per token" is read as two candidates in total, including the first; the divisor of the
//! suffix match is r (our reading of the notes).

use super::overlap;
use lockstep_core::Error;
use lockstep_core::num;
use lockstep_core::require;

/// Parameters of branching and pruning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latr {
    /// A candidate's probability must exceed this.
    pub probability: f64,
    /// A candidate's probability must be less than this below the first candidate's.
    pub gap: f64,
    /// Candidates per token, including the first; at least 1.
    pub candidates: u32,
    /// Ages, in tokens, at which a branch is compared with its parent.
    pub ages: [u32; 3],
    /// A suffix match above this prunes.
    pub suffix: f64,
    /// A ROUGE-L above this prunes.
    pub rouge: f64,
    /// An edit distance per token below this prunes; absent to disable.
    pub edit: Option<f64>,
}

impl Default for Latr {
    fn default() -> Self {
        Latr {
            probability: 0.15,
            gap: 0.25,
            candidates: 2,
            ages: [20, 30, 50],
            suffix: 0.2,
            rouge: 0.5,
            edit: None,
        }
    }
}

impl Latr {
    /// Checks that the parameters are in their domain.
    pub fn check(&self) -> Result<(), Error> {
        require::scalar("candidates", self.candidates > 0, "at least 1", 0.0)?;
        let edit = self.edit.unwrap_or(0.0);
        for (name, x) in [
            ("probability", self.probability),
            ("gap", self.gap),
            ("suffix", self.suffix),
            ("rouge", self.rouge),
            ("edit", edit),
        ] {
            require::scalar(name, x >= 0.0, "at least 0", x)?;
        }
        Ok(())
    }

    /// Returns how many leading candidates continue, at least 1.
    ///
    /// Errors: no candidate; a probability outside 0..=1 or above its predecessor (with its index).
    pub fn branches(&self, probabilities: &[f64]) -> Result<u32, Error> {
        self.check()?;
        require::some("probabilities", "at least one candidate", probabilities.len())?;
        require::each("probabilities", probabilities, "0 to 1", |p| (0.0..=1.0).contains(&p))?;
        if let Some(i) = (1..probabilities.len()).find(|i| probabilities[*i] > probabilities[*i - 1]) {
            let expected = "at most the entry before it";
            return Err(require::value("probabilities", Some(i), expected, probabilities[i]));
        }
        let first = probabilities[0];
        let goes_on = |p: &&f64| **p > self.probability && first - **p < self.gap;
        let more = probabilities[1..].iter().take_while(goes_on).count();
        Ok((more as u32).saturating_add(1).min(self.candidates))
    }

    /// Whether a branch of this age is compared with its parent.
    pub fn compares(&self, age: u32) -> bool {
        self.ages.contains(&age)
    }

    /// Whether a branch is pruned, given its last r tokens and its parent's last r tokens. `row` is scratch
    /// of [`overlap::scratch`]`(parent.len())`.
    ///
    /// Errors: parameters outside their domain; lengths that differ; too little scratch.
    pub fn prunes(
        &self,
        branch: &[u32],
        parent: &[u32],
        end_of_sequence: Option<u32>,
        row: &mut [u32],
    ) -> Result<bool, Error> {
        self.check()?;
        require::length("branch", parent.len(), "the length of `parent`", branch.len())?;
        require::room("row", overlap::scratch(parent.len()), row.len())?;
        let ends = |tokens: &[u32]| end_of_sequence.is_some_and(|end| tokens.contains(&end));
        if branch.is_empty() || ends(branch) || ends(parent) {
            return Ok(false);
        }
        if overlap::suffix_match(branch, parent) > self.suffix
            || overlap::rouge_l(branch, parent, row)? > self.rouge
        {
            return Ok(true);
        }
        let Some(threshold) = self.edit else { return Ok(false) };
        Ok(f64::from(overlap::edit_distance(branch, parent, row)?) / (branch.len() as f64) < threshold)
    }
}

/// Computes how many of its candidates each row keeps if a root has room for `capacity`: all first candidates
/// before any second ones, row by row.
///
/// Errors: lengths that disagree.
pub fn fit(candidates: &[u32], capacity: u32, kept: &mut [u32]) -> Result<(), Error> {
    require::length("kept", candidates.len(), "one per row", kept.len())?;
    kept.fill(0);
    let mut left = capacity;
    let ranks = candidates.iter().copied().max().unwrap_or(0);
    for rank in 0..ranks {
        for (n, kept) in candidates.iter().zip(kept.iter_mut()) {
            if left == 0 {
                return Ok(());
            }
            if *n > rank {
                *kept += 1;
                left -= 1;
            }
        }
    }
    Ok(())
}

/// The cumulative filter: whether a branch other than the root falls too far behind the likeliest one. A NaN
/// prunes nothing.
///
/// Errors: a threshold outside (0, 1].
pub fn falls_behind(log_p: f64, log_p_max: f64, step: u32, threshold: f64) -> Result<bool, Error> {
    require::scalar("threshold", threshold > 0.0 && threshold <= 1.0, "above 0, at most 1", threshold)?;
    Ok(log_p - log_p_max < f64::from(step) * num::ln64(threshold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_need_probability_and_nearness() {
        let latr = Latr::default();
        for (p, n) in [
            (&[0.5, 0.3][..], 2),
            (&[0.5, 0.25], 1), // 0.25 below is too far
            (&[0.3, 0.15], 1), // 0.15 is not above 0.15
            (&[0.3, 0.16], 2),
            (&[0.3, 0.25, 0.2], 2), // two in all
            (&[1.0], 1),
        ] {
            assert_eq!(latr.branches(p), Ok(n), "{p:?}");
        }
        assert_eq!(Latr { candidates: 9, ..latr }.branches(&[0.3, 0.25, 0.2, 0.1]), Ok(3));
        let e = latr.branches(&[0.3, 0.4]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "probabilities", index: Some(1), .. }));
        assert!(matches!(latr.branches(&[]), Err(Error::Empty { argument: "probabilities", .. })));
    }

    #[test]
    fn capacity_is_filled_by_rank_then_row() {
        let mut kept = [0; 3];
        for (capacity, expected) in
            [(9, [2, 1, 2]), (5, [2, 1, 2]), (4, [2, 1, 1]), (2, [1, 1, 0]), (0, [0; 3])]
        {
            fit(&[2, 1, 2], capacity, &mut kept).unwrap();
            assert_eq!(kept, expected, "{capacity}");
        }
    }

    #[test]
    fn branches_that_say_the_same_are_pruned() {
        let latr = Latr::default();
        let parent: [u32; 20] = core::array::from_fn(|i| i as u32);
        let mut row = [0; 21];
        let mut prunes =
            |branch: &[u32; 20], latr: Latr, end| latr.prunes(branch, &parent, end, &mut row).unwrap();
        let other = parent.map(|t| t + 100);
        assert!(!prunes(&other, latr, None));
        let mut tail = other;
        tail[16..].copy_from_slice(&parent[16..]);
        assert!(!prunes(&tail, latr, None), "4 of 20 is not above 0.2");
        tail[15] = parent[15];
        assert!(prunes(&tail, latr, None), "suffix");
        assert!(!prunes(&tail, latr, Some(17)), "ended");
        let mut most = other;
        most[..11].copy_from_slice(&parent[..11]);
        assert!(prunes(&most, latr, None), "ROUGE-L 11/20");
        most[10] = 999;
        assert!(!prunes(&most, latr, None), "10/20 is not above one half");
        assert!(prunes(&most, Latr { edit: Some(0.51), ..latr }, None), "10 replacements of 20");
        assert!(!prunes(&most, Latr { edit: Some(0.5), ..latr }, None));
        assert!(latr.compares(30) && !latr.compares(31));
    }

    #[test]
    fn the_cumulative_filter() {
        // −5 against 3·ln 0.2 = −4.83.
        assert_eq!(falls_behind(-6.0, -1.0, 3, 0.2), Ok(true));
        assert_eq!(falls_behind(-5.8, -1.0, 3, 0.2), Ok(false));
        assert!(matches!(falls_behind(0.0, 0.0, 1, 0.0), Err(Error::Value { argument: "threshold", .. })));
    }
}

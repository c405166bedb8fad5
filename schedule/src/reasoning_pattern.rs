//! The reasoning pattern reward (RPR): rewards the key phrases of reasoning, whatever the answer, and lifts
//! low scores of a noisy reward model.
//!
//! **Formula** (2505.22653, official code; docs/maths/rewards.md):
//!
//! ```text
//! c       = number of key phrases that occur in the response, each counted once, in any case
//! p       = share of repeated n-grams: distinct n-grams that occur twice or more, over all n-grams (n 20)
//! RPR     = max(0, min(1, c/full) − p)                                                       full 20
//! score s ← min(1, s + weight·RPR) if s < threshold, else s                   weight 0.1, threshold ½
//! ```
//!
//! Only low scores change, so RPR corrects false negatives of the reward model and lowers no good score. The
//! caller provides the phrases: the released lists have 40 for mathematics and 53 for open tasks, such as
//! "wait" and "therefore". The released code for mathematics also subtracts 1 for each question that the
//! response asks itself.
//!
//! **Shapes**: `words`, `order` (scratch) `[n]`: words or token ids. O(n log n) comparisons of n-grams.
//!
//! **Special cases**: a response shorter than an n-gram has no repetition, p = 0.

use lockstep_core::Error;
use lockstep_core::require;

/// How RPR lifts the scores of a reward model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Scores below this are lifted.
    pub threshold: f64,
    /// What a full RPR adds.
    pub weight: f64,
}

impl Default for Calibration {
    /// The released code's: ½ and 0.1.
    fn default() -> Self {
        Calibration { threshold: 0.5, weight: 0.1 }
    }
}

impl Calibration {
    /// Computes the calibrated score.
    ///
    /// Errors: a score that is not finite; an RPR outside 0..=1; a weight that is negative or not finite; a
    /// threshold that is NaN.
    ///
    /// ```
    /// use lockstep_schedule::reasoning_pattern::Calibration;
    /// assert_eq!(Calibration::default().score(0.25, 0.5)?, 0.3);
    /// assert_eq!(Calibration::default().score(0.75, 0.5)?, 0.75);
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn score(&self, score: f64, rpr: f64) -> Result<f64, Error> {
        let Self { threshold, weight } = *self;
        require::finite("score", score)?;
        require::unit("rpr", rpr)?;
        require::scalar(
            "weight",
            weight >= 0.0 && weight.is_finite(),
            "a finite number, at least 0",
            weight,
        )?;
        require::scalar("threshold", !threshold.is_nan(), "a number", threshold)?;
        let lifted = score + weight * rpr;
        Ok(match score < threshold {
            true if lifted > 1.0 => 1.0,
            true => lifted,
            false => score,
        })
    }
}

/// Counts the key phrases that occur in a text, each once, ignoring ASCII case. An empty phrase occurs in
/// every text.
pub fn phrases(text: &str, keys: &[&str]) -> u32 {
    let occurs = |key: &&&str| {
        let (text, key) = (text.as_bytes(), key.as_bytes());
        key.is_empty() || text.windows(key.len()).any(|part| part.eq_ignore_ascii_case(key))
    };
    keys.iter().filter(occurs).count() as u32
}

/// Computes the share of repeated n-grams in a response: the number of distinct ones that occur at least
/// twice, over the number of all n-grams, repetitions included.
///
/// Errors: n-grams of length 0; an `order` whose length is not that of `words`.
pub fn repetition<T: Ord>(words: &[T], n: usize, order: &mut [u32]) -> Result<f64, Error> {
    require::scalar("n", n > 0, "at least 1", n as f64)?;
    require::length("order", words.len(), "one per word", order.len())?;
    let Some(all) = (words.len() + 1).checked_sub(n).filter(|all| *all > 0) else { return Ok(0.0) };
    let gram = |start: u32| &words[start as usize..start as usize + n];
    let starts = &mut order[..all];
    for (start, at) in (0..).zip(starts.iter_mut()) {
        *at = start;
    }
    starts.sort_unstable_by(|a, b| gram(*a).cmp(gram(*b)));
    let equal = |at: usize| at > 0 && at < all && gram(starts[at - 1]) == gram(starts[at]);
    // The second of each run of equal n-grams.
    let repeated = (1..all).filter(|at| equal(*at) && !equal(at - 1)).count();
    Ok(repeated as f64 / all as f64)
}

/// Computes RPR from the number of phrases found and the share of repetition. Errors: a `full` of 0; a share
/// outside 0..=1.
pub fn reward(found: u32, full: u32, repetition: f64) -> Result<f64, Error> {
    require::scalar("full", full > 0, "at least 1", 0.0)?;
    require::unit("repetition", repetition)?;
    let share = f64::from(found.min(full)) / f64::from(full) - repetition;
    Ok(if share > 0.0 { share } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn a_phrase_counts_once_in_any_case() {
        let keys = ["wait", "first, ", "we know that", "hence"];
        assert_eq!(phrases("First, we add. WAIT, wait: We Know That 1+1=2.", &keys), 3);
        assert_eq!((phrases("", &keys), phrases("wai", &keys), phrases("x", &[""])), (0, 0, 1));
        assert_eq!(phrases("WÄRE", &["wäre"]), 0, "ASCII letters alone");
    }

    #[test]
    fn five_words_by_hand() {
        // Bigrams ab, bc, ca, ab, bc, ca, ab: three distinct ones, all repeated, of seven.
        let words = ["a", "b", "c", "a", "b", "c", "a", "b"];
        let mut order = [0; 8];
        assert_eq!(repetition(&words, 2, &mut order), Ok(3.0 / 7.0));
        assert_eq!(repetition(&words, 1, &mut order), Ok(3.0 / 8.0));
        assert_eq!(repetition(&words, 6, &mut order), Ok(0.0));
        assert_eq!(
            (repetition(&words, 8, &mut order), repetition(&words, 20, &mut order)),
            (Ok(0.0), Ok(0.0))
        );
        assert_eq!(repetition::<u32>(&[], 20, &mut []), Ok(0.0));
        assert_eq!(
            (reward(3, 20, 0.0), reward(30, 20, 0.25), reward(1, 20, 0.5)),
            (Ok(0.15), Ok(0.75), Ok(0.0))
        );
    }

    /// Against a count of every pair of n-grams.
    #[test]
    fn repetition_is_what_counting_pairs_gives() {
        let mut stream = Stream::new(3, Purpose(2000), 0, 0);
        for round in 0..200_u64 {
            let words: [u32; 24] = core::array::from_fn(|_| stream.below(2 + round % 3) as u32);
            let n = 1 + (round % 5) as usize;
            let all = words.len() + 1 - n;
            // A distinct n-gram is repeated if its first occurrence has a later one.
            let at = |i: usize| &words[i..i + n];
            let first = |i: usize| (0..i).all(|j| at(j) != at(i));
            let repeated = (0..all).filter(|i| first(*i) && (i + 1..all).any(|j| at(j) == at(*i))).count();
            let found = repetition(&words, n, &mut [0; 24]).unwrap();
            assert_eq!(found, repeated as f64 / all as f64, "{words:?} {n}");
        }
    }

    #[test]
    fn only_low_scores_are_lifted_and_never_above_one() {
        let score = |s, rpr| Calibration::default().score(s, rpr).unwrap();
        assert_eq!((score(0.5, 1.0), score(0.9, 1.0), score(3.0, 1.0)), (0.5, 0.9, 3.0));
        assert!((score(0.49, 1.0) - 0.59).abs() < 1e-15 && (score(-2.0, 0.5) + 1.95).abs() < 1e-15);
        assert_eq!(Calibration { threshold: 2.0, weight: 1.0 }.score(0.7, 1.0), Ok(1.0));
        for step in 0..=100 {
            let s = f64::from(step) / 100.0;
            assert!(score(s, 0.3) >= s && score(s, 0.0) == s && score(s, 1.0) <= 1.0);
        }
    }

    #[test]
    fn what_is_refused() {
        let value = |found: Result<f64, Error>| match found {
            Err(Error::Value { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        let calibration = Calibration::default();
        assert_eq!(value(calibration.score(f64::NAN, 0.0)), "score");
        assert_eq!(value(calibration.score(0.0, 1.5)), "rpr");
        assert_eq!(value(Calibration { weight: -1.0, ..calibration }.score(0.0, 0.0)), "weight");
        assert_eq!(value(Calibration { threshold: f64::NAN, ..calibration }.score(0.0, 0.0)), "threshold");
        assert_eq!((value(reward(1, 0, 0.0)), value(reward(1, 1, -0.1))), ("full", "repetition"));
        assert_eq!(value(repetition(&[1], 0, &mut [0])), "n");
        let short = repetition(&[1, 2], 1, &mut [0]);
        assert!(matches!(short, Err(Error::Length { argument: "order", expected: 2, .. })));
    }
}

//! Weight of each response in the policy loss, by its length and by the difficulty of its prompt. For the
//! host, not an op.
//!
//! **Formula** (ROLL, `rlvr/actor_worker.py`), with L the live tokens of a response, d the difficulty of its
//! prompt, and (a, b) the weights at the two ends of a range:
//!
//! ```text
//! x = (L − min L)/(max L − min L + 1e-8)
//! u = a + (b − a) x                      length, ROLL: a 1.5, b 0.5
//! u ← u · (a + (b − a) clip(d, 0, 1))    difficulty, ROLL: a 0.5, b 2
//! w = u · S/(Σ u + 1e-8)                 where Σ u > 0, else u
//! ```
//!
//! **Shapes**: per sequence `[S]`; minimum, maximum and sum run over all S.
//!
//! **Special cases**: responses without a live token enter with length 0. If all lengths are equal, every x
//! is 0.

use lockstep_core::Error;
use lockstep_core::require;

/// ROLL's term added to the range and to the sum.
const EPS: f64 = 1e-8;

/// The rules that weights follow; an absent rule has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct SampleWeights {
    /// Weights of the shortest and of the longest response; ROLL 1.5, 0.5.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub length: Option<[f64; 2]>,
    /// Weights at difficulty 0 and at difficulty 1; ROLL 0.5, 2.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub difficulty: Option<[f64; 2]>,
}

impl SampleWeights {
    /// Checks that every weight is from 0 to 1e100, so that products and sums stay finite.
    pub fn check(&self) -> Result<(), Error> {
        for (argument, ends) in [("length", self.length), ("difficulty", self.difficulty)] {
            let ends = ends.unwrap_or_default();
            require::each(argument, &ends, "a number from 0 to 1e100", |end| (0.0..=1e100).contains(&end))?;
        }
        Ok(())
    }

    /// Writes the weights of the given responses, whose mean is 1, to `weights`. `lengths` and `difficulty`
    /// have one entry per sequence; `difficulty` may be empty if [`difficulty`](Self::difficulty) is absent.
    ///
    /// Errors: lengths that disagree; numbers outside their domain; a difficulty that is not finite (with its
    /// index).
    ///
    /// ```
    /// use lockstep_schedule::sample_weights::SampleWeights;
    /// let (by_length, mut weights) =
    ///     (SampleWeights { length: Some([1.5, 0.5]), difficulty: None }, [0.0; 3]);
    /// by_length.weigh(&[10, 20, 30], &[], &mut weights)?;
    /// assert!((weights[0] - 1.5).abs() < 1e-7 && (weights[1] - 1.0).abs() < 1e-7);
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn weigh(&self, lengths: &[u32], difficulty: &[f32], weights: &mut [f64]) -> Result<(), Error> {
        self.check()?;
        let (n, because) = (weights.len(), "one per sequence");
        let read = if self.difficulty.is_some() { difficulty.len() } else { n };
        for (argument, got) in [("lengths", lengths.len()), ("difficulty", read)] {
            require::length(argument, n, because, got)?;
        }
        if self.difficulty.is_some() {
            require::each("difficulty", difficulty, "a finite number", f32::is_finite)?;
        }
        let between = |[a, b]: [f64; 2], x: f64| a + (b - a) * x;
        let (least, most) = (lengths.iter().min().copied(), lengths.iter().max().copied());
        let least = f64::from(least.unwrap_or(0));
        let range = f64::from(most.unwrap_or(0)) - least + EPS;
        let mut sum = 0.0;
        for (i, weight) in weights.iter_mut().enumerate() {
            let by_length = self.length.map(|ends| between(ends, (f64::from(lengths[i]) - least) / range));
            let by_difficulty =
                self.difficulty.map(|ends| between(ends, f64::from(difficulty[i]).clamp(0.0, 1.0)));
            *weight = by_difficulty.unwrap_or(1.0) * by_length.unwrap_or(1.0);
            sum += *weight;
        }
        if sum > 0.0 {
            weights.iter_mut().for_each(|weight| *weight *= n as f64 / (sum + EPS));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLL: SampleWeights = SampleWeights { length: Some([1.5, 0.5]), difficulty: Some([0.5, 2.0]) };

    fn weights(of: SampleWeights, lengths: &[u32], difficulty: &[f32]) -> Result<[f64; 4], Error> {
        let mut out = [0.0; 4];
        of.weigh(lengths, difficulty, &mut out).map(|()| out)
    }

    fn near(got: [f64; 4], expected: [f64; 4]) -> bool {
        got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-7)
    }

    #[test]
    fn worked_by_length_and_difficulty() {
        // x = 0, 1, 1/4, 1/2: by length 1.5, 0.5, 1.25, 1, whose mean is 17/16.
        let lengths = [0, 8, 2, 4];
        let by_length = SampleWeights { difficulty: None, ..ROLL };
        let expected = [24.0, 8.0, 20.0, 16.0].map(|x| x / 17.0);
        assert!(near(weights(by_length, &lengths, &[]).unwrap(), expected));
        // Times 0.5, 2, 1.25, 2 for difficulties −1, 1, 0.5, 7: 0.75, 1, 1.5625, 2, whose sum is 5.3125.
        let expected = [0.75, 1.0, 1.5625, 2.0].map(|x| x * 4.0 / 5.3125);
        assert!(near(weights(ROLL, &lengths, &[-1.0, 1.0, 0.5, 7.0]).unwrap(), expected));
        let by_difficulty = SampleWeights { length: None, ..ROLL };
        let expected = [0.5, 2.0, 1.25, 2.0].map(|x| x * 4.0 / 5.75);
        assert!(near(weights(by_difficulty, &lengths, &[-1.0, 1.0, 0.5, 7.0]).unwrap(), expected));
    }

    #[test]
    fn equal_lengths_count_alike_and_no_weight_stays_none() {
        let by_length = SampleWeights { difficulty: None, ..ROLL };
        assert!(near(weights(by_length, &[3; 4], &[]).unwrap(), [1.0; 4]));
        let nothing = SampleWeights { length: Some([0.0; 2]), difficulty: None };
        assert_eq!(weights(nothing, &[1, 2, 3, 4], &[]), Ok([0.0; 4]));
        assert_eq!(ROLL.weigh(&[], &[], &mut []), Ok(()));
    }

    #[test]
    fn wrong_arguments_are_named() {
        let e = weights(ROLL, &[1; 4], &[0.5, 0.5, f32::NAN, 0.5]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "difficulty", index: Some(2), .. }));
        let e = weights(ROLL, &[1; 4], &[0.5; 3]).unwrap_err();
        assert!(matches!(e, Error::Length { argument: "difficulty", expected: 4, got: 3, .. }));
        let e = weights(ROLL, &[1; 3], &[0.5; 4]).unwrap_err();
        assert!(matches!(e, Error::Length { argument: "lengths", .. }));
        let e = SampleWeights { length: Some([1.0, -0.5]), difficulty: None }.check().unwrap_err();
        assert!(matches!(e, Error::Value { argument: "length", index: Some(1), .. }));
        // The product was infinite, and the weights NaN.
        let e =
            SampleWeights { length: Some([1.0, 1e200]), difficulty: Some([1e200; 2]) }.check().unwrap_err();
        assert!(matches!(e, Error::Value { argument: "length", index: Some(1), .. }));
    }
}

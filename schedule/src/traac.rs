//! TRAAC: the difficulty of a prompt from its pass rate, and the length reward and compression that go with
//! it.
//!
//! **Formula** (2510.01581, official code; docs/maths/rewards.md), with lengths in tokens:
//!
//! ```text
//! pass rate of the group:   ≥ 0.8 easy    ≥ 0.3 medium    else hard
//! scale of the reward       1             0.75            0.5
//! share of steps removed    0.6           0.4             0.2
//! N      = clip((longest − length)/max(longest − shortest, 1e-6), 0, 1)
//! bonus  = 1/(1 + e^((length − median)/(0.1·median)))
//! reward = scale·max(N, bonus) for a right response, 0 for a wrong one
//! ```
//!
//! shortest, longest and median are over right responses of the same difficulty: the code takes those of the
//! last ten batches, this one included, separately for each data source. Besides this reward, a right answer
//! earns 4 and the format up to 0.5. The steps removed are those that get the least attention from the end of
//! the reasoning; the caller determines which.
//!
//! **Shapes**: `lengths` `[n]`, which is sorted.
//!
//! **Special cases**: without a right response there is no reference, and the reward is 0. If all references
//! have the same length, N is 1 for a shorter response and 0 otherwise.

use lockstep_core::Error;
use lockstep_core::num;
use lockstep_core::require;

/// How hard a prompt is for the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difficulty {
    /// A pass rate of at least 0.8.
    Easy,
    /// A pass rate of at least 0.3.
    Medium,
    /// Less.
    Hard,
}

impl Difficulty {
    /// Classifies a group by its pass rate. Errors: a rate outside 0..=1.
    pub fn of(pass_rate: f64) -> Result<Self, Error> {
        require::unit("pass_rate", pass_rate)?;
        Ok(match pass_rate {
            rate if rate >= 0.8 => Difficulty::Easy,
            rate if rate >= 0.3 => Difficulty::Medium,
            _ => Difficulty::Hard,
        })
    }

    /// The largest length reward.
    pub fn scale(self) -> f64 {
        match self {
            Difficulty::Easy => 1.0,
            Difficulty::Medium => 0.75,
            Difficulty::Hard => 0.5,
        }
    }

    /// The share of a response's reasoning steps that compression removes.
    pub fn compression(self) -> f64 {
        match self {
            Difficulty::Easy => 0.6,
            Difficulty::Medium => 0.4,
            Difficulty::Hard => 0.2,
        }
    }
}

/// The lengths that a response is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// The shortest, in tokens.
    pub shortest: u32,
    /// The longest.
    pub longest: u32,
    /// The median; for an even number, the mean of the middle two.
    pub median: f64,
}

impl Lengths {
    /// Summarises the lengths of right responses, which it sorts; `None` if there are none.
    ///
    /// Errors: a length of 0 (the first one's index before sorting).
    pub fn of(lengths: &mut [u32]) -> Result<Option<Self>, Error> {
        require::each("lengths", lengths, "at least one token", |length| length > 0)?;
        lengths.sort_unstable();
        let [Some(shortest), Some(longest)] = [lengths.first(), lengths.last()] else { return Ok(None) };
        let middle = |at: usize| f64::from(lengths[at]);
        let median = (middle((lengths.len() - 1) / 2) + middle(lengths.len() / 2)) / 2.0;
        Ok(Some(Lengths { shortest: *shortest, longest: *longest, median }))
    }

    /// Computes the length reward of a right response.
    ///
    /// ```
    /// use lockstep_schedule::traac::{Difficulty, Lengths};
    /// let right = Lengths::of(&mut [300, 100, 200])?.unwrap();
    /// assert_eq!(right.reward(100, Difficulty::of(0.9)?), 1.0);
    /// assert_eq!(right.reward(200, Difficulty::of(0.5)?), 0.375);
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn reward(&self, length: u32, difficulty: Difficulty) -> f64 {
        let [shortest, longest, length] = [self.shortest, self.longest, length].map(f64::from);
        let span = if longest > shortest { longest - shortest } else { 1e-6 };
        let linear = ((longest - length) / span).clamp(0.0, 1.0);
        let bonus = 1.0 / (1.0 + num::exp64((length - self.median) / (0.1 * self.median)));
        difficulty.scale() * if bonus > linear { bonus } else { linear }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_begin_at_their_bound() {
        use Difficulty::{Easy, Hard, Medium};
        let of = |rate| Difficulty::of(rate).unwrap();
        assert_eq!([0.0, 0.29, 0.3, 0.79, 0.8, 1.0].map(of), [Hard, Hard, Medium, Medium, Easy, Easy]);
        assert_eq!(
            [Easy, Medium, Hard].map(|d| (d.scale(), d.compression())),
            [(1.0, 0.6), (0.75, 0.4), (0.5, 0.2)]
        );
        for bad in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(Difficulty::of(bad), Err(Error::Value { argument: "pass_rate", .. })));
        }
    }

    /// By hand: lengths 100, 120, 180, 200 have median 150. At 165 the linear part is 0.35 and the bonus
    /// 1/(1 + e) = 0.26894; at 135 they are 0.65 and 0.73106.
    #[test]
    fn four_lengths_by_hand() {
        let right = Lengths::of(&mut [200, 120, 100, 180]).unwrap().unwrap();
        assert_eq!(right, Lengths { shortest: 100, longest: 200, median: 150.0 });
        for (length, expected) in
            [(165, 0.35), (135, 0.731_058_578_630_005), (150, 0.5), (100, 1.0), (40, 1.0), (300, 4.5398e-5)]
        {
            for difficulty in [Difficulty::Easy, Difficulty::Medium, Difficulty::Hard] {
                let found = right.reward(length, difficulty);
                assert!((found - difficulty.scale() * expected).abs() < 1e-9, "{length} {found}");
            }
        }
    }

    #[test]
    fn longer_is_never_better_and_harder_pays_less() {
        let right = Lengths::of(&mut [3, 90, 7, 55, 55]).unwrap().unwrap();
        for length in 1..200 {
            let [easy, medium, hard] = [Difficulty::Easy, Difficulty::Medium, Difficulty::Hard]
                .map(|difficulty| [length, length + 1].map(|length| right.reward(length, difficulty)));
            assert!(easy[0] >= easy[1] && (0.0..=1.0).contains(&easy[0]), "{length}");
            assert!(easy[0] >= medium[0] && medium[0] >= hard[0] && hard[0] >= 0.0);
        }
    }

    #[test]
    fn alike_none_and_empty_responses() {
        let alike = Lengths::of(&mut [50, 50]).unwrap().unwrap();
        assert_eq!([49, 50].map(|length| alike.reward(length, Difficulty::Easy)), [1.0, 0.5]);
        assert_eq!(Lengths::of(&mut []), Ok(None));
        assert!(matches!(
            Lengths::of(&mut [3, 0, 2]),
            Err(Error::Value { argument: "lengths", index: Some(1), .. })
        ));
    }
}

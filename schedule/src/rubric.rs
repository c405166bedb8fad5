//! Rubrics as rewards and as scaffolds: RuscaRL, and the aggregation of Rubric Anchors (our reading).
//!
//! **Formula** (RuscaRL 2508.16949, official code; docs/maths/rewards.md):
//!
//! ```text
//! reward   = Σ points of the criteria that are met/Σ positive points      at most 1; no lower bound
//! scaffold of member i of n in step t of T: the share of the criteria that its prompt shows
//!          share = (n − 1 − i)/(n − 1) · 1/(1 + e^(k·(x − x₀))),   x = t/(T − 1)        k 125, x₀ 0.2
//!          shown = round(share·criteria), halves to even, at random
//! ```
//!
//! Negative points are pitfalls. The first member of a group sees the most and the last one nothing, so a
//! group's responses get different amounts of help; the help fades over the steps. Draw which criteria are
//! shown with [`sample::distinct`](crate::random::sample::distinct).
//!
//! Rubric Anchors (2508.12790: its aggregation is described, no equation was available; ours):
//!
//! ```text
//! veto     = 0 if a critical criterion fails
//! reward   = Σ w_k·s(x_k)/Σ w_k,   s(x) = x up to τ, then τ + (1 − τ)(1 − e^(−(x − τ)/(1 − τ)))
//! ```
//!
//! s has slope 1 up to τ and diminishing returns above it, so that no single dimension dominates.
//!
//! **Shapes**: `points`, `met`, `scores`, `weights`, `critical` `[K]`, one per criterion.
//!
//! **Special cases**: a rubric without positive points has reward 0, as in the code. A group of one sees what
//! the decay leaves (the code shows it everything at every step).

use lockstep_core::Error;
use lockstep_core::num;
use lockstep_core::require;

/// Computes RuscaRL's reward. `points` are positive for what is wanted and negative for pitfalls.
///
/// Errors: lengths that disagree; points that are not finite (index); a sum or a quotient that overflows.
///
/// ```
/// use lockstep_schedule::rubric::reward;
/// assert_eq!(reward(&[5.0, 3.0, -2.0], &[true, false, true])?, 0.375);
/// # Ok::<(), lockstep_core::Error>(())
/// ```
pub fn reward(points: &[f64], met: &[bool]) -> Result<f64, Error> {
    require::length("met", points.len(), "one per criterion", met.len())?;
    require::each("points", points, "a finite number", f64::is_finite)?;
    let possible: f64 = points.iter().filter(|p| **p > 0.0).sum();
    // From +0: `sum` of nothing is -0.
    let earned = points.iter().zip(met).filter(|(_, met)| **met).fold(0.0, |sum, (p, _)| sum + p);
    let share = if possible > 0.0 { earned / possible } else { 0.0 };
    for sum in [possible, earned, share] {
        require::scalar("points", sum.is_finite(), "finite sums and a finite share", sum)?;
    }
    Ok(share)
}

/// RuscaRL's scaffold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaffold {
    /// Fraction of the run at which half of the help is gone.
    pub start: f64,
    /// Steepness of the decay.
    pub steepness: f64,
}

impl Default for Scaffold {
    /// The released script's.
    fn default() -> Self {
        Scaffold { start: 0.2, steepness: 125.0 }
    }
}

impl Scaffold {
    /// The share of the criteria that member `i` of a group of `members` sees in `step` of `steps`.
    ///
    /// Errors: a member beyond the group; a step beyond the run; a start that is not finite; a steepness that
    /// is negative or not finite.
    pub fn share(&self, i: u32, members: u32, step: u32, steps: u32) -> Result<f64, Error> {
        let Self { start, steepness } = *self;
        require::scalar("i", i < members, "below the number of members", i)?;
        require::scalar("step", step < steps, "below the number of steps", step)?;
        require::finite("start", start)?;
        let steep = steepness >= 0.0 && steepness.is_finite();
        require::scalar("steepness", steep, "a finite number, at least 0", steepness)?;
        let of = |x: u32, last: u32| f64::from(x) / f64::from(if last == 0 { 1 } else { last });
        let group = 1.0 - of(i, members - 1);
        Ok(group / (1.0 + num::exp64(steepness * (of(step, steps - 1) - start))))
    }
}

/// The number of criteria that a share shows: share·criteria rounded to the nearest integer, ties to even.
///
/// Errors: a share outside 0..=1.
pub fn shown(share: f64, criteria: u32) -> Result<u32, Error> {
    require::unit("share", share)?;
    let exact = share * f64::from(criteria);
    let below = exact as u32;
    let rest = exact - f64::from(below);
    Ok(below + u32::from(rest > 0.5 || rest == 0.5 && below % 2 == 1))
}

/// Rubric Anchors' saturation of a score (our reading): no change up to `knee`, diminishing returns above it.
///
/// Errors: a score outside 0..=1; a knee outside 0..=1.
pub fn saturate(score: f64, knee: f64) -> Result<f64, Error> {
    require::unit("score", score)?;
    require::unit("knee", knee)?;
    let room = 1.0 - knee;
    Ok(if score <= knee { score } else { knee + room * (1.0 - num::exp64(-(score - knee) / room)) })
}

/// Rubric Anchors' reward (our reading): 0 if a critical criterion scores below `pass`, else the weighted
/// mean of the saturated scores.
///
/// Errors: no criterion; lengths that disagree; a score outside 0..=1 (index); a weight that is negative or
/// not finite (index); weights whose sum is not positive and finite; a knee or pass mark outside 0..=1.
///
/// ```
/// use lockstep_schedule::rubric::anchored;
/// let critical = [false, true];
/// assert_eq!(anchored(&[0.5, 0.75], &[1.0, 3.0], &critical, 0.5, 1.0)?, 0.6875);
/// assert_eq!(anchored(&[1.0, 0.2], &[1.0, 3.0], &critical, 0.5, 1.0)?, 0.0);
/// # Ok::<(), lockstep_core::Error>(())
/// ```
pub fn anchored(
    scores: &[f64],
    weights: &[f64],
    critical: &[bool],
    pass: f64,
    knee: f64,
) -> Result<f64, Error> {
    require::some("scores", "one per criterion", scores.len())?;
    require::length("weights", scores.len(), "one per criterion", weights.len())?;
    require::length("critical", scores.len(), "one per criterion", critical.len())?;
    require::each("scores", scores, "0 to 1", |x| (0.0..=1.0).contains(&x))?;
    require::each("weights", weights, "a finite number, at least 0", |w| w >= 0.0 && w.is_finite())?;
    require::unit("pass", pass)?;
    let whole: f64 = weights.iter().sum();
    require::scalar("weights", whole > 0.0 && whole.is_finite(), "a sum above 0", whole)?;
    let mut sum = 0.0;
    for (score, weight) in scores.iter().zip(weights) {
        sum += weight * saturate(*score, knee)?;
    }
    let failed = scores.iter().zip(critical).any(|(score, critical)| *critical && *score < pass);
    Ok(if failed { 0.0 } else { sum / whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the released reward file: points 8, 6, 7, 4, 3, 2 and pitfalls −2, −5, −3.
    #[test]
    fn nine_criteria_by_hand() {
        let points = [8.0, 6.0, 7.0, 4.0, 3.0, 2.0, -2.0, -5.0, -3.0];
        let of = |met: u32| reward(&points, &core::array::from_fn::<_, 9, _>(|i| met >> i & 1 == 1)).unwrap();
        assert_eq!((of(0b000_111_111), of(0), of(0b111_111_111)), (1.0, 0.0, 20.0 / 30.0));
        assert_eq!((of(0b111_000_000), of(0b001_000_101)), (-10.0 / 30.0, 13.0 / 30.0));
        // Meeting one more criterion moves the reward by its points.
        for met in 0..512_u32 {
            for (i, p) in points.iter().enumerate().filter(|(i, _)| met >> i & 1 == 0) {
                assert!((of(met | 1 << i) - of(met) - p / 30.0).abs() < 1e-15);
            }
        }
        assert_eq!((reward(&[-1.0], &[true]), reward(&[], &[])), (Ok(0.0), Ok(0.0)));
    }

    /// By hand: at x = x₀ the decay is a half; 0.02 later e^2.5 = 12.1825.
    #[test]
    fn the_scaffold_fades_over_members_and_steps() {
        let share = |i, members, step| Scaffold::default().share(i, members, step, 101).unwrap();
        for (found, expected) in [
            (share(0, 8, 20), 0.5),
            (share(1, 8, 20), 3.0 / 7.0),
            (share(7, 8, 20), 0.0),
            (share(0, 1, 20), 0.5),
            (share(0, 8, 22), 1.0 / 13.182_493_960_703_473),
            (share(2, 5, 18), 0.5 * (1.0 - 1.0 / 13.182_493_960_703_473)),
        ] {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
        assert!(share(0, 8, 0) > 1.0 - 1e-10 && share(0, 8, 100) < 1e-40);
        for step in 0..100 {
            for i in 0..7 {
                assert!(
                    share(i, 8, step) > share(i + 1, 8, step) && share(i, 8, step) >= share(i, 8, step + 1)
                );
            }
        }
        assert_eq!(Scaffold::default().share(0, 1, 0, 1), Ok(1.0 / (1.0 + num::exp64(-25.0))));
    }

    #[test]
    fn halves_go_to_the_even_number() {
        let of = |share| shown(share, 10).unwrap();
        assert_eq!([0.0, 0.05, 0.15, 0.25, 0.26, 0.55, 1.0].map(of), [0, 0, 2, 2, 3, 6, 10]);
        assert_eq!((shown(1.0, u32::MAX), shown(0.5, 3), shown(0.5, 5)), (Ok(u32::MAX), Ok(2), Ok(2)));
    }

    #[test]
    fn saturation_is_smooth_and_bounded() {
        let s = |x| saturate(x, 0.6).unwrap();
        assert_eq!((s(0.0), s(0.3), s(0.6)), (0.0, 0.3, 0.6));
        // By hand: room 0.4; at 1 the exponent is −1.
        assert!((s(1.0) - (0.6 + 0.4 * (1.0 - 0.367_879_441_171_442_3))).abs() < 1e-15);
        assert_eq!((saturate(1.0, 1.0), saturate(0.7, 1.0)), (Ok(1.0), Ok(0.7)));
        for i in 0..100 {
            let x = f64::from(i) / 100.0;
            let rise = s(x + 0.01) - s(x);
            assert!(rise > 0.0 && rise <= 0.01 + 1e-15, "{x}");
            // Less and less above the knee.
            assert!(x <= 0.6 || rise < s(x) - s(x - 0.01));
        }
        assert!((s(0.6 + 1e-6) - 0.6 - 1e-6).abs() < 1e-11, "slope 1 at the knee");
    }

    /// Two dimensions at 0.6 beat one at 1 and one at 0.2: the mean is the same without saturation.
    #[test]
    fn balance_beats_excess_and_a_veto_beats_all() {
        let of = |scores: [f64; 2], knee| anchored(&scores, &[1.0; 2], &[false, true], 0.1, knee).unwrap();
        assert!((of([0.6, 0.6], 1.0) - of([1.0, 0.2], 1.0)).abs() < 1e-15);
        assert!(of([0.6, 0.6], 0.5) > of([1.0, 0.2], 0.5) + 0.08);
        assert_eq!((of([1.0, 0.05], 0.5), of([0.0, 0.1], 0.5)), (0.0, 0.05));
    }

    #[test]
    fn what_is_refused() {
        let value = |found: Result<f64, Error>| match found {
            Err(Error::Value { argument, index, .. }) => (argument, index),
            other => panic!("{other:?}"),
        };
        assert_eq!(value(reward(&[1.0, f64::NAN], &[true; 2])), ("points", Some(1)));
        assert_eq!(value(reward(&[f64::MAX, f64::MAX], &[false; 2])), ("points", None));
        // The error shows the sum that is not finite.
        for points in [[5.0, f64::MIN, f64::MIN], [f64::MIN_POSITIVE, -1e9, f64::MIN]] {
            let found = reward(&points, &[true; 3]);
            assert!(matches!(found, Err(Error::Value { got: f64::NEG_INFINITY, .. })), "{found:?}");
        }
        assert!(matches!(reward(&[1.0], &[]), Err(Error::Length { argument: "met", .. })));
        let scaffold = Scaffold::default();
        assert_eq!(value(scaffold.share(3, 3, 0, 1)), ("i", None));
        assert_eq!(value(scaffold.share(0, 0, 0, 1)), ("i", None));
        assert_eq!(value(scaffold.share(0, 1, 1, 1)), ("step", None));
        assert_eq!(value(Scaffold { start: f64::NAN, ..scaffold }.share(0, 1, 0, 1)), ("start", None));
        assert_eq!(value(Scaffold { steepness: -1.0, ..scaffold }.share(0, 1, 0, 1)), ("steepness", None));
        assert_eq!(
            (value(saturate(1.1, 0.5)), value(saturate(0.5, -0.1))),
            (("score", None), ("knee", None))
        );
        assert!(matches!(shown(f64::NAN, 1), Err(Error::Value { argument: "share", .. })));
        let of = |scores: &[f64], weights: &[f64], pass| anchored(scores, weights, &[true; 2], pass, 0.5);
        assert_eq!(value(of(&[0.5, 2.0], &[1.0; 2], 0.5)), ("scores", Some(1)));
        assert_eq!(value(of(&[0.5; 2], &[-1.0, 1.0], 0.5)), ("weights", Some(0)));
        assert_eq!(value(of(&[0.5; 2], &[0.0; 2], 0.5)), ("weights", None));
        assert_eq!(value(of(&[0.5; 2], &[1.0; 2], f64::NAN)), ("pass", None));
        assert!(matches!(anchored(&[], &[], &[], 0.5, 0.5), Err(Error::Empty { argument: "scores", .. })));
        assert!(matches!(of(&[0.5; 2], &[1.0], 0.5), Err(Error::Length { argument: "weights", .. })));
    }
}

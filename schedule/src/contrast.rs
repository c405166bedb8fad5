//! Sol-RL's contrastive subset: of many cheap rollouts of a prompt, the best and the worst are regenerated in
//! full precision, and only those are trained on.
//!
//! **Formula** (2604.06916, project page and its summaries; docs/maths/schedules.md): sort a prompt's n
//! rollouts, sampled in low precision, by their proxy rewards; take the K best and the K worst. The paper
//! takes 12 and 12 of 96. A regenerated rollout uses the random numbers of the one it replaces: with a stream
//! keyed by step and rollout ([`random`](crate::random)), that is the same stream.
//!
//! **Shapes**: `rewards`, `order` (scratch) `[n]`; `chosen` `[2K]`, best first, then the worst, worst first.
//!
//! **Special cases**: among equal rewards, the lower index is the better one. If all rewards are equal, the
//! contrast is 0: skip the prompt before regenerating anything.

use super::order as sorting;
use lockstep_core::Error;
use lockstep_core::require;

/// Fills `chosen` with the indices of the best and of the worst rollouts, half each, and returns their
/// contrast: the mean reward of the best minus that of the worst.
///
/// Errors: an odd number of places, or none; more places than rollouts; an `order` of the wrong length; a
/// reward that is not finite (index); a contrast that is not finite.
///
/// ```
/// use lockstep_schedule::contrast::subset;
/// let (mut order, mut chosen) = ([0; 5], [0; 4]);
/// let contrast = subset(&[0.2, 0.9, 0.1, 0.5, 0.7], &mut order, &mut chosen)?;
/// assert_eq!(chosen, [1, 4, 2, 0]);
/// assert!((contrast - 0.65).abs() < 1e-15);
/// # Ok::<(), lockstep_core::Error>(())
/// ```
pub fn subset(rewards: &[f64], order: &mut [u32], chosen: &mut [u32]) -> Result<f64, Error> {
    require::each("rewards", rewards, "a finite number", f64::is_finite)?;
    let (n, places) = (rewards.len(), chosen.len());
    let fits = places > 0 && places.is_multiple_of(2) && places <= n;
    require::scalar("chosen", fits, "a positive even length, at most one entry per rollout", places as f64)?;
    sorting::by_key(rewards, order)?;
    let half = places / 2;
    let (best, worst) = chosen.split_at_mut(half);
    best.copy_from_slice(&order[..half]);
    worst.copy_from_slice(&order[n - half..]);
    worst.reverse();
    let mean = |of: &[u32]| of.iter().map(|i| rewards[*i as usize] / half as f64).sum::<f64>();
    let contrast = mean(best) - mean(worst);
    require::finite("contrast", contrast)?;
    Ok(contrast)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    /// Against every pair of disjoint halves: no other one has a larger contrast.
    #[test]
    fn no_other_halves_differ_more() {
        let mut stream = Stream::new(5, Purpose(2000), 0, 0);
        for round in 0..100 {
            // Few values, so that there are ties.
            let rewards: [f64; 7] = core::array::from_fn(|_| stream.below(4 + round) as f64 / 4.0);
            let (mut order, mut chosen) = ([0; 7], [0; 4]);
            let contrast = subset(&rewards, &mut order, &mut chosen).unwrap();
            let sum = |set: u32| (0..7).filter(|i| set >> i & 1 == 1).map(|i| rewards[i]).sum::<f64>();
            let pairs = (0_u32..128).filter(|set| set.count_ones() == 2);
            let most = pairs
                .clone()
                .flat_map(|a| pairs.clone().filter(move |b| a & b == 0).map(move |b| (a, b)))
                .map(|(a, b)| (sum(a) - sum(b)) / 2.0)
                .fold(f64::NEG_INFINITY, f64::max);
            assert!((contrast - most).abs() < 1e-9, "{rewards:?}: {contrast} {most}");
            let distinct = chosen.iter().fold(0_u32, |set, i| set | 1 << i);
            assert_eq!(distinct.count_ones(), 4);
            assert_eq!(
                (sum(1 << chosen[0] | 1 << chosen[1]) - sum(1 << chosen[2] | 1 << chosen[3])) / 2.0,
                contrast
            );
        }
    }

    #[test]
    fn ties_and_what_is_refused() {
        let (mut order, mut chosen) = ([0; 4], [0; 4]);
        assert_eq!(subset(&[1.0; 4], &mut order, &mut chosen), Ok(0.0));
        assert_eq!(chosen, [0, 1, 3, 2], "the lower index is the better one");
        for places in [0, 1, 3] {
            let found = subset(&[1.0; 4], &mut order, &mut chosen[..places]);
            assert!(matches!(found, Err(Error::Value { argument: "chosen", index: None, .. })));
        }
        assert!(matches!(
            subset(&[1.0, 2.0], &mut order[..2], &mut chosen),
            Err(Error::Value { argument: "chosen", .. })
        ));
        assert!(matches!(
            subset(&[1.0, f64::NAN], &mut order[..2], &mut chosen[..2]),
            Err(Error::Value { argument: "rewards", index: Some(1), .. })
        ));
        assert!(subset(&[f64::MAX, f64::MIN], &mut order[..2], &mut chosen[..2]).is_err());
        assert!(matches!(
            subset(&[1.0, 2.0], &mut order, &mut chosen[..2]),
            Err(Error::Length { argument: "order", expected: 2, .. })
        ));
    }
}

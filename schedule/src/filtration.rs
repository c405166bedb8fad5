//! Policy filtration: weights that decide, from the rewards, which responses of a prompt a policy is trained
//! on. A host function, not an op.
//!
//! **Formula** (PF-PPO 2409.06957; our reading, without the primary text; the last three rules are those
//! of verl's `pf_ppo`, which draws from the whole batch): the weight of a response is the probability that it
//! is drawn. The weights sum to 1 over a group of n responses:
//!
//! | rule | weights before division by their sum |
//! |---|---|
//! | [`Filtration::BestOfN`] | 1 for the best |
//! | [`Filtration::BestRandom`] | ½ for the best, ½/(n − 1) for each other: its expected weight |
//! | [`Filtration::BestWorst`] | ½ for the best, ½ for the worst |
//! | [`Filtration::MaxMin`] | 1 for every response with the largest or the smallest reward |
//! | [`Filtration::MaxRandom`] | 0.4 for every response with the largest reward, 0.1 for the others |
//! | [`Filtration::Power`] | \|R\|ᵖ, verl p = 2; equal weights if all are 0 |
//!
//! The idea: a reward model is most reliable at both ends of its scale, so the middle is left out.
//!
//! **Special cases**: among ties, the best is the first response with the largest reward and the worst is the
//! last with the smallest, so the two differ even in a group of two equal rewards. In a group of one the
//! response has weight 1. NaN rewards have weight 0 and are not counted.

use lockstep_core::Error;
use lockstep_core::require;

/// A filtration rule; the [module](self) has the weights of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)
)]
pub enum Filtration {
    /// The best response only.
    BestOfN {},
    /// The best response and a random other one, as expected weights.
    BestRandom {},
    /// The best and the worst response.
    BestWorst {},
    /// Every response with the largest or the smallest reward (verl's `max_min`).
    MaxMin {},
    /// Every response, those with the largest reward four times as often (verl's `max_random`).
    MaxRandom {},
    /// Every response, in proportion to a power of |R| (verl's `pow`).
    Power {
        /// The exponent p; verl uses 2.
        #[cfg_attr(feature = "serde", serde(default = "two"))]
        power: u32,
    },
}

#[cfg(feature = "serde")]
fn two() -> u32 {
    2
}

/// Writes the weights of one group's responses to `weights`, which sum to 1 (or are all 0 if no reward is
/// counted).
///
/// `rewards` and `weights` are `[n]`; a NaN reward means "no score".
///
/// Errors: [`Error::Length`] if the lengths differ; [`Error::Value`] for an infinite reward, with its index.
///
/// ```
/// use lockstep_schedule::filtration::{Filtration, filtrate};
/// let mut weights = [0.0; 4];
/// filtrate(Filtration::BestWorst {}, &[0.25, 1.0, -2.0, 0.5], &mut weights)?;
/// assert_eq!(weights, [0.0, 0.5, 0.5, 0.0]);
/// # Ok::<(), lockstep_core::Error>(())
/// ```
pub fn filtrate(rule: Filtration, rewards: &[f32], weights: &mut [f64]) -> Result<(), Error> {
    require::length("weights", rewards.len(), "one per reward", weights.len())?;
    let (mut best, mut worst, mut counted) = (None, None, 0u32);
    for (i, &reward) in rewards.iter().enumerate().filter(|(_, reward)| !reward.is_nan()) {
        if reward.is_infinite() {
            return Err(require::value("rewards", Some(i), "a finite number, or NaN for none", reward));
        }
        best = best.filter(|(_, top)| *top >= reward).or(Some((i, reward)));
        worst = worst.filter(|(_, low)| *low < reward).or(Some((i, reward)));
        counted += 1;
    }
    let (Some((first, top)), Some((last, low))) = (best, worst) else {
        weights.fill(0.0);
        return Ok(());
    };
    let largest = f64::from(if top.abs() > low.abs() { top.abs() } else { low.abs() });
    let others = f64::from(if counted > 1 { counted - 1 } else { 1 });
    let weight = |i: usize, reward: f32| match rule {
        Filtration::BestOfN {} => f64::from(u8::from(i == first)),
        Filtration::BestRandom {} => {
            if i == first {
                1.0
            } else {
                1.0 / others
            }
        }
        Filtration::BestWorst {} => f64::from(u8::from(i == first || i == last)),
        Filtration::MaxMin {} => f64::from(u8::from(reward == top || reward == low)),
        Filtration::MaxRandom {} => {
            if reward == top {
                0.4
            } else {
                0.1
            }
        }
        // In proportion to the largest, so that no power overflows, and not all of them vanish.
        Filtration::Power { power } if largest > 0.0 => raised(f64::from(reward.abs()) / largest, power),
        Filtration::Power { .. } => 0.0,
    };
    let mut sum = 0.0;
    for (i, (slot, &reward)) in weights.iter_mut().zip(rewards).enumerate() {
        *slot = if reward.is_nan() { 0.0 } else { weight(i, reward) };
        sum += *slot;
    }
    for (slot, reward) in weights.iter_mut().zip(rewards) {
        let alike = if reward.is_nan() { 0.0 } else { 1.0 / f64::from(counted) };
        *slot = if sum == 0.0 { alike } else { *slot / sum };
    }
    Ok(())
}

/// x^n, by squaring.
fn raised(mut x: f64, mut n: u32) -> f64 {
    let mut product = 1.0;
    while n > 0 {
        product *= if n & 1 == 1 { x } else { 1.0 };
        x *= x;
        n >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    const REWARDS: [f32; 5] = [0.5, 1.0, f32::NAN, 1.0, -2.0];

    fn of(rule: Filtration, rewards: &[f32]) -> [f64; 5] {
        let mut weights = [-1.0; 5];
        assert_eq!(filtrate(rule, rewards, &mut weights[..rewards.len()]), Ok(()));
        weights
    }

    #[test]
    fn every_rule_on_ties_and_a_missing_reward() {
        assert_eq!(of(Filtration::BestOfN {}, &REWARDS), [0.0, 1.0, 0.0, 0.0, 0.0]);
        let random = of(Filtration::BestRandom {}, &REWARDS);
        assert!((random[1] - 0.5).abs() < 1e-15 && (random[0] - 1.0 / 6.0).abs() < 1e-15 && random[2] == 0.0);
        assert_eq!(of(Filtration::BestWorst {}, &REWARDS), [0.0, 0.5, 0.0, 0.0, 0.5]);
        let ends = of(Filtration::MaxMin {}, &REWARDS);
        assert!(ends[0] == 0.0 && ends[1] == ends[3] && ends[1] == ends[4]);
        let random = of(Filtration::MaxRandom {}, &REWARDS);
        assert!((random[1] - 0.4).abs() < 1e-15 && (random[4] - 0.1).abs() < 1e-15);
        assert_eq!(of(Filtration::Power { power: 2 }, &REWARDS), [0.04, 0.16, 0.0, 0.16, 0.64]);
        assert_eq!(of(Filtration::Power { power: 0 }, &REWARDS), [0.25, 0.25, 0.0, 0.25, 0.25]);
    }

    #[test]
    fn equal_single_and_absent_rewards() {
        assert_eq!(of(Filtration::BestWorst {}, &[1.0; 5]), [0.5, 0.0, 0.0, 0.0, 0.5]);
        assert_eq!(of(Filtration::Power { power: 2 }, &[0.0; 5]), [0.2; 5]);
        for rule in [
            Filtration::BestOfN {},
            Filtration::BestRandom {},
            Filtration::BestWorst {},
            Filtration::MaxRandom {},
        ] {
            assert_eq!(of(rule, &[3.0])[0], 1.0, "{rule:?}");
            assert_eq!(of(rule, &[f32::NAN; 5]), [0.0; 5]);
        }
    }

    #[test]
    fn what_is_refused() {
        let mut weights = [0.0; 2];
        assert!(filtrate(Filtration::BestOfN {}, &[1.0], &mut weights).is_err());
        assert!(filtrate(Filtration::BestOfN {}, &[1.0, f32::INFINITY], &mut weights).is_err());
    }

    #[test]
    fn large_powers_neither_overflow_nor_vanish() {
        for power in [99, 500, u32::MAX] {
            assert_eq!(
                of(Filtration::Power { power }, &[1e30, 1.0, 0.0, -1e30, 1.0]),
                [0.5, 0.0, 0.0, 0.5, 0.0]
            );
            let small = of(Filtration::Power { power }, &[0.1, 0.2, 0.01, 0.0, 0.0]);
            assert!(small[0] < 1e-29 && small[1] == 1.0, "{small:?}");
        }
    }
}

//! VADE-style prompt selection (our reading): Thompson sampling from a Beta posterior per prompt.
//!
//! **Formula** (2511.18902, abstract only, utility from a secondary note; docs/maths/schedules.md):
//!
//! ```text
//! p ~ Beta(a, b);  utility p (1 − p)² (highest at 1/3: prefers harder prompts) or p (1 − p)
//! take the B highest, ties to the lower id
//! every step, all prompts:       a ← 1 + γ_g (a − 1), b alike        (γ_g 0.99)
//! prompts just visited, first:   a ← 1 + γ_l (a − 1), b alike        (γ_l 0.8)
//!     then a += correct, b += wrong
//! ```
//!
//! **Shapes**: one posterior and one score per prompt `[P]`; visited ids and counts `[V]`. The default
//! posterior is Beta(1, 1).
//!
//! **Special cases**: an id listed twice counts as two visits. a, b >= 1 always, and both decays preserve
//! that.
//!
//! **Variants**: the two decays are ours.

use crate::random::{Purpose, Stream, gamma};
use lockstep_core::Error;
use lockstep_core::require;

/// The posterior Beta(a, b) of a prompt's pass rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Posterior {
    /// 1 + decayed successes.
    pub a: f64,
    /// 1 + decayed failures.
    pub b: f64,
}

impl Default for Posterior {
    fn default() -> Self {
        Posterior { a: 1.0, b: 1.0 }
    }
}

impl Posterior {
    /// The mean, a/(a + b).
    pub fn mean(self) -> f64 {
        self.a / (self.a + self.b)
    }

    /// Returns the posterior decayed towards Beta(1, 1) by the factor `gamma`.
    pub fn decay(self, gamma: f64) -> Self {
        Posterior { a: 1.0 + gamma * (self.a - 1.0), b: 1.0 + gamma * (self.b - 1.0) }
    }

    /// Returns the posterior after `correct` and `wrong` new rollouts.
    pub fn observe(self, correct: u32, wrong: u32) -> Self {
        Posterior { a: self.a + f64::from(correct), b: self.b + f64::from(wrong) }
    }
}

/// The utility of a pass rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Utility {
    /// p (1 − p)².
    #[default]
    Harder,
    /// p (1 − p), the variance of one rollout.
    Variance,
}

impl Utility {
    /// Returns the utility of pass rate `p`.
    pub fn of(self, p: f64) -> f64 {
        let variance = p * (1.0 - p);
        match self {
            Utility::Harder => variance * (1.0 - p),
            Utility::Variance => variance,
        }
    }
}

/// Parameters of the selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vade {
    /// The utility by which draws are scored.
    pub utility: Utility,
    /// Decay γ_g of every step.
    pub global_decay: f64,
    /// Decay γ_l of a visit.
    pub local_decay: f64,
}

impl Default for Vade {
    fn default() -> Self {
        Vade { utility: Utility::Harder, global_decay: 0.99, local_decay: 0.8 }
    }
}

impl Vade {
    /// Checks that the decays are from 0 to 1.
    pub fn check(&self) -> Result<(), Error> {
        require::unit("global_decay", self.global_decay)?;
        require::unit("local_decay", self.local_decay)
    }

    /// Computes the utility of one Thompson draw per prompt, `[P]`; [`order::by_key`](super::order::by_key)
    /// then gives the top B.
    ///
    /// A prompt's draw depends only on `seed`, `step`, its id and its posterior. Errors: a posterior below 1
    /// or above 1e12 (with its index); lengths that disagree.
    pub fn scores(
        &self,
        posteriors: &[Posterior],
        seed: u64,
        step: u32,
        scores: &mut [f64],
    ) -> Result<(), Error> {
        require::length("scores", posteriors.len(), "one per posterior", scores.len())?;
        check_posteriors(posteriors)?;
        for (id, (posterior, score)) in posteriors.iter().zip(scores).enumerate() {
            let mut stream = Stream::new(seed, Purpose::THOMPSON, step, id as u32);
            *score = self.utility.of(gamma::beta(&mut stream, posterior.a, posterior.b)?);
        }
        Ok(())
    }

    /// Performs one step: all posteriors decay, then the visited prompts decay again and count `correct` of
    /// `rollouts`.
    ///
    /// Errors: an id without a posterior (with its index); more correct than rollouts (with the index);
    /// lengths that disagree; parameters outside their domain. On an error nothing changes.
    pub fn update(
        &self,
        posteriors: &mut [Posterior],
        visited: &[u32],
        correct: &[u32],
        rollouts: &[u32],
    ) -> Result<(), Error> {
        self.check()?;
        require::length("correct", visited.len(), "one per visited prompt", correct.len())?;
        require::length("rollouts", visited.len(), "one per visited prompt", rollouts.len())?;
        check_posteriors(posteriors)?;
        for i in 0..visited.len() {
            if visited[i] as usize >= posteriors.len() {
                return Err(require::value("visited", Some(i), "the id of a prompt", visited[i]));
            }
            if correct[i] > rollouts[i] {
                return Err(require::value("correct", Some(i), "at most the number of rollouts", correct[i]));
            }
        }
        for posterior in posteriors.iter_mut() {
            *posterior = posterior.decay(self.global_decay);
        }
        for i in 0..visited.len() {
            let posterior = &mut posteriors[visited[i] as usize];
            *posterior = posterior.decay(self.local_decay).observe(correct[i], rollouts[i] - correct[i]);
        }
        Ok(())
    }
}

fn check_posteriors(posteriors: &[Posterior]) -> Result<(), Error> {
    for (i, p) in posteriors.iter().enumerate() {
        for x in [p.a, p.b] {
            if !(1.0..=1e12).contains(&x) {
                return Err(require::value("posteriors", Some(i), "a and b from 1 to 1e12", x));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilities_peak_at_a_third_and_a_half() {
        for (utility, peak) in [(Utility::Harder, 1.0 / 3.0), (Utility::Variance, 0.5)] {
            for i in 0..=1000 {
                assert!(utility.of(f64::from(i) / 1000.0) <= utility.of(peak) + 1e-15);
            }
            assert_eq!((utility.of(0.0), utility.of(1.0)), (0.0, 0.0));
        }
    }

    #[test]
    fn update_decays_globally_then_locally_then_counts() {
        let mut all = [Posterior { a: 11.0, b: 6.0 }; 2];
        Vade::default().update(&mut all, &[1], &[3], &[8]).unwrap();
        let close = |p: Posterior, a: f64, b: f64| (p.a - a).abs() < 1e-12 && (p.b - b).abs() < 1e-12;
        assert!(close(all[0], 10.9, 5.95), "{:?}", all[0]);
        assert!(close(all[1], 1.0 + 0.8 * 9.9 + 3.0, 1.0 + 0.8 * 4.95 + 5.0), "{:?}", all[1]);
    }

    #[test]
    fn posteriors_never_fall_below_one() {
        let mut all = [Posterior::default()];
        for _ in 0..1000 {
            Vade::default().update(&mut all, &[0], &[0], &[1]).unwrap();
            assert!(all[0].a == 1.0 && all[0].b >= 1.0);
        }
        // Fixed point of b − 1 ← 0.99·0.8 (b − 1) + 1.
        assert!((all[0].b - 1.0 - 1.0 / 0.208).abs() < 1e-9);
    }

    #[test]
    fn a_score_depends_on_its_own_prompt_alone() {
        let vade = Vade::default();
        let few = [Posterior { a: 3.0, b: 2.0 }; 3];
        let many = [few[0], few[1], few[2], Posterior { a: 90.0, b: 1.0 }, few[0]];
        let (mut x, mut y) = ([0.0; 3], [0.0; 5]);
        vade.scores(&few, 9, 4, &mut x).unwrap();
        vade.scores(&many, 9, 4, &mut y).unwrap();
        assert_eq!(x, y[..3]);
        assert!(x[0] != x[1], "equal posteriors, different prompts: different draws");
    }

    #[test]
    fn concentrated_posteriors_are_ranked_by_their_utility() {
        let sure = |p: f64| Posterior { a: 1e6 * p, b: 1e6 * (1.0 - p) };
        let (mut scores, mut order) = ([0.0; 4], [0; 4]);
        let all = [sure(0.9), sure(1.0 / 3.0), sure(0.05), sure(0.55)];
        Vade::default().scores(&all, 1, 0, &mut scores).unwrap();
        super::super::order::by_key(&scores, &mut order).unwrap();
        assert_eq!(order, [1, 3, 2, 0]);
    }

    #[test]
    fn wrong_arguments_are_named_and_change_nothing() {
        let mut all = [Posterior::default(); 2];
        let vade = Vade::default();
        let id = vade.update(&mut all, &[0, 2], &[1, 1], &[1, 1]).unwrap_err();
        assert!(matches!(id, Error::Value { argument: "visited", index: Some(1), .. }));
        let more = vade.update(&mut all, &[0], &[2], &[1]).unwrap_err();
        assert!(matches!(more, Error::Value { argument: "correct", index: Some(0), .. }));
        assert_eq!(all, [Posterior::default(); 2]);
        let decay = Vade { local_decay: f64::NAN, ..vade }.update(&mut all, &[], &[], &[]).unwrap_err();
        assert!(matches!(decay, Error::Value { argument: "local_decay", index: None, .. }));
        let low = [Posterior { a: 1.0, b: 0.5 }];
        let e = vade.scores(&low, 0, 0, &mut [0.0]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "posteriors", index: Some(0), .. }));
    }
}

//! State that a run carries from step to step because its recipe asks for it. All of it is saved in the
//! checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use lockstep::core::num::Soft;
use lockstep::schedule::{Posterior, rapo};
use lockstep::schedules::mssr::{ValueTracker, rho};
use lockstep::schedules::traac::{Difficulty, Lengths};
use serde::{Deserialize, Serialize};

use super::bits;
use super::group::{Group, Response};
use super::pool::History;
use crate::config::is_default;

/// The state carried by a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Moving average of each role's reward.
    #[serde(with = "bits::doubles", skip_serializing_if = "Vec::is_empty")]
    pub role_values: Vec<f64>,
    /// Tracked values of the prompts visited so far.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, Counts>,
    /// The latest success of each prompt that had one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    successes: BTreeMap<String, Response>,
    /// Prompts that are no longer drawn.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    solved: BTreeSet<String>,
    /// Lengths of the right responses of recent batches, latest first, of each difficulty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lengths: Vec<[Vec<u32>; 3]>,
    /// The groups that recent steps learnt from, latest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    batches: Vec<Vec<Group>>,
    /// ARRoL: a and b of the posteriors of the pass rates of rollouts that stood wrong and right at the
    /// checkpoint, `[2, 2]`; empty at first.
    #[serde(with = "bits::doubles", skip_serializing_if = "Vec::is_empty")]
    pub chances: Vec<f64>,
    /// What is known of the pool's prompts.
    #[serde(skip_serializing_if = "is_default")]
    pub pool: History,
}

/// Batches whose right responses a length is compared with (TRAAC).
const BATCHES: usize = 10;

/// The share of right responses from which a prompt counts as solved.
const SOLVED: f64 = 0.9;

/// Decayed successes and failures of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    #[serde(with = "bits::double")]
    good: f64,
    #[serde(with = "bits::double")]
    bad: f64,
}

impl Memory {
    /// The tracked value of a prompt.
    pub fn value(&self, prompt: &str) -> f32 {
        self.tracker(prompt).value() as f32
    }

    fn tracker(&self, prompt: &str) -> ValueTracker {
        self.values.get(prompt).map_or(ValueTracker::default(), |c| ValueTracker { good: c.good, bad: c.bad })
    }

    /// Updates a prompt's tracked value with the rewards of a group.
    pub fn visit(&mut self, group: &Group) {
        let seen = |tracker: ValueTracker, reward: &f32| tracker.updated((*reward).into(), rho::<Soft>(None));
        let ValueTracker { good, bad } =
            group.rewards().iter().fold(self.tracker(&group.problem.prompt), seen);
        self.values.insert(group.problem.prompt.clone(), Counts { good, bad });
    }

    /// ARRoL: the posteriors of the pass rates of rollouts that stand wrong and right.
    pub fn chances(&self) -> [Posterior; 2] {
        let own =
            |at: usize| self.chances.get(2 * at..2 * at + 2).map(|pair| Posterior { a: pair[0], b: pair[1] });
        [0, 1].map(|at| own(at).unwrap_or_default())
    }

    /// Whether a prompt is no longer drawn.
    pub fn is_solved(&self, prompt: &str) -> bool {
        self.solved.contains(prompt)
    }

    /// Stops drawing the group's prompt if the group solved it.
    pub fn prune(&mut self, group: &Group) {
        if group.right() as f64 >= SOLVED * group.responses.len() as f64 {
            self.solved.insert(group.problem.prompt.clone());
        }
    }

    /// If the group failed, replaces one of its responses by the prompt's stored success; otherwise stores
    /// the group's last success.
    pub fn replay(&mut self, group: &mut Group, seed: u64, step: u64) {
        let (rewards, prompt) = (group.rewards(), &group.problem.prompt);
        let stored = self.successes.get(prompt);
        let which = rapo::replaces(&rewards, stored.is_some(), seed, step as u32, group.row as u32);
        if let Some((which, stored)) = which.zip(stored) {
            group.responses[which as usize] = stored.clone();
        }
        if let Some(last) = rapo::stores(&rewards) {
            let success = &group.responses[last as usize];
            let stored = Response { old: success.logp.clone(), routed: None, ..success.clone() };
            self.successes.insert(prompt.clone(), stored);
        }
    }

    /// Adds TRAAC's length reward, at most `most`, to right responses: against those of the same difficulty,
    /// here and in the batches before.
    ///
    /// Errors: none for responses that have a token.
    pub fn reward_lengths(&mut self, groups: &mut [Group], most: f32) -> Result<(), lockstep::Error> {
        let difficulty = |group: &Group| Difficulty::of(group.right() as f64 / group.responses.len() as f64);
        let mut batch: [Vec<u32>; 3] = Default::default();
        for group in &*groups {
            let right = group.responses.iter().zip(group.passes()).filter(|(_, passed)| *passed);
            batch[difficulty(group)? as usize].extend(right.map(|(r, _)| r.tokens.len() as u32));
        }
        self.lengths.insert(0, batch);
        self.lengths.truncate(BATCHES);
        for group in groups {
            let difficulty = difficulty(group)?;
            let known = self.lengths.iter().flat_map(|batch| &batch[difficulty as usize]);
            let Some(lengths) = Lengths::of(&mut known.copied().collect::<Vec<_>>())? else { continue };
            for response in group.responses.iter_mut().filter(|r| r.reward > rapo::SUCCESS) {
                response.reward += most * lengths.reward(response.tokens.len() as u32, difficulty) as f32;
            }
        }
        Ok(())
    }

    /// The groups that the step `lag` steps ago learnt from.
    pub fn batch(&self, lag: u32) -> &[Group] {
        (lag as usize).checked_sub(1).and_then(|at| self.batches.get(at)).map_or(&[], |batch| batch)
    }

    /// Stores the groups that a step learnt from, and drops the oldest batches beyond `window`.
    pub fn keep(&mut self, batch: Vec<Group>, window: u32) {
        self.batches.insert(0, batch);
        self.batches.truncate(window as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Problem;

    fn group(rewards: &[f32]) -> Group {
        let response = |(i, reward): (usize, &f32)| Response {
            tokens: vec![i as u32],
            logp: vec![-0.1 * i as f32],
            reward: *reward,
            old: Vec::new(),
            versions: Vec::new(),
            routed: None,
        };
        let problem = Problem { prompt: "1+1=".into(), solution: "#2".into(), answer: "2".into() };
        Group {
            row: 0,
            problem,
            responses: rewards.iter().enumerate().map(response).collect(),
            baseline: 0.3,
        }
    }

    /// By hand: two of three right is medium, scale 0.75. Lengths 2 and 4 have median 3: linear parts 1 and
    /// 0, the bonus of 4 is 1/(1 + e^(1/0.3)) = 0.03445. Then 6 and 6 too, median 5: 1/(1 + e^2) = 0.1192.
    #[test]
    fn short_right_responses_earn_more() {
        let of = |lengths: [usize; 3]| {
            let mut group = group(&[1.0, 1.0, 0.0]);
            for (response, length) in group.responses.iter_mut().zip(lengths) {
                response.tokens = vec![1; length];
            }
            group
        };
        let mut memory = Memory::default();
        let mut rewarded = |lengths| {
            let mut groups = [of(lengths)];
            memory.reward_lengths(&mut groups, 0.5).unwrap();
            groups[0].rewards()
        };
        let near = |found: Vec<f32>, expected: [f32; 3]| {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {expected:?}");
        };
        near(rewarded([2, 4, 1]), [1.375, 1.0 + 0.375 * 0.034_445_2, 0.0]);
        let long = 1.0 + 0.375 * 0.119_202_9;
        near(rewarded([6, 6, 1]), [long, long, 0.0]);
        (0..20).for_each(|_| _ = rewarded([3, 3, 1]));
        assert_eq!(memory.lengths.len(), BATCHES);
        let mut wrong = [group(&[0.0, 0.0])];
        memory.reward_lengths(&mut wrong, 0.5).unwrap();
        assert_eq!(wrong[0].rewards(), [0.0, 0.0]);
    }

    #[test]
    fn a_failed_group_gets_the_last_success_back() {
        let mut memory = Memory::default();
        let mut failed = group(&[0.0, 0.0]);
        memory.replay(&mut failed, 1, 0);
        assert_eq!(failed, group(&[0.0, 0.0]), "nothing is stored");
        memory.replay(&mut group(&[0.0, 1.0]), 1, 1);
        memory.replay(&mut failed, 1, 2);
        let back: Vec<&Response> = failed.responses.iter().filter(|r| r.reward == 1.0).collect();
        assert!(back.len() == 1 && back[0].tokens == [1] && back[0].old == back[0].logp);
        memory.prune(&failed);
        assert!(!memory.is_solved("1+1="));
        memory.prune(&group(&[1.0, 1.0]));
        assert!(memory.is_solved("1+1=") && !memory.is_solved("2+2="));
        memory.visit(&failed);
        assert!(memory.value("1+1=") < 0.51 && memory.value("2+2=") == 0.5);
        memory.keep(vec![failed.clone()], 2);
        memory.keep(vec![group(&[1.0])], 2);
        assert_eq!(memory.batch(2), [failed]);
        assert!(memory.batch(0).is_empty() && memory.batch(3).is_empty());
        memory.role_values = vec![0.1, f64::MIN_POSITIVE];
        let text = serde_json::to_string(&memory).unwrap();
        assert_eq!(serde_json::from_str::<Memory>(&text).unwrap(), memory);
        assert_eq!(serde_json::to_string(&Memory::default()).unwrap(), "{}");
    }
}

//! Sampling: problems, the engine's responses, and the groups that a step learns from. The file exceeds 400
//! lines because its tests make the groups by hand.

use anyhow::Result;
use lockstep::schedules::dynamic_sampling::{self, Outcome};
use lockstep::schedules::{rapo, rubric};
use lockstep::{Call, Credit, Duty, RolloutsBuf};

use super::group::{Group, Response};
use super::memory::Memory;
use super::record::{RlRecord, RolloutCount};
use super::sampler::Sampler;
use super::state::State;
use super::trainer::{Trainer, mean};
use crate::model::{Model, Weights};
use crate::policy::{Sampled, greedy, sample_up_to};
use crate::random::{Phase, Stream};
use crate::task::Problem;
use crate::vocab::END;

/// Maximum number of draws in search of an unsolved problem.
const MAX_DRAWS: usize = 100;
/// Maximum number of prompt batches per step under dynamic sampling.
const MAX_ROUNDS: u32 = 10;

/// The result of sampling for a step.
pub(super) struct Generated {
    /// The groups to learn from.
    pub(super) groups: Vec<Group>,
    /// The logged statistics of all groups.
    pub(super) record: RlRecord,
}

/// A response that goes on.
pub(super) struct Begun {
    /// The prompt and the response so far.
    read: Vec<u32>,
    /// Tokens of the response so far.
    written: usize,
    /// The phase, the step and the row of its random stream.
    name: (Phase, u64, u64),
}

impl Begun {
    pub(super) fn new(prompt: &[u32], response: &[u32], name: (Phase, u64, u64)) -> Self {
        Self { read: [prompt, response].concat(), written: response.len(), name }
    }
}

impl Trainer {
    /// The policy as the inference engine holds it: by default every weight rounded to bf16.
    pub(super) fn engine(&self, weights: &Weights) -> Result<Model> {
        let manner = self.config().engine_manner();
        Model::frozen(&self.config().model, &manner.precision.round(weights))?.run_as(manner)
    }

    pub(super) fn prompts(&self, problems: &[&Problem]) -> Result<Vec<Vec<u32>>> {
        problems.iter().map(|p| self.vocab.encode(&p.prompt)).collect()
    }

    /// Maximum number of tokens in a response.
    pub(super) fn limit(&self) -> usize {
        self.task.longest().1 + 1
    }

    /// The task's environment: see [`crate::policy::Environment`].
    pub(super) fn environment(&self, read: &[u32]) -> Option<u32> {
        self.vocab.token(self.task.told(|| self.vocab.decode(read))?)
    }

    /// Samples the rest of responses of at most `limit` tokens; a token's draw is that of its response's
    /// stream and its position.
    pub(super) fn rest(&self, engine: &Model, begun: Vec<Begun>, limit: usize) -> Result<Vec<Sampled>> {
        let limits: Vec<usize> = begun.iter().map(|one| limit - one.written).collect();
        let (read, names): (Vec<_>, Vec<_>) =
            begun.into_iter().map(|one| (one.read, (one.name, one.written))).unzip();
        let stream = |row: u64| {
            let ((phase, step, row), written) = names[row as usize];
            Stream::new(self.config().seed, phase, step, row).after(written)
        };
        sample_up_to(engine, &read, &limits, &|read| self.environment(read), stream)
    }

    /// Samples a response to each problem; the first uses the random stream of row `first`.
    pub(super) fn rollouts(
        &self,
        weights: &Weights,
        problems: &[&Problem],
        phase: Phase,
        step: u64,
        first: u64,
    ) -> Result<Vec<Sampled>> {
        let stream = |row| Stream::new(self.config().seed, phase, step, first + row);
        let limits = vec![self.limit(); problems.len()];
        let environment = |read: &[u32]| self.environment(read);
        sample_up_to(&self.engine(weights)?, &self.prompts(problems)?, &limits, &environment, stream)
    }

    /// The engine's greedy response to each problem.
    fn greedy(&self, weights: &Weights, problems: &[&Problem]) -> Result<Vec<Sampled>> {
        if let Some(game) = self.task.game() {
            return self.play_greedily(weights, game, problems);
        }
        let environment = |read: &[u32]| self.environment(read);
        greedy(&self.engine(weights)?, &self.prompts(problems)?, self.limit(), &environment)
    }

    pub(super) fn rewards(&self, problems: &[&Problem], sampled: &[Sampled]) -> Vec<f32> {
        if self.trial {
            let [low, high] = self.task.game().map_or([0.0, 1.0], |game| [-game.stake(), game.stake()]);
            return (0..problems.len()).map(|i| if i % 2 == 0 { low } else { high }).collect();
        }
        let reward = |(p, s): (&&Problem, &Sampled)| self.task.reward(p, &self.vocab.decode(&s.response));
        problems.iter().zip(sampled).map(reward).collect()
    }

    /// A problem for an RL step. If the recipe prunes solved prompts, it is an unsolved one, unless hardly
    /// any are left.
    pub(super) fn unsolved_problem(&self, memory: &Memory, step: u64, row: u64) -> Problem {
        let mut stream = Stream::new(self.config().seed, Phase::RlProblems, step, row);
        let mut draw = || self.task.training(&mut |n| stream.below(n));
        let first = draw();
        if !memory.is_solved(&first.prompt) {
            return first;
        }
        (0..MAX_DRAWS).map(|_| draw()).find(|problem| !memory.is_solved(&problem.prompt)).unwrap_or(first)
    }

    /// Samples groups until there are enough to learn from: once, or as often as dynamic sampling allows.
    /// Updates the state remembered about prompts.
    pub(super) fn generate(&self, state: &mut State, step: u64) -> Result<Generated> {
        let rl = &self.config().rl;
        let (mut kept, mut alike) = (Vec::new(), Vec::new());
        let (mut rewards, mut clean, mut constant, mut tokens, mut asked) = (Vec::new(), Vec::new(), 0, 0, 0);
        let mut record = RlRecord::default();
        let mut calls = None;
        for round in 0..MAX_ROUNDS {
            let groups = match &self.config().asynchronous {
                Some(settings) => self.deliver(state, settings, step)?,
                None => self.sample_groups(state, step, round, &mut record)?,
            };
            if groups.is_empty() {
                // The pool has no more prompts.
                break;
            }
            clean.extend(groups.iter().flat_map(Group::rewards).map(f64::from));
            let groups = self.visit(state, groups, step, round)?;
            let responses = || groups.iter().flat_map(|group| &group.responses);
            rewards.extend(responses().map(|response| f64::from(response.reward)));
            tokens += responses().map(|response| response.tokens.len()).sum::<usize>();
            let called = |response: &Response| self.task.calls(|| self.vocab.decode(&response.tokens));
            calls = responses().filter_map(called).fold(calls, |sum, more| Some(sum.unwrap_or(0) + more));
            constant += groups.iter().filter(|group| group.is_constant()).count();
            asked += groups.len();
            let packed = self.pack(state, &groups, Some(Call::Advantages))?;
            let credit = self.algorithm.advantages(&packed.rollouts)?;
            let teaches = teaches(&packed.rollouts, &credit)?;
            for (group, teaches) in groups.into_iter().zip(teaches) {
                if teaches && kept.len() < rl.keep { kept.push(group) } else { alike.push(group) }
            }
            let outcome = dynamic_sampling::outcome(kept.len() as u32, rl.keep as u32, round + 1, MAX_ROUNDS);
            if !self.algorithm.asks(Duty::DynamicSampling) || outcome != Outcome::Continue {
                break;
            }
        }
        if let Some(settings) = &self.config().asynchronous {
            self.meanwhile(state, settings, step)?;
        }
        // At least one group per minibatch, so that none is empty.
        let missing = rl.minibatches.saturating_sub(kept.len());
        kept.extend(alike.into_iter().take(missing));
        let record = RlRecord {
            reward: mean(rewards.iter().copied()),
            clean_reward: (rl.flip_rewards > 0.0 || rl.length_reward > 0.0 || rl.rubric.is_some())
                .then(|| mean(clean.iter().copied())),
            response_tokens: tokens as f64 / rewards.len() as f64,
            calls: calls.map(|calls| calls as f64 / rewards.len() as f64),
            constant_groups: constant as f64 / asked as f64,
            rollouts: self
                .pool
                .is_some()
                .then_some(RolloutCount { step: rewards.len() as u64, total: state.memory.pool.rollouts }),
            ..record
        };
        Ok(Generated { groups: kept, record })
    }

    /// Samples a group of responses to each prompt of a round.
    pub(super) fn sample_groups(
        &self,
        state: &mut State,
        step: u64,
        round: u32,
        record: &mut RlRecord,
    ) -> Result<Vec<Group>> {
        let prompts = self.config().rl.prompts as u64;
        // The index in its step of the round's first prompt.
        let first = u64::from(round) * prompts;
        if let Some(game) = self.task.game() {
            return self.play_groups(state, game, step, first);
        }
        let rows = first..first + prompts;
        let (problems, mut sizes) = match &self.pool {
            Some(pool) => self.choose(pool, state, step, round as usize)?,
            None => {
                let one = |row| (self.unsolved_problem(&state.memory, step, row), self.group_size());
                rows.clone().map(one).unzip()
            }
        };
        let all = |sizes: &[usize]| -> Vec<&Problem> {
            problems.iter().zip(sizes).flat_map(|(p, size)| std::iter::repeat_n(p, *size)).collect()
        };
        let offset = first * self.group_size() as u64;
        let sampled = match self.sample_by_rule(state, &problems, step, offset, &mut record.sampler)? {
            Some(groups) => {
                sizes = groups.iter().map(Vec::len).collect();
                groups.concat()
            }
            None => self.rollouts(&state.weights, &all(&sizes), Phase::Rollout, step, offset)?,
        };
        let asked = all(&sizes);
        let rewards = self.rewards(&asked, &sampled);
        let mut responses = sampled.into_iter().zip(rewards).map(|(s, reward)| Response::new(s, reward));
        let group = |(row, (problem, size)): (u64, (&Problem, &usize))| Group {
            row,
            problem: problem.clone(),
            responses: responses.by_ref().take(*size).collect(),
            baseline: 0.0,
        };
        let mut groups = rows.zip(problems.iter().zip(&sizes)).map(group).collect::<Vec<_>>();
        self.join(&state.weights, &mut groups, step)?;
        Ok(groups)
    }

    /// Flips rewards if the run asks for that, gives new groups their baselines, and remembers about their
    /// prompts what the recipe asks for. A noisy verifier judges every response of the RL phase, also the
    /// greedy one. The reward for short responses comes last: what is remembered is right or wrong.
    fn visit(&self, state: &mut State, mut groups: Vec<Group>, step: u64, round: u32) -> Result<Vec<Group>> {
        let flips = if self.trial { 0.0 } else { self.config().rl.flip_rewards };
        let mut noise = Stream::new(self.config().seed, Phase::Flip, step, round.into());
        // The verifier's rewards are 0 or 1.
        let mut judge = |reward: f32| if noise.unit() < flips { 1.0 - reward } else { reward };
        for response in groups.iter_mut().flat_map(|group| &mut group.responses) {
            response.reward = judge(response.reward);
        }
        self.observe(&mut state.memory.pool, &groups)?;
        if self.config().sampling.sampler == Sampler::Arrol {
            self.observe_chances(&mut state.memory, &groups)?;
        }
        let each: Vec<&Problem> = groups.iter().map(|group| &group.problem).collect();
        let greedy = match self.algorithm.asks(Duty::GreedyResponse) {
            true => self.rewards(&each, &self.greedy(&state.weights, &each)?),
            false => Vec::new(),
        };
        let greedy: Vec<f32> = greedy.into_iter().map(judge).collect();
        for (i, group) in groups.iter_mut().enumerate() {
            let tracked = || state.memory.value(&group.problem.prompt);
            group.baseline = greedy.get(i).copied().unwrap_or_else(tracked);
            if self.algorithm.asks(Duty::TrackedValue) || self.algorithm.asks(Duty::PriorValue) {
                state.memory.visit(group);
            }
            if self.algorithm.asks(Duty::PruneSolved) {
                // An epoch here is one step: prompts are drawn at random, so no pass over all of them ever
                // ends.
                state.memory.prune(group);
            }
            if self.algorithm.asks(Duty::ReplaySuccesses) {
                state.memory.replay(group, self.config().seed, step);
            }
        }
        let most = self.config().rl.length_reward;
        if most > 0.0 && !self.trial {
            state.memory.reward_lengths(&mut groups, most)?;
        }
        if let Some(points) = self.config().rl.rubric.filter(|_| !self.trial) {
            self.reward_by_rubric(&mut groups, points.map(f64::from))?;
        }
        Ok(groups)
    }

    /// Replaces the verifier's judgement by RuscaRL's reward, whose criteria are this, the working alone, and
    /// the end.
    fn reward_by_rubric(&self, groups: &mut [Group], points: [f64; 3]) -> Result<()> {
        for Group { problem, responses, .. } in groups {
            let worked = Problem::working(&problem.solution);
            for response in responses {
                let works = Problem::working(&self.vocab.decode(&response.tokens)) == worked;
                let met = [response.reward > rapo::SUCCESS, works, response.tokens.last() != Some(&END)];
                response.reward = rubric::reward(&points, &met)? as f32;
            }
        }
        Ok(())
    }
}

/// Whether each group has an unmasked token, in a response that is kept, whose advantage is nonzero.
fn teaches(rollouts: &RolloutsBuf, credit: &Credit) -> Result<Vec<bool>> {
    let batch = rollouts.batch()?;
    let live = |token: usize| match &credit.loss_mask {
        Some(mask) => mask[token] != 0,
        None => batch.loss_mask().at(token),
    };
    let teaches = |sequence: usize| {
        let tokens = batch.cu_seqlens().span(sequence);
        let gains = |token: usize| credit.advantage[if credit.per_token { token } else { sequence }] != 0.0;
        credit.keep.get(sequence).is_none_or(|keep| *keep != 0)
            && (tokens.start..tokens.end).any(|token| live(token) && gains(token))
    };
    let group = |group: usize| {
        let members = batch.cu_groups().span(group);
        (members.start..members.end).any(teaches)
    };
    Ok((0..batch.groups()).map(group).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::model::{Precision, PrecisionFlow};
    use crate::train::{Asynchronous, RlStep, Schedule};

    fn trainer(recipe: &str, change: impl Fn(&mut Config)) -> Trainer {
        Trainer::small("addition:1", recipe, |config| {
            (config.model.width, config.model.experts) = (8, 8);
            (config.rl.prompts, config.rl.minibatches, config.rl.steps, config.rl.rate) = (64, 1, 2, 0.0);
            (config.measure.problems, config.measure.every) = (16, 1);
            change(config);
        })
    }

    /// An untrained model solves next to nothing: at 1 every reward is turned round, at 1/4 about 128 of 512.
    #[test]
    fn flips_change_rewards_alone() {
        let visited = |flips| {
            let trainer = trainer("remax", |config| config.rl.flip_rewards = flips);
            let mut state = State::new(trainer.config());
            let groups = trainer.sample_groups(&mut state, 0, 0, &mut RlRecord::default()).unwrap();
            trainer.visit(&mut state, groups, 0, 0).unwrap()
        };
        let clean = visited(0.0);
        for (flips, least, most) in [(0.25, 96, 160), (1.0, 512, 512)] {
            let mut flipped = visited(flips);
            let (mut changed, mut greedy) = (0, 0);
            for (group, before) in flipped.iter_mut().zip(&clean) {
                greedy += usize::from(group.baseline != before.baseline);
                group.baseline = before.baseline;
                for (response, before) in group.responses.iter_mut().zip(&before.responses) {
                    assert!([0.0, 1.0].contains(&response.reward));
                    changed += usize::from(response.reward != before.reward);
                    response.reward = before.reward;
                }
            }
            assert_eq!(flipped, clean, "nothing but rewards and baselines");
            assert!((least..=most).contains(&changed), "{changed}");
            assert!(greedy > 0 && (greedy == 64) == (flips == 1.0), "{greedy}");
        }
    }

    /// `1+2=` is worked as `1+2=3 #3`. Points 2, 1 and −1 over 3.
    #[test]
    fn a_rubric_by_hand() {
        let trainer = trainer("grpo", |config| config.rl.rubric = Some([2.0, 1.0, -1.0]));
        let response = |(said, end, reward): (&str, &[u32], f32)| trainer.saying(said, end, reward);
        let said: [(&str, &[u32], f32); 8] = [
            ("1+2=3 #3", &[END], 1.0),
            ("1+2=4 #3", &[END], 1.0),
            ("1+2=4 #4", &[END], 0.0),
            ("1+2=3 ", &[], 0.0),
            ("1+2=4 #3", &[], 1.0),
            ("1+2=3 #4", &[END], 0.0),
            ("1+2=3 1+", &[END], 0.0),
            ("#3", &[END], 1.0),
        ];
        let problem = Problem { prompt: "1+2=".into(), solution: "1+2=3 #3".into(), answer: "3".into() };
        let mut group = [Group { row: 0, problem, responses: said.map(response).into(), baseline: 0.0 }];
        trainer.reward_by_rubric(&mut group, [2.0, 1.0, -1.0]).unwrap();
        let points = [3.0, 2.0, 0.0, 0.0, 1.0, 1.0, 0.0, 2.0].map(|points: f32| (points / 3.0).to_bits());
        assert_eq!(group[0].rewards().into_iter().map(f32::to_bits).collect::<Vec<_>>(), points);
    }

    /// With rate 0 the policy stays as it is: what is learnt from is turned round, with and without an engine
    /// beside the trainer, what is measured is not.
    #[test]
    fn evaluations_stay_clean() {
        for schedule in [None, Some(Schedule::Areal)] {
            let records = |flips| {
                let trainer = trainer("grpo", |config| {
                    (config.rl.prompts, config.rl.flip_rewards) = (8, flips);
                    config.asynchronous = schedule.map(Asynchronous::new);
                });
                let mut state = State::new(trainer.config());
                state.reference = Some(state.weights.clone());
                let mut step = |_| {
                    let RlStep { record, .. } = trainer.rl_step(&mut state, drop).unwrap();
                    (record.reward, record.clean_reward, record.held_out)
                };
                [0, 1].map(&mut step)
            };
            for ((clean, none, measured), (flipped, before, still)) in
                records(0.0).into_iter().zip(records(1.0))
            {
                assert_eq!((none, before, flipped), (None, Some(clean), 1.0 - clean));
                assert_eq!(measured, still);
            }
        }
    }

    /// One precision for both leaves only what the cache's sums differ by; that is what Jet-RL is about.
    #[test]
    fn one_precision_brings_engine_and_trainer_together() {
        let gap = |train, rollout| {
            let trainer = trainer("grpo", |config| {
                (config.rl.prompts, config.model.width, config.model.hidden) = (8, 32, 32);
                config.precision = PrecisionFlow { rollout, train };
            });
            let mut state = State::new(trainer.config());
            state.reference = Some(state.weights.clone());
            trainer.rl_step(&mut state, drop).unwrap().record.mismatch_std
        };
        let [bf16, fp8] = [Precision::Bf16, Precision::Fp8].map(|both| gap(both, both));
        let mixed = gap(Precision::Bf16, Precision::Fp8);
        assert!(mixed > 0.0 && bf16 < mixed / 5.0 && fp8 < mixed / 2.0, "{bf16} {fp8} {mixed}");
    }
}

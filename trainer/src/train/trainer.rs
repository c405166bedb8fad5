//! The steps of a run: each takes a state to the next, a function of configuration and state alone.

use anyhow::{Context, Result};
use lockstep::routing::RoutingTrace;

use super::record::{RlRecord, WarmRecord};
use super::state::State;
use crate::adamw::AdamW;
use crate::config::Config;
use crate::model::{Model, Weights, round_to_bf16};
use crate::policy::{Pass, Sampled, Sequence, sample};
use crate::random::{Phase, Stream};
use crate::rl::Algorithm;
use crate::rollouts::Rollouts;
use crate::routing::{self, Mode, Record, RolloutPrecision};
use crate::task::{Problem, Task};
use crate::vocab::{END, Vocab};

/// Training problems sampled to decide whether the warm start is over.
const WARM_CHECK_PROBLEMS: u64 = 256;

/// What the steps need besides the state.
pub struct Trainer {
    config: Config,
    task: Task,
    vocab: Vocab,
    algorithm: Algorithm,
    held_out: Vec<Problem>,
}

/// An RL step that was done.
pub struct RlStep {
    /// Its line in the metrics.
    pub record: RlRecord,
    /// The rollouts as the updates saw them.
    pub rollouts: Rollouts,
    /// Their routing in the engine, every token of prompt and response, if it is recorded.
    pub routing: Option<RoutingTrace>,
}

impl Trainer {
    /// Opens task and recipe; `device` is where the RL maths runs.
    pub fn new(config: Config, task: Task, device: &str) -> Result<Self> {
        let vocab = Vocab::new(task.alphabet());
        let algorithm = Algorithm::new(&config.recipe_toml, device)?;
        algorithm.check_groups_of(config.rl.group)?;
        let held_out = task.held_out(config.measure.problems);
        Ok(Self { config, task, vocab, algorithm, held_out })
    }

    /// The run's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many held-out problems there are to be measured on.
    pub fn held_out_problems(&self) -> usize {
        self.held_out.len()
    }

    /// Where Lockstep runs.
    pub fn device(&self) -> String {
        self.algorithm.device()
    }

    fn training_problem(&self, phase: Phase, step: u64, row: u64) -> Problem {
        let mut stream = Stream::new(self.config.seed, phase, step, row);
        self.task.training(&mut |n| stream.below(n))
    }

    /// The model as the trainer runs it, with or without gradients.
    fn model(&self, weights: &Weights, trainable: bool) -> Result<Model> {
        let build = if trainable { Model::trainable } else { Model::frozen };
        build(&self.config.model, weights)?.run_as(self.config.trainer_manner())
    }

    /// Samples a response to each problem from the policy as the inference engine holds it: by default every weight rounded to bf16.
    fn rollouts(
        &self,
        weights: &Weights,
        problems: &[&Problem],
        phase: Phase,
        step: u64,
    ) -> Result<Vec<Sampled>> {
        let engine = match self.config.rollout_precision {
            RolloutPrecision::F32 => Model::frozen(&self.config.model, weights)?,
            _ => Model::frozen(&self.config.model, &round_to_bf16(weights))?,
        };
        let engine = engine.run_as(self.config.engine_manner())?;
        let prompts: Vec<_> = problems.iter().map(|p| self.vocab.encode(&p.prompt)).collect::<Result<_>>()?;
        let limit = self.task.longest().1 + 1;
        sample(&engine, &prompts, limit, |row| Stream::new(self.config.seed, phase, step, row))
    }

    fn rewards(&self, problems: &[&Problem], sampled: &[Sampled]) -> Vec<f32> {
        problems.iter().zip(sampled).map(|(p, s)| p.reward(&self.vocab.decode(&s.response))).collect()
    }

    fn pass_at_1(&self, weights: &Weights, problems: &[&Problem], phase: Phase, step: u64) -> Result<f64> {
        let rewards = self.rewards(problems, &self.rollouts(weights, problems, phase, step)?);
        Ok(mean(rewards.iter().map(|&r| f64::from(r))))
    }

    /// Held-out pass@1 after RL step `step`: one sample a problem, at temperature 1.
    fn held_out(&self, weights: &Weights, step: u64) -> Result<f64> {
        self.pass_at_1(weights, &self.held_out.iter().collect::<Vec<_>>(), Phase::Measure, step)
    }

    /// One step of the warm start: some updates on worked solutions, then a look at how many training problems are solved.
    pub fn warm_step(&self, state: &mut State, tick: impl Fn(u64)) -> Result<WarmRecord> {
        let warm = &self.config.warm;
        let mut record = WarmRecord { step: state.progress.warm_steps + 1, ..WarmRecord::default() };
        for i in 0..warm.updates {
            let update = state.progress.warm_steps * warm.updates + i;
            let batch = (0..warm.batch as u64).map(|row| {
                let problem = self.training_problem(Phase::WarmProblems, update, row);
                let mut response = self.vocab.encode(&problem.solution)?;
                response.push(END);
                Ok(Sequence { prompt: self.vocab.encode(&problem.prompt)?, response })
            });
            let model = self.model(&state.weights, true)?;
            let pass = Pass::new(&model, &batch.collect::<Result<Vec<_>>>()?)?;
            record.loss = -mean(pass.logp.iter().map(|&x| f64::from(x)));
            let grads = pass.gradients(&vec![-1.0 / pass.logp.len() as f32; pass.logp.len()])?;
            state.adam.update(&self.config.adam, self.config.warm_rate(update), &mut state.weights, &grads);
            tick(i + 1);
        }
        let check: Vec<Problem> = (0..WARM_CHECK_PROBLEMS)
            .map(|row| self.training_problem(Phase::WarmCheck, record.step, row))
            .collect();
        record.training_pass =
            self.pass_at_1(&state.weights, &check.iter().collect::<Vec<_>>(), Phase::WarmCheck, record.step)?;
        state.progress.warm_steps = record.step;
        if record.training_pass >= f64::from(warm.target) || record.step >= warm.max_steps {
            record.held_out = Some(self.held_out(&state.weights, 0)?);
            state.progress.warm_done = true;
            state.reference = Some(state.weights.clone());
            state.adam = AdamW::new(&state.weights);
        }
        Ok(record)
    }

    /// One RL step: rollouts, rewards, and the updates that learn from them.
    pub fn rl_step(&self, state: &mut State, tick: impl Fn(u64)) -> Result<RlStep> {
        let rl = &self.config.rl;
        let index = state.progress.rl_steps;
        let problems: Vec<Problem> =
            (0..rl.prompts as u64).map(|row| self.training_problem(Phase::RlProblems, index, row)).collect();
        let asked: Vec<&Problem> = problems.iter().flat_map(|p| std::iter::repeat_n(p, rl.group)).collect();
        let sampled = self.rollouts(&state.weights, &asked, Phase::Rollout, index)?;
        tick(1);

        let all = self.pack(&asked, &sampled);
        let everything = self.algorithm.advantages(&all)?;
        let kept = self.keep(&everything.std);
        let (mut rollouts, _) = all.select(&kept);
        let members: Vec<usize> = kept.iter().flat_map(|g| g * rl.group..(g + 1) * rl.group).collect();
        let sequences: Vec<Sequence> = members
            .iter()
            .map(|&s| {
                Ok(Sequence {
                    prompt: self.vocab.encode(&asked[s].prompt)?,
                    response: sampled[s].response.clone(),
                })
            })
            .collect::<Result<_>>()?;
        // The engine's routing, one record a sequence, if there is any.
        let engine: Vec<&Record> = members.iter().filter_map(|&s| sampled[s].routed.as_ref()).collect();
        let mode = self.config.routing.map(|routing| routing.mode);
        // The trainer's own view of what was sampled, before any update, and the policy after the warm start's view.
        let old = self.model(&state.weights, false)?;
        let old = Pass::replaying(&old, &sequences, (mode == Some(Mode::R3)).then_some(&engine[..]))?;
        rollouts.logp_old.clone_from(&old.logp);
        let reference = state.reference.as_ref().context("the RL phase has no reference policy")?;
        rollouts.logp_ref = Some(Pass::new(&self.model(reference, false)?, &sequences)?.logp);
        rollouts.logp = rollouts.logp_old.clone();
        let advantages = self.algorithm.advantages(&rollouts)?;

        let rate = self.config.rl_rate(index);
        let (mut grad_norm, mut replayed, mut balance) = (0.0, old.replayed, 0.0);
        // What ran in the rollout, for the old policy and in the updates, in the order of the updates.
        let mut ran: [Vec<Record>; 3] = Default::default();
        let minibatches = self.minibatches(index, kept.len());
        for (i, groups) in minibatches.iter().enumerate() {
            let members: Vec<usize> = groups.iter().flat_map(|g| g * rl.group..(g + 1) * rl.group).collect();
            let part: Vec<Sequence> = members.iter().map(|&s| sequences[s].clone()).collect();
            let advantage: Vec<f32> = members.iter().map(|&s| advantages.advantage[s]).collect();
            let records: Option<Vec<&Record>> = match mode {
                None | Some(Mode::None) => None,
                Some(Mode::R2) => Some(members.iter().map(|&s| &old.routed[s]).collect()),
                Some(Mode::R3) => Some(members.iter().map(|&s| engine[s]).collect()),
            };
            let model = self.model(&state.weights, true)?;
            let pass = Pass::replaying(&model, &part, records.as_deref())?;
            let (mut batch, places) = rollouts.select(groups);
            batch.logp.clone_from(&pass.logp);
            let coefficients = self.algorithm.coefficients(&batch, &advantage)?;
            let balanced = self.balance(&pass)?;
            let scores = balanced.as_ref().map(|balance| &balance.gradient[..]);
            let grads = pass.gradients_with(&coefficients, scores)?;
            grad_norm += state.adam.update(&self.config.adam, rate, &mut state.weights, &grads);
            for (place, logp) in places.into_iter().zip(&pass.logp) {
                rollouts.logp[place] = *logp;
            }
            replayed += pass.replayed;
            balance += balanced.map_or(0.0, |balance| balance.loss) / minibatches.len() as f64;
            if mode.is_some() {
                ran[0].extend(members.iter().map(|&s| engine[s].clone()));
                ran[1].extend(members.iter().map(|&s| old.routed[s].clone()));
                ran[2].extend(pass.routed);
            }
            tick(i as u64 + 2);
        }

        state.progress.rl_steps += 1;
        let mut record = self.describe(&rollouts, &advantages)?;
        record.reward = mean(all.rewards.iter().map(|&r| f64::from(r)));
        record.response_tokens = all.logp_rollout.iter().flatten().count() as f64 / asked.len() as f64;
        record.constant_groups = everything.constant_groups() as f64 / rl.prompts as f64;
        record.rate = f64::from(rate);
        record.grad_norm = f64::from(grad_norm) / minibatches.len() as f64;
        record.step = state.progress.rl_steps;
        let mut trace = None;
        if mode.is_some() {
            let [gap_old, gap_update] = self.algorithm.gaps(&rollouts)?;
            let pack = |records: &[Record]| Record::concat(&self.config.model, records);
            let found =
                routing::compare(&self.config.model, &pack(&ran[0])?, &pack(&ran[1])?, &pack(&ran[2])?)?;
            let replayed = replayed as u64;
            record.routing = Some(routing::Mismatches { replayed, gap_old, gap_update, balance, ..found });
            trace = Some(Record::concat(&self.config.model, engine)?.trace);
        }
        if record.step % self.config.measure.every == 0 || record.step == rl.steps {
            record.held_out = Some(self.held_out(&state.weights, record.step)?);
        }
        Ok(RlStep { record, rollouts, routing: trace })
    }

    /// The load-balance loss of a pass, if there is one.
    fn balance(&self, pass: &Pass<'_>) -> Result<Option<routing::Balance>> {
        match self.config.routing {
            Some(routing) if routing.balance > 0.0 => {
                let record = Record::concat(&self.config.model, &pass.routed)?;
                Ok(Some(routing::balance(&self.config.model, &record, routing.balance)?))
            }
            _ => Ok(None),
        }
    }

    fn pack(&self, asked: &[&Problem], sampled: &[Sampled]) -> Rollouts {
        let mut packed = Rollouts { cu_seqlens: vec![0], ..Rollouts::default() };
        let mut logp = Vec::new();
        for s in sampled {
            logp.extend(&s.logp);
            packed.cu_seqlens.push(logp.len() as u32);
        }
        let group = self.config.rl.group;
        packed.cu_groups = (0..=asked.len() / group).map(|g| (g * group) as u32).collect();
        packed.rewards = self.rewards(asked, sampled);
        packed.logp_rollout = Some(logp);
        packed.tokens = Some(sampled.iter().flat_map(|s| s.response.iter().copied()).collect());
        packed
    }

    /// The groups to learn from: the first whose rewards differ, since the others have advantage zero. At least as many as
    /// there are minibatches, so that none is empty.
    fn keep(&self, std: &[f32]) -> Vec<usize> {
        let rl = &self.config.rl;
        let (mut differ, alike): (Vec<usize>, Vec<usize>) = (0..rl.prompts).partition(|&g| std[g] != 0.0);
        differ.truncate(rl.keep);
        let missing = rl.minibatches.saturating_sub(differ.len());
        differ.extend(alike.into_iter().take(missing));
        differ
    }

    /// The groups of each minibatch: a shuffle, cut into parts that differ by one group at most.
    fn minibatches(&self, step: u64, groups: usize) -> Vec<Vec<usize>> {
        let parts = self.config.rl.minibatches;
        let mut order: Vec<usize> = (0..groups).collect();
        Stream::new(self.config.seed, Phase::Shuffle, step, 0).shuffle(&mut order);
        (0..parts).map(|i| order[i * groups / parts..(i + 1) * groups / parts].to_vec()).collect()
    }

    fn describe(&self, rollouts: &Rollouts, advantages: &lockstep::Advantages) -> Result<RlRecord> {
        let loss = self.algorithm.policy_loss(rollouts, &advantages.advantage)?;
        let m = loss.metrics;
        let mismatch = self.algorithm.mismatch(rollouts)?.unwrap_or_default();
        let drift = self.algorithm.drift(rollouts)?.unwrap_or_default();
        Ok(RlRecord {
            loss: loss.loss,
            approx_kl: m.approx_kl,
            drift_k1: drift.kl_k1,
            drift_k3: drift.kl_k3,
            entropy: m.neg_mean_logp,
            ratio_min: m.ratio_min,
            ratio_mean: m.ratio_mean,
            ratio_max: m.ratio_max,
            ratio_std: m.ratio_std,
            ess: m.ess,
            gate_mean: m.gate_mean,
            clip_high: m.clip_fraction_high,
            clip_low: m.clip_fraction_low,
            clip_dual: m.clip_fraction_dual,
            guarded_tokens: m.guarded_tokens,
            in_band: m.in_band_fraction,
            mismatch_k1: mismatch.kl_k1,
            mismatch_k3: mismatch.kl_k3,
            mismatch_min: mismatch.ratio_min,
            mismatch_max: mismatch.ratio_max,
            mismatch_std: mismatch.ratio_std,
            ..RlRecord::default()
        })
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len().max(1) as f64;
    values.sum::<f64>() / n
}

//! The steps of a run: each maps a state to the next and depends only on the configuration and the state.

use anyhow::{Context, Result, bail};
use lockstep::routing::RoutingTrace;
use lockstep::{Call, Column, Credit, Duty, Loss, RatioStats, RolloutsBuf};

use super::abilities;
use super::args::TrainArgs;
use super::columns::Packed;
use super::engine::OldPolicy;
use super::group::{Group, Response};
use super::minibatches::write_back;
use super::pool::Prompts;
use super::record::{RlRecord, WarmRecord};
use super::sampling::Generated;
use super::state::State;
use crate::adamw::AdamW;
use crate::config::{Config, Measure, Rl};
use crate::model::{Model, Weights};
use crate::policy::{Further, Gradients, Pass, Sequence};
use crate::random::{Phase, Stream};
use crate::rl::{Algorithm, column};
use crate::routing::{self, Mode, Record};
use crate::task::{Problem, Task};
use crate::vocab::{END, Vocab};

/// Everything the steps need apart from the state.
pub struct Trainer {
    config: Config,
    pub(super) task: Task,
    pub(super) vocab: Vocab,
    pub(super) algorithm: Algorithm,
    pub(super) held_out: Vec<Problem>,
    /// The pool of training prompts, if there is one.
    pub(super) pool: Option<Prompts>,
    /// Set while trying the recipe out: every second response counts as right, or as won.
    pub(super) trial: bool,
}

/// The result of an RL step.
pub struct RlStep {
    /// Its line in `metrics.jsonl`.
    pub record: RlRecord,
    /// The rollouts as the updates saw them.
    pub rollouts: RolloutsBuf,
    /// The engine's routing of every prompt and response token, if recorded.
    pub routing: Option<RoutingTrace>,
}

impl Trainer {
    /// Creates a trainer and tries the recipe out; `device` is where the RL maths runs.
    pub fn new(config: Config, task: Task, device: &str) -> Result<Self> {
        let vocab = Vocab::new(task.alphabet());
        let algorithm = Algorithm::new(&config.recipe_toml, device)?;
        abilities::check(algorithm.recipe(), &config, &task)?;
        let held_out = task.held_out(config.measure.problems);
        let pool = config.pool.map(|pool| Prompts::draw(&task, pool.size, config.seed)).transpose()?;
        let mut trainer = Self { config, task, vocab, algorithm, held_out, pool, trial: false };
        trainer.try_out()?;
        Ok(trainer)
    }

    /// Creates a trainer on the CPU, for the task that the configuration names.
    pub fn on_cpu(config: Config) -> Result<Self> {
        let task = Task::named(&config.task)?;
        Self::new(config, task, "cpu")
    }

    /// Creates the trainer for a command line, on the CPU.
    pub fn of(args: &TrainArgs) -> Result<Self> {
        let (config, task) = args.config()?;
        Self::new(config, task, "cpu")
    }

    /// Runs a step on two groups with the initial weights, so that the recipe's errors appear before the warm
    /// start.
    fn try_out(&mut self) -> Result<()> {
        let config = self.config.clone();
        // Settings under which the step is neither the last one nor evaluated.
        self.config.rl = Rl { prompts: 2, keep: 2, minibatches: 1, steps: 9, ..config.rl.clone() };
        self.config.measure = Measure { every: 9, ..config.measure.clone() };
        self.trial = true;
        let mut state = State::new(&self.config);
        state.reference = Some(state.weights.clone());
        let [least, most] =
            self.select().sizes(self.config.rl.group).map(|size| self.config.sampling.sampler.size(size));
        let size = if least == most { most.to_string() } else { format!("{least} and {most}") };
        self.rl_step(&mut state, drop)
            .with_context(|| format!("the recipe rejects a step on two groups of {size}"))?;
        (self.config, self.trial) = (config, false);
        Ok(())
    }

    /// The run's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of held-out problems used for evaluation.
    pub fn held_out_problems(&self) -> usize {
        self.held_out.len()
    }

    /// The device that Lockstep runs on.
    pub fn device(&self) -> String {
        self.algorithm.device().describe()
    }

    pub(super) fn training_problem(&self, phase: Phase, step: u64, row: u64) -> Problem {
        let mut stream = Stream::new(self.config.seed, phase, step, row);
        self.task.training(&mut |n| stream.below(n))
    }

    /// The worked response to a problem, with its end token.
    pub(super) fn worked(&self, problem: &Problem) -> Result<Vec<u32>> {
        let mut response = self.vocab.encode(&problem.solution)?;
        response.push(END);
        Ok(response)
    }

    /// Builds the model as the trainer runs it, with or without gradients.
    pub(super) fn model(&self, weights: &Weights, trainable: bool) -> Result<Model> {
        let build = if trainable { Model::trainable } else { Model::frozen };
        let manner = self.config.trainer_manner();
        build(&self.config.model, &manner.precision.round(weights))?.run_as(manner)
    }

    /// Runs one warm-start step: several updates on worked solutions, then a check of how many training
    /// problems are solved.
    pub fn warm_step(&self, state: &mut State, tick: impl Fn(u64)) -> Result<WarmRecord> {
        let warm = &self.config.warm;
        let mut record = WarmRecord { step: state.progress.warm_steps + 1, ..WarmRecord::default() };
        for i in 0..warm.updates {
            let update = state.progress.warm_steps * warm.updates + i;
            let (mut batch, mut learnt) = (Vec::new(), Vec::new());
            for row in 0..warm.batch as u64 {
                let problem = self.training_problem(Phase::WarmProblems, update, row);
                let response = self.worked(&problem)?;
                // Not what a tool says. The other player's moves in a game are those of the same policy.
                let own = match self.task.game() {
                    Some(_) => None,
                    None => self.task.own(&problem, &problem.solution, response.len()),
                };
                learnt.extend(own.unwrap_or(vec![true; response.len()]));
                batch.push(Sequence { prompt: self.vocab.encode(&problem.prompt)?, response });
            }
            let model = self.model(&state.weights, true)?;
            let pass = Pass::new(&model, &batch)?;
            let logp = pass.logp.iter().zip(&learnt).filter(|(_, learnt)| **learnt);
            let logp: Vec<f64> = logp.map(|(logp, _)| f64::from(*logp)).collect();
            let each = -1.0 / logp.len() as f32;
            record.loss = -mean(logp.into_iter());
            let of_loss: Vec<f32> = learnt.iter().map(|learnt| if *learnt { each } else { 0.0 }).collect();
            let grads = pass.gradients(&of_loss)?;
            let rate = self.config.warm_rate(update);
            state.adam.update(&self.config.adam, rate, &mut state.weights, &grads);
            check_weights(&state.weights, rate)?;
            tick(i + 1);
        }
        record.training_pass = self.training_pass(&state.weights, record.step)?;
        state.progress.warm_steps = record.step;
        if record.training_pass >= f64::from(warm.target) || record.step >= warm.max_steps {
            (record.held_out, record.exploitability) = self.measure(&state.weights, 0)?;
            state.progress.warm_done = true;
            state.reference = Some(state.weights.clone());
            state.adam = AdamW::new(&state.weights);
        }
        Ok(record)
    }

    /// Runs one RL step: rollouts, rewards, and the updates that learn from them.
    pub fn rl_step(&self, state: &mut State, tick: impl Fn(u64)) -> Result<RlStep> {
        let rl = &self.config.rl;
        let index = state.progress.rl_steps;
        if self.mix().reincarnates(index as u32) {
            state.reference = Some(state.weights.clone());
        }
        let Generated { groups: kept, record: sampled } = self.generate(state, index)?;
        tick(1);
        let plan = self.minibatches(state, index, kept.len())?;
        let groups: Vec<Group> = kept.iter().chain(&plan.earlier).cloned().collect();
        let packed = self.pack(state, &groups, None)?;
        let Packed { mut rollouts, sequences, routed, replayed, logits: old_logits } = packed;
        let responses: Vec<&Response> = groups.iter().flat_map(|group| &group.responses).collect();
        let engine: Vec<&Record> = responses.iter().filter_map(|response| response.routed.as_ref()).collect();
        let mode = self.config.routing.map(|routing| routing.mode);
        let mismatch = self.mismatch(&rollouts)?;
        let mut credit = self.algorithm.advantages(&rollouts)?;
        self.weigh(&state.memory.pool, &groups, &mut credit)?;
        state.memory.role_values.clone_from(&credit.state.role_values);
        let previous = self.algorithm.asks(Duty::PreviousPolicy).then(|| state.weights.clone());

        let mut rate = self.config.rl_rate(index);
        if self.algorithm.asks(Duty::ScaleLearningRate) {
            rate *= self.algorithm.rate_scale(&rollouts)? as f32;
        }
        let (mut grad_norm, mut replayed, mut balance) = (0.0, replayed, 0.0);
        let mut variances = Vec::new();
        // Routing records of the rollout, of the old policy and of the updates, in update order.
        let mut ran: [Vec<Record>; 3] = Default::default();
        let (parts, mut loss) = (plan.parts.len(), Loss::default());
        let moments = self.reads_moments(Some(Call::Loss));
        let vocab = self.config.model.vocab;
        let ends = column(&rollouts.cu_groups, Column::cu_groups)?.to_vec();
        let span = |g: usize| ends[g] as usize..ends[g + 1] as usize;
        for (i, part) in plan.parts.iter().enumerate() {
            let members: Vec<usize> = part.iter().flat_map(|g| span(*g)).collect();
            let own: Vec<Sequence> = members.iter().map(|&s| sequences[s].clone()).collect();
            let records: Option<Vec<&Record>> = match mode {
                None | Some(Mode::None) => None,
                Some(Mode::R2) => Some(members.iter().map(|&s| &routed[s]).collect()),
                Some(Mode::R3) => Some(members.iter().map(|&s| engine[s]).collect()),
            };
            let model = self.model(&state.weights, true)?;
            let pass = Pass::run(&model, &own, records.as_deref(), moments || !old_logits.is_empty())?;
            let (mut batch, places) = rollouts.view().select(part)?;
            let credit = credit.select(&rollouts.view(), part)?;
            batch.logp = Some(pass.logp.clone());
            batch.values = Some(pass.values.clone()).filter(|values| !values.is_empty());
            if !old_logits.is_empty() {
                let old = places.iter().flat_map(|place| &old_logits[place * vocab..(place + 1) * vocab]);
                let old: Vec<f32> = old.copied().collect();
                batch.divergence = Some(self.algorithm.divergence(&old, &pass.logits, vocab)?);
            }
            if batch.seed.is_some() {
                batch.seed = Some(vec![self.recipe_seed(index, i as u64 + 1)]);
            }
            let statistics = moments.then(|| pass.statistics(self.algorithm.device())).transpose()?;
            if let Some(statistics) = &statistics {
                self.say_moments(statistics.clone(), Some(Call::Loss), &mut batch);
            }
            self.algorithm.gradients(&batch, &credit, &mut loss)?;
            let balanced = self.balance(&pass)?;
            let scores = balanced.as_ref().map(|balance| &balance.gradient[..]);
            let logits = match (&loss.entropy, &statistics) {
                (Some(term), Some(statistics)) => {
                    Some(pass.entropy_gradient(self.algorithm.device(), statistics, &term.coef)?)
                }
                (Some(_), None) => bail!("the loss has an entropy term, but the recipe reads no entropy"),
                (None, _) => None,
            };
            let values = loss.value.as_ref().map(|value| &value.gradient[..]);
            let further = Further { scores, logits: logits.as_deref(), values };
            let Gradients { sum, variance } = pass.gradients_with(&loss.coef, &further)?;
            variances.extend(variance);
            grad_norm += state.adam.update(&self.config.adam, rate, &mut state.weights, &sum);
            check_weights(&state.weights, rate)?;
            write_back(&mut rollouts, &batch, &places);
            replayed += pass.replayed;
            balance += balanced.map_or(0.0, |balance| balance.loss) / parts as f64;
            if mode.is_some() {
                ran[0].extend(members.iter().map(|&s| engine[s].clone()));
                ran[1].extend(members.iter().map(|&s| routed[s].clone()));
                ran[2].extend(pass.routed);
            }
            tick(i as u64 + 2);
        }

        state.previous = previous;
        if self.algorithm.asks(Duty::LatestPolicy) {
            state.memory.keep(self.as_earlier(kept, &rollouts)?, self.mix().window);
        }
        state.progress.rl_steps += 1;
        let mut record = RlRecord {
            rate: f64::from(rate),
            grad_norm: f64::from(grad_norm) / parts as f64,
            step: state.progress.rl_steps,
            ..self.describe(&rollouts, &credit, mismatch, sampled)?
        };
        if self.config.measure.blame {
            record.blame = self.blame(&groups, &credit)?;
        }
        if self.config.measure.variance && !variances.is_empty() {
            record.grad_variance = Some(mean(variances.into_iter()));
        }
        if self.config.asynchronous.is_some() {
            record.engine = Some(self.engine_record(&state.engine, &rollouts, &responses, index)?);
        }
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
        if record.step.is_multiple_of(self.config.measure.every) || record.step == rl.steps {
            (record.held_out, record.exploitability) = self.measure(&state.weights, record.step)?;
        }
        Ok(RlStep { record, rollouts, routing: trace })
    }

    /// Converts groups for reuse in a later step, where the policy that generated them is no longer the
    /// latest.
    fn as_earlier(&self, mut groups: Vec<Group>, rollouts: &RolloutsBuf) -> Result<Vec<Group>> {
        let mut old = column(&rollouts.logp_old, Column::logp_old)?;
        for response in groups.iter_mut().flat_map(|group| &mut group.responses) {
            let (own, rest) = old.split_at(response.tokens.len());
            (response.old, response.routed, old) = (own.to_vec(), None, rest);
        }
        Ok(groups)
    }

    /// The random seed for one call of the recipe.
    pub(super) fn recipe_seed(&self, step: u64, call: u64) -> u64 {
        Stream::new(self.config.seed, Phase::Recipe, step, call).below(u64::MAX)
    }

    /// Number of responses per prompt.
    pub(super) fn group_size(&self) -> usize {
        self.config.rl.group + usize::from(self.algorithm.asks(Duty::PivotResponse))
    }

    /// The load-balance loss of a pass, if enabled.
    fn balance(&self, pass: &Pass<'_>) -> Result<Option<routing::Balance>> {
        match self.config.routing {
            Some(routing) if routing.balance > 0.0 => {
                let record = Record::concat(&self.config.model, &pass.routed)?;
                Ok(Some(routing::balance(&self.config.model, &record, routing.balance)?))
            }
            _ => Ok(None),
        }
    }

    /// How far the engine is from the trainer at the start of a step, before an update changes `logp`. With
    /// `--old engine` the old policy is the engine's.
    fn mismatch(&self, rollouts: &RolloutsBuf) -> Result<RatioStats> {
        let engine = self.config.asynchronous.is_some_and(|own| own.old == OldPolicy::Engine);
        let trainer = if engine { &rollouts.logp } else { &rollouts.logp_old };
        Ok(self.algorithm.mismatch(rollouts, trainer.as_deref())?.unwrap_or_default())
    }

    /// The logged statistics of a batch, with each token's log-probability in its own update.
    fn describe(
        &self,
        rollouts: &RolloutsBuf,
        credit: &Credit,
        mismatch: RatioStats,
        record: RlRecord,
    ) -> Result<RlRecord> {
        let loss = self.algorithm.loss(rollouts, credit)?;
        let (total, m) = loss.loss.zip(loss.metrics).context("the loss was asked for, but not computed")?;
        let drift = self.algorithm.drift(rollouts)?.unwrap_or_default();
        Ok(RlRecord {
            loss: total,
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
            value_loss: loss.value.as_ref().map(|value| value.loss),
            mismatch_k1: mismatch.kl_k1,
            mismatch_k3: mismatch.kl_k3,
            mismatch_min: mismatch.ratio_min,
            mismatch_max: mismatch.ratio_max,
            mismatch_std: mismatch.ratio_std,
            ..record
        })
    }
}

#[cfg(test)]
impl Trainer {
    /// One with a small model.
    pub(super) fn small(task: &str, recipe: &str, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(task, recipe).unwrap();
        (config.model.layers, config.model.width, config.model.hidden, config.model.experts) = (1, 16, 8, 2);
        change(&mut config);
        Self::on_cpu(config).unwrap()
    }

    /// A response that says this and then `end`.
    pub(super) fn saying(&self, text: &str, end: &[u32], reward: f32) -> Response {
        let response = [&self.vocab.encode(text).unwrap(), end].concat();
        let logp = vec![-0.5; response.len()];
        Response::new(crate::policy::Sampled { response, logp, routed: None }, reward)
    }

    /// The log-probabilities of a response under the engine's form of weights, in one pass.
    pub(super) fn in_one_pass(&self, weights: &Weights, group: &Group, response: &Response) -> Vec<f32> {
        let prompt = self.vocab.encode(&group.problem.prompt).unwrap();
        let sequence = Sequence { prompt, response: response.tokens.clone() };
        let weights = self.config.precision.rollout.round(weights);
        crate::policy::log_probs(&self.config.model, &weights, &[sequence]).unwrap()
    }
}

pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len().max(1) as f64;
    values.sum::<f64>() / n
}

/// Errors if a weight is not finite: the checkpoint of the step before stays.
fn check_weights(weights: &Weights, rate: f32) -> Result<()> {
    match weights.iter().find(|weight| weight.values.iter().any(|x| !x.is_finite())) {
        Some(weight) => {
            bail!("the run diverged: {} is not finite after an update at rate {rate}", weight.name)
        }
        None => Ok(()),
    }
}

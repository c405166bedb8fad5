//! Builds a batch's columns from sampled groups: everything that the task, its engine and its policies can
//! provide.

use anyhow::{Context, Result};
use lockstep::ops::logits::Statistics;
use lockstep::ops::reward::majority;
use lockstep::schedule::rouge_l;
use lockstep::schedules::judge::brpo_reference;
use lockstep::{Call, Column, RolloutsBuf};

use super::group::{Group, Response};
use super::state::State;
use super::trainer::Trainer;
use crate::model::Weights;
use crate::policy::{Pass, Sequence};
use crate::routing::{Mode, Record};
use crate::task::{ANSWER_MARK, Problem};
use crate::vocab::END;

/// Weights of a response's two rewards: the answer is right; the response marks an answer and ends with the
/// end token.
const KINDS: [f32; 2] = [1.0, 0.5];

/// Groups as a batch.
#[derive(Default)]
pub(super) struct Packed {
    /// The columns.
    pub(super) rollouts: RolloutsBuf,
    /// Prompts and responses.
    pub(super) sequences: Vec<Sequence>,
    /// Routing under the policy at the start of the step, if it is recorded.
    pub(super) routed: Vec<Record>,
    /// Number of router rows that were replayed.
    pub(super) replayed: usize,
    /// The logits of the policy at the start of the step, `[N, vocabulary]`, if the recipe bounds a
    /// divergence from it.
    pub(super) logits: Vec<f32>,
}

fn push<T>(column: &mut Option<Vec<T>>, value: T) {
    column.get_or_insert_default().push(value);
}

impl Trainer {
    /// The columns of groups before the update: for one call those that it reads; for both calls (`None`)
    /// also every log-probability.
    pub(super) fn pack(&self, state: &State, groups: &[Group], call: Option<Call>) -> Result<Packed> {
        let reads = self.algorithm.reads(call);
        let mut packed = Packed { rollouts: self.outcomes(state, groups, call)?, ..Packed::default() };
        for group in groups {
            let prompt = self.vocab.encode(&group.problem.prompt)?;
            let sequence = |r: &Response| Sequence { prompt: prompt.clone(), response: r.tokens.clone() };
            packed.sequences.extend(group.responses.iter().map(sequence));
        }
        let of_policy = [
            Column::logp,
            Column::logp_old,
            Column::logp_latest,
            Column::entropy,
            Column::sum_p_squared,
            Column::score_norm,
            Column::baseline_weights,
            Column::values_old,
        ];
        if call.is_none() || of_policy.iter().any(|column| reads.contains(*column)) {
            self.say_policy(state, groups, call, &mut packed)?;
        }
        if call.is_none() || reads.contains(Column::logp_ref) {
            let reference = state.reference.as_ref().context("the RL phase has no reference policy")?;
            packed.rollouts.logp_ref = Some(self.log_probs(reference, &packed.sequences)?);
        }
        if reads.contains(Column::logp_previous) {
            let previous = state.previous.as_ref().unwrap_or(&state.weights);
            packed.rollouts.logp_previous = Some(self.log_probs(previous, &packed.sequences)?);
        }
        Ok(packed)
    }

    /// Log-probabilities under given weights, packed `[N]`.
    fn log_probs(&self, weights: &Weights, sequences: &[Sequence]) -> Result<Vec<f32>> {
        let model = self.model(weights, false)?;
        Ok(Pass::new(&model, sequences)?.logp)
    }

    /// Fills the columns that come from the policy at the start of the step.
    fn say_policy(
        &self,
        state: &State,
        groups: &[Group],
        call: Option<Call>,
        packed: &mut Packed,
    ) -> Result<()> {
        let reads = self.algorithm.reads(call);
        let responses = || groups.iter().flat_map(|group| &group.responses);
        // The engine's routing, one record per sequence, if recorded.
        let engine: Vec<&Record> = responses().filter_map(|response| response.routed.as_ref()).collect();
        let replays = self.config().routing.is_some_and(|routing| routing.mode == Mode::R3);
        let moments = reads.contains(Column::baseline_weights) || self.reads_moments(call);
        let diverges = reads.contains(Column::divergence);
        let model = self.model(&state.weights, false)?;
        let logits = moments || diverges;
        let pass = Pass::run(&model, &packed.sequences, replays.then_some(&engine[..]), logits)?;
        let rollouts = &mut packed.rollouts;
        let mut old = pass.logp.clone();
        let mut at = 0;
        for response in responses() {
            old[at..at + response.old.len()].copy_from_slice(&response.old);
            at += response.tokens.len();
        }
        rollouts.logp_old = Some(old);
        if reads.contains(Column::logp_latest) {
            rollouts.logp_latest = Some(pass.logp.clone());
        }
        if moments {
            let statistics = pass.statistics(self.algorithm.device())?;
            if reads.contains(Column::baseline_weights) {
                let weights = self.algorithm.baseline_weights(rollouts, &statistics.score_norm)?;
                rollouts.baseline_weights = Some(weights);
            }
            self.say_moments(statistics, call, rollouts);
        }
        if !pass.values.is_empty() {
            rollouts.values_old = Some(pass.values.clone());
            rollouts.values = Some(pass.values);
        }
        if diverges {
            rollouts.divergence = Some(vec![0.0; pass.logp.len()]);
            packed.logits = pass.logits;
        }
        rollouts.logp = Some(pass.logp);
        (packed.routed, packed.replayed) = (pass.routed, pass.replayed);
        Ok(())
    }

    /// Whether a call reads columns that need the full distributions.
    pub(super) fn reads_moments(&self, call: Option<Call>) -> bool {
        let reads = self.algorithm.reads(call);
        [Column::entropy, Column::sum_p_squared, Column::score_norm].iter().any(|c| reads.contains(*c))
    }

    /// Fills the columns that come from the full distributions.
    pub(super) fn say_moments(&self, statistics: Statistics, call: Option<Call>, to: &mut RolloutsBuf) {
        let reads = self.algorithm.reads(call);
        let columns = [
            (Column::entropy, statistics.entropy, &mut to.entropy),
            (Column::sum_p_squared, statistics.collision, &mut to.sum_p_squared),
            (Column::score_norm, statistics.score_norm, &mut to.score_norm),
        ];
        for (column, values, to) in columns {
            if reads.contains(column) {
                *to = Some(values);
            }
        }
    }

    /// The columns that need no policy but the engine's.
    fn outcomes(&self, state: &State, groups: &[Group], call: Option<Call>) -> Result<RolloutsBuf> {
        let reads = self.algorithm.reads(call);
        let step = state.progress.rl_steps;
        let mut out = RolloutsBuf {
            cu_seqlens: Some(vec![0]),
            cu_groups: Some(vec![0]),
            step: Some(vec![step]),
            ..RolloutsBuf::default()
        };
        let (mut tokens, mut sequences) = (0, 0);
        for group in groups {
            for response in &group.responses {
                tokens += response.tokens.len() as u32;
                sequences += 1;
                push(&mut out.cu_seqlens, tokens);
                out.tokens.get_or_insert_default().extend(&response.tokens);
                out.logp_rollout.get_or_insert_default().extend(&response.logp);
                push(&mut out.rewards, response.reward);
                let ended = response.tokens.last() == Some(&END);
                push(&mut out.terminated, u8::from(ended));
                push(&mut out.truncated, u8::from(!ended));
            }
            push(&mut out.cu_groups, sequences);
        }
        if reads.contains(Column::seed) {
            out.seed = Some(vec![self.recipe_seed(step, 0)]);
        }
        self.turn_columns(state, groups, &mut out);
        if reads.contains(Column::token_rewards) {
            let mut rewards = vec![0.0; tokens as usize];
            let batch = out.batch()?;
            for (s, reward) in out.rewards.iter().flatten().enumerate() {
                let span = batch.cu_seqlens().span(s);
                let last = (span.start..span.end).rev().find(|t| batch.loss_mask().at(*t));
                rewards[last.unwrap_or(span.end - 1)] = *reward;
            }
            out.token_rewards = Some(rewards);
        }
        if reads.contains(Column::bootstrap) {
            // The limit of a response is part of the task: no reward can be earned after it.
            out.bootstrap = Some(vec![0.0; sequences as usize]);
        }
        if reads.contains(Column::baseline) {
            out.baseline = Some(groups.iter().map(|group| group.baseline).collect());
        }
        if reads.contains(Column::roles) && out.roles.is_none() {
            // A single player: role 0.
            out.roles = Some(vec![0; sequences as usize]);
            let values = &state.memory.role_values;
            out.role_values = Some(if values.is_empty() { vec![0.0] } else { values.clone() });
        }
        if reads.contains(Column::reference) {
            let reference = |g: &Group| {
                brpo_reference(g.responses.len() as u32, self.config().seed, step as u32, g.row as u32)
            };
            out.reference = Some(groups.iter().map(reference).collect());
        }
        let said = |response: &Response| self.vocab.decode(&response.tokens);
        let each = || groups.iter().flat_map(|g| g.responses.iter().map(move |r| (&g.problem, r)));
        if reads.contains(Column::reward_components) {
            let well_formed = |(_, r): (&Problem, &Response)| {
                f32::from(u8::from(
                    r.tokens.last() == Some(&END) && Problem::marked_answer(&said(r)).is_some(),
                ))
            };
            let right = out.rewards.iter().flatten().copied();
            out.reward_components = Some(right.chain(each().map(well_formed)).collect());
            out.reward_weights = Some(KINDS.to_vec());
        }
        if reads.contains(Column::flawed) {
            let flawed = |(p, r): (&Problem, &Response)| u8::from(r.reward == 1.0 && said(r) != p.solution);
            out.flawed = Some(each().map(flawed).collect());
        }
        if reads.contains(Column::answer_class) {
            let mut known: Vec<String> = Vec::new();
            let mut number = |(_, r): (&Problem, &Response)| {
                let text = said(r);
                let answer = Problem::marked_answer(&text)?;
                let at = known.iter().position(|other| other == answer).unwrap_or_else(|| {
                    known.push(answer.to_owned());
                    known.len() - 1
                });
                Some(at as u32)
            };
            let answers: Vec<Option<u32>> = each().map(&mut number).collect();
            out.answer_class = Some(majority(&out.batch()?, &answers)?);
        }
        if reads.contains(Column::similarity) {
            let mut similarity = Vec::new();
            for group in groups {
                for one in &group.responses {
                    for other in &group.responses {
                        similarity.push(rouge_l(&one.tokens, &other.tokens)? as f32);
                    }
                }
            }
            out.similarity = Some(similarity);
        }
        if reads.contains(Column::cu_steps) || reads.contains(Column::cu_turns) && out.cu_turns.is_none() {
            self.steps(groups, &mut out)?;
        }
        Ok(out)
    }

    /// The steps of a response, cut after its spaces, each with whether it is the worked solution's, cut the
    /// same way.
    pub(super) fn judged_steps<'a>(
        &self,
        problem: &Problem,
        tokens: &'a [u32],
    ) -> Result<Vec<(&'a [u32], bool)>> {
        let (space, worked) = (self.vocab.encode(" ")?, self.worked(problem)?);
        let ends = |token: &u32| space.contains(token);
        let mut right = worked.split_inclusive(ends);
        Ok(tokens.split_inclusive(ends).map(|step| (step, right.next() == Some(step))).collect())
    }

    /// The judged steps of every response. As turns, they are those of two roles: 0 works the columns, 1
    /// gives the answer.
    fn steps(&self, groups: &[Group], out: &mut RolloutsBuf) -> Result<()> {
        let (mut cu_steps, mut cu_step_tokens, mut matches) = (vec![0], vec![0], Vec::new());
        let mark = self.vocab.encode(&ANSWER_MARK.to_string())?;
        let mut roles = Vec::new();
        for group in groups {
            for response in &group.responses {
                for (step, right) in self.judged_steps(&group.problem, &response.tokens)? {
                    matches.push(u8::from(right));
                    roles.push(u32::from(step.starts_with(&mark)));
                    cu_step_tokens.push(cu_step_tokens[cu_step_tokens.len() - 1] + step.len() as u32);
                }
                cu_steps.push(matches.len() as u32);
            }
        }
        let rewards = Some(matches.iter().map(|m| f32::from(*m)).collect());
        if self.algorithm.reads(None).contains(Column::cu_turns) {
            (out.cu_turns, out.turn_rewards, out.turn_roles) = (Some(cu_step_tokens), rewards, Some(roles));
        } else {
            (out.cu_steps, out.cu_step_tokens) = (Some(cu_steps), Some(cu_step_tokens));
            (out.step_rewards, out.step_matches) = (rewards, Some(matches));
        }
        Ok(())
    }
}

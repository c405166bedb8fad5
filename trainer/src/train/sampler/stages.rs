//! Rollouts that are sampled in two stages: what comes after the first one is decided by the judge of the
//! task's working.

use std::iter::repeat_n;

use anyhow::Result;
use lockstep::schedule::scope::{Salvage, salvage};
use lockstep::schedule::{Vade, arrol_two_ended};

use super::{Made, SamplerRecord, arrol};
use crate::model::Model;
use crate::policy::Sampled;
use crate::random::Phase;
use crate::task::Problem;
use crate::train::group::Group;
use crate::train::memory::Memory;
use crate::train::sampling::Begun;
use crate::train::state::State;
use crate::train::trainer::Trainer;
use crate::vocab::END;

/// SCOPE: the step score below which a step is an error, and the least share of steps before it.
const SCOPE: (f64, f64) = (0.5, 0.3);

impl Trainer {
    /// ARRoL: the number of tokens after which rollouts are pruned, half of a response's limit (ours).
    fn checkpoint(&self) -> usize {
        self.limit().div_ceil(2)
    }

    /// Whether the working of a response is right up to the checkpoint.
    fn stands(&self, problem: &Problem, tokens: &[u32]) -> Result<bool> {
        let seen = &tokens[..tokens.len().min(self.checkpoint())];
        Ok(self.worked(problem)?.starts_with(seen))
    }

    /// ARRoL: samples all rollouts up to the checkpoint, prunes, and lets the others go on. In place of the
    /// paper's quality head, a rollout's probability of success is the pass rate of earlier rollouts that
    /// stood like it: working right so far, or not.
    pub(super) fn halve(&self, state: &State, problems: &[Problem], step: u64, first: u64) -> Result<Made> {
        let (size, engine) = (self.group_size(), self.engine(&state.weights)?);
        let asked: Vec<&Problem> = problems.iter().flat_map(|p| repeat_n(p, size)).collect();
        let mut sampled = vec![Sampled::default(); asked.len()];
        let name = |row: usize| (Phase::Rollout, step, first + row as u64);
        let all = (0..asked.len()).zip(&mut sampled).map(|(row, own)| (asked[row], name(row), own));
        let mut record = SamplerRecord::default();
        record.tokens += self.go_on(&engine, all.collect(), self.checkpoint())?;
        let chances = state.memory.chances();
        let mut kept = Vec::new();
        for (problem, group) in problems.iter().zip(sampled.chunks(size)) {
            let chance =
                |own: &Sampled| Ok(chances[usize::from(self.stands(problem, &own.response)?)].mean());
            let success = group.iter().map(chance).collect::<Result<Vec<f64>>>()?;
            kept.extend(arrol_two_ended(&arrol(size), &success)?.kept);
        }
        let before: Vec<usize> = sampled.iter().map(|own| own.response.len()).collect();
        let live: Vec<bool> = sampled.iter().map(|own| own.response.last() != Some(&END)).collect();
        let rest = sampled.iter_mut().enumerate().filter(|(row, _)| kept[*row] && live[*row]);
        let rest = rest.map(|(row, own)| (asked[row], name(row), own));
        record.tokens += self.go_on(&engine, rest.collect(), self.limit())?;
        let mut groups = Vec::new();
        for first in (0..sampled.len()).step_by(size) {
            let (stay, go): (Vec<usize>, Vec<usize>) = (first..first + size).partition(|row| kept[*row]);
            let more: usize = stay.iter().map(|row| sampled[*row].response.len() - before[*row]).sum();
            let [went_on, stopped] = [&stay, &go].map(|rows| rows.iter().filter(|row| live[**row]).count());
            record.saved += (stopped * more).checked_div(went_on).unwrap_or(0) as u64;
            record.pruned += go.len() as u64;
            groups.push(stay.into_iter().map(|row| std::mem::take(&mut sampled[row])).collect());
        }
        Ok((groups, record))
    }

    /// ARRoL: counts the outcomes of groups for their standing at the checkpoint.
    pub(in crate::train) fn observe_chances(&self, memory: &mut Memory, groups: &[Group]) -> Result<()> {
        let (mut right, mut rollouts) = ([0; 2], [0; 2]);
        for group in groups {
            for (response, passed) in group.responses.iter().zip(group.passes()) {
                let standing = usize::from(self.stands(&group.problem, &response.tokens)?);
                rollouts[standing] += 1;
                right[standing] += u32::from(passed);
            }
        }
        let mut chances = memory.chances();
        Vade::default().update(&mut chances, &[0, 1], &right, &rollouts)?;
        memory.chances = chances.iter().flat_map(|chance| [chance.a, chance.b]).collect();
        Ok(())
    }

    /// SCOPE: samples all rollouts; a wrong one keeps the steps before its first error, if they are enough,
    /// and goes on from there.
    pub(super) fn salvage(&self, state: &State, problems: &[Problem], step: u64, first: u64) -> Result<Made> {
        let size = self.group_size();
        let asked: Vec<&Problem> = problems.iter().flat_map(|p| repeat_n(p, size)).collect();
        let mut sampled = self.rollouts(&state.weights, &asked, Phase::Rollout, step, first)?;
        let tokens = |sampled: &[Sampled]| sampled.iter().map(|own| own.response.len() as u64).sum::<u64>();
        let mut record = SamplerRecord { tokens: tokens(&sampled), ..SamplerRecord::default() };
        let rewards = self.rewards(&asked, &sampled);
        let mut open = Vec::new();
        for (row, own) in sampled.iter_mut().enumerate().filter(|(row, _)| rewards[*row] == 0.0) {
            let steps = self.judged_steps(asked[row], &own.response)?;
            let scores: Vec<f64> = steps.iter().map(|(_, right)| f64::from(u8::from(*right))).collect();
            if let Salvage::Keep(steps_kept) = salvage(&scores, SCOPE.0, SCOPE.1)? {
                let kept = steps[..steps_kept as usize].iter().map(|(tokens, _)| tokens.len()).sum();
                own.response.truncate(kept);
                own.logp.truncate(kept);
                record.branches += 1;
                record.saved += kept as u64;
                open.push((asked[row], (Phase::Salvage, step, first + row as u64), own));
            }
        }
        let engine = self.engine(&state.weights)?;
        record.tokens += self.go_on(&engine, open, self.limit())?;
        let mut sampled = sampled.into_iter();
        Ok((problems.iter().map(|_| sampled.by_ref().take(size).collect()).collect(), record))
    }

    /// Lets responses go on up to `limit` tokens. Returns the number of tokens sampled.
    fn go_on(
        &self,
        engine: &Model,
        open: Vec<(&Problem, (Phase, u64, u64), &mut Sampled)>,
        limit: usize,
    ) -> Result<u64> {
        let begun = |(problem, name, own): &(&Problem, (Phase, u64, u64), &mut Sampled)| {
            Ok(Begun::new(&self.vocab.encode(&problem.prompt)?, &own.response, *name))
        };
        let sampled = self.rest(engine, open.iter().map(begun).collect::<Result<_>>()?, limit)?;
        let mut tokens = 0;
        for ((_, _, own), more) in open.into_iter().zip(sampled) {
            tokens += more.response.len() as u64;
            own.response.extend(more.response);
            own.logp.extend(more.logp);
        }
        Ok(tokens)
    }
}

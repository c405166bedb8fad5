//! How the rollouts of a group are sampled, where it is not one by one: a tree that branches and is pruned
//! (LATR), rollouts that are pruned half-way (ARRoL-style), wrong rollouts that go on anew from their first
//! error (SCOPE-style). The rules are in [`lockstep::schedules`]; what is ours is said here.

mod stages;
mod tree;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use lockstep::Duty;
use lockstep::schedule::arrol::Arrol;
use lockstep::schedule::ramp::latr_share;
use lockstep::schedule::{Latr, falls_behind};
use serde::{Deserialize, Serialize};

use self::tree::Rules;
use super::pool::Select;
use super::state::State;
use super::trainer::Trainer;
use crate::cli::ValueName;
use crate::config::Config;
use crate::policy::{Sampled, sample};
use crate::random::{Phase, Stream};
use crate::task::{Kind, Problem};

/// How the rollouts of a group are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    /// Each by itself
    #[default]
    Plain,
    /// As a tree: rollouts branch where a second token is likely enough, and branches that say the same are
    /// pruned; the others are sampled each by itself (LATR)
    Latr,
    /// Half-way through a response, half of the rollouts are pruned, so that as many of the others are right
    /// as wrong (ARRoL-style)
    Arrol,
    /// A wrong rollout keeps the steps before its first error, and the rest is sampled anew (SCOPE-style)
    Scope,
}

impl Sampler {
    /// Number of rollouts in a group of which `group` are begun.
    pub(super) fn size(self, group: usize) -> usize {
        match self {
            Self::Arrol => (arrol(group).keep as usize).min(group),
            _ => group,
        }
    }

    /// Why a recipe with this duty cannot be trained with it, if it cannot.
    pub(super) fn excludes(self, duty: Duty) -> Option<&'static str> {
        (self == Self::Arrol && duty == Duty::PivotResponse)
            .then_some("the pivot is the median of a group of --group + 1, of which half would be pruned")
    }

    /// Why it cannot sample responses to a task of this kind, if it cannot.
    pub(super) fn lacks(self, kind: Kind) -> Option<&'static str> {
        match self {
            Self::Arrol | Self::Scope if kind != Kind::Arithmetic => {
                Some("expected addition or multiplication, whose working can be judged")
            }
            Self::Latr if kind == Kind::Calculator => {
                Some("expected a task without a tool: a tree cannot hold the output of a tool")
            }
            _ => None,
        }
    }
}

/// ARRoL's rule for a group: half of it is kept. (The paper's number could not be read.)
fn arrol(group: usize) -> Arrol {
    let own = Arrol::default();
    Arrol { keep: (group as u32 / 2).max(own.least), ..own }
}

/// The sampler and its settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// How rollouts are sampled.
    pub sampler: Sampler,
    /// LATR: the age in tokens at which a branch is compared with the rollout that it left; `None`: those of
    /// the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_ahead: Option<u32>,
    /// LATR: the factor a token by which a branch may fall behind the likeliest one; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fall_behind: Option<f32>,
}

impl Sampling {
    /// LATR's rules.
    fn latr(&self) -> Latr {
        let own = Latr::default();
        Latr { ages: self.look_ahead.map_or(own.ages, |age| [age; 3]), ..own }
    }

    /// Checks that the values are valid, and that nothing else in the configuration contradicts them.
    pub fn check(&self, config: &Config) -> Result<()> {
        let Self { sampler, look_ahead, fall_behind } = *self;
        let (name, group) = (sampler.name(), config.rl.group);
        for (option, given) in
            [("--look-ahead", look_ahead.is_some()), ("--fall-behind", fall_behind.is_some())]
        {
            ensure!(
                !given || sampler == Sampler::Latr,
                "{option} needs --sampler latr: others do not branch"
            );
        }
        if sampler == Sampler::Plain {
            return Ok(());
        }
        ensure!(look_ahead != Some(0), "--look-ahead is 0: expected at least 1 token");
        if let Some(factor) = fall_behind {
            ensure!(
                falls_behind(0.0, 0.0, 0, factor.into()).is_ok(),
                "--fall-behind is {factor}: expected above 0, at most 1"
            );
        }
        let least = if sampler == Sampler::Arrol { 3 } else { 2 };
        ensure!(group >= least, "--sampler {name} with --group {group}: expected groups of at least {least}");
        ensure!(
            config.game().is_none(),
            "--sampler {name} with --task {}: a game is played in turns, not sampled in one piece",
            config.task
        );
        ensure!(
            config.asynchronous.is_none(),
            "--async with --sampler {name}: the engine samples each rollout by itself"
        );
        ensure!(
            config.routing.is_none(),
            "--routing with --sampler {name}: a rollout that is sampled in pieces has no single routing"
        );
        let select = config.pool.unwrap_or_default().select;
        ensure!(
            select == Select::Uniform,
            "--select {} with --sampler {name}: it reads pass rates, which are not those of the policy where \
             rollouts are branched, pruned or salvaged: expected uniform",
            select.name()
        );
        ensure!(
            config.rl.flip_rewards == 0.0 || sampler != Sampler::Scope,
            "--flip-rewards with --sampler scope: wrong rollouts are salvaged before rewards are flipped"
        );
        Ok(())
    }
}

/// What it took to sample the rollouts of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerRecord {
    /// Tokens generated, those of what was pruned or thrown away too.
    pub tokens: u64,
    /// Tokens that did not have to be generated: those of prefixes that rollouts share, and with `arrol` what
    /// the pruned rollouts lack, if they are as long as those kept of their group.
    pub saved: u64,
    /// Branches taken; with `scope` the rollouts that were salvaged.
    pub branches: u64,
    /// Branches or rollouts pruned.
    pub pruned: u64,
}

impl SamplerRecord {
    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.saved += other.saved;
        self.branches += other.branches;
        self.pruned += other.pruned;
    }
}

/// The rollouts of each problem, and what it took to sample them.
type Made = (Vec<Vec<Sampled>>, SamplerRecord);

impl Trainer {
    /// Samples the rollouts of each problem, if that is not each by itself, and adds to `record` what they
    /// took; the first rollout has the random streams of row `first`.
    pub(super) fn sample_by_rule(
        &self,
        state: &State,
        problems: &[Problem],
        step: u64,
        first: u64,
        record: &mut Option<SamplerRecord>,
    ) -> Result<Option<Vec<Vec<Sampled>>>> {
        let (groups, own) = match self.config().sampling.sampler {
            Sampler::Latr => self.branch(state, problems, step, first)?,
            Sampler::Arrol => self.halve(state, problems, step, first)?,
            Sampler::Scope => self.salvage(state, problems, step, first)?,
            Sampler::Plain => return Ok(None),
        };
        record.get_or_insert_default().add(own);
        Ok(Some(groups))
    }

    /// LATR: a tree for each problem, and ordinary rollouts where the tree leaves room.
    fn branch(&self, state: &State, problems: &[Problem], step: u64, first: u64) -> Result<Made> {
        let (config, size) = (self.config(), self.group_size());
        let (engine, limit) = (self.engine(&state.weights)?, self.limit());
        let prompts = self.prompts(&problems.iter().collect::<Vec<_>>())?;
        // A group has at least 2 rollouts, so that a quarter of it is rounded to at least 1.
        let share = latr_share(step as u32, config.rl.steps as u32);
        let capacity = (share * size as f64).round() as usize;
        let name = |tree: usize, place: usize| first + (tree * size + place) as u64;
        let rules =
            Rules { latr: config.sampling.latr(), behind: config.sampling.fall_behind.map(f64::from), limit };
        let mut record = SamplerRecord::default();
        let draw = |tree, place, position| {
            Stream::new(config.seed, Phase::Tree, step, name(tree, place)).after(position).unit()
        };
        let mut groups = Vec::new();
        for (group, own) in tree::grow(&engine, &prompts, &rules, capacity, draw)? {
            groups.push(group);
            record.add(own);
        }
        let missing = |(g, group): (usize, &Vec<Sampled>)| (group.len()..size).map(move |place| (g, place));
        let missing: Vec<(usize, usize)> = groups.iter().enumerate().flat_map(missing).collect();
        let asked: Vec<Vec<u32>> = missing.iter().map(|(g, _)| prompts[*g].clone()).collect();
        let stream = |row: u64| {
            let (g, place) = missing[row as usize];
            Stream::new(config.seed, Phase::Rollout, step, name(g, place))
        };
        let ordinary = sample(&engine, &asked, limit, stream)?;
        for ((g, _), sampled) in missing.iter().zip(ordinary) {
            record.tokens += sampled.response.len() as u64;
            groups[*g].push(sampled);
        }
        Ok((groups, record))
    }
}

#[cfg(test)]
mod tests;

//! A fixed pool of training prompts that come back, what is known of each, and rules that choose a step's
//! prompts and rollouts by it. The formulas are in [`lockstep::schedules`]; what is ours is said here.

mod choose;
mod history;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use lockstep::Duty;
use lockstep::schedule::dars::Treatment;
use serde::{Deserialize, Serialize};

pub(super) use history::History;

use super::group::Group;
use crate::cli::ValueName;
use crate::config::Rl;
use crate::random::{Phase, Stream};
use crate::task::{Problem, Task};

/// Maximum number of draws in search of a prompt that is not in the pool yet.
const MAX_DRAWS: usize = 1000;
/// How a step's prompts and rollouts are chosen from the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Select {
    /// Every prompt is equally likely
    #[default]
    Uniform,
    /// The prompts of the highest utility, by a draw from the posterior of each pass rate (VADE-style)
    Vade,
    /// Prompts whose pass rate is near one half (DOTS-style: the means of VADE's posteriors predict it)
    Dots,
    /// Uniform; difficulty bins set the weight and the number of rollouts of their prompts (GDRO)
    Gdro,
    /// Uniform; hard prompts get more rollouts, which join their groups (DARS)
    Dars,
}

impl Select {
    /// The fewest and the most rollouts of a prompt. For GDRO both are ours.
    pub(super) fn sizes(self, group: usize) -> [usize; 2] {
        match self {
            Self::Gdro => [(group / 2).max(2), 2 * group],
            Self::Dars => [group, group.max(Treatment::Equal.default_most() as usize)],
            _ => [group; 2],
        }
    }

    /// Why a recipe with this duty cannot be trained with it, if it cannot.
    pub(super) fn excludes(self, duty: Duty) -> Option<&'static str> {
        match (self, duty) {
            (Self::Gdro | Self::Dars, Duty::PivotResponse) => {
                Some("the pivot is the median of a group of --group + 1, not of a group of another size")
            }
            (Self::Vade | Self::Dots | Self::Gdro | Self::Dars, Duty::DynamicSampling) => {
                Some("a step's prompts are chosen once, and no more are sampled: expected uniform")
            }
            _ => None,
        }
    }
}

/// The settings of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Number of prompts.
    pub size: usize,
    /// How a step's prompts are chosen.
    pub select: Select,
}

impl Pool {
    /// Checks that the values are valid.
    pub fn check(&self, rl: &Rl) -> Result<()> {
        let Self { size, select } = *self;
        ensure!(size <= 1 << 20, "--pool is {size}: expected at most {}", 1 << 20);
        ensure!(
            size >= rl.prompts,
            "--pool is {size}: expected at least the {} prompts of a step (--prompts)",
            rl.prompts
        );
        if [Select::Gdro, Select::Dars].contains(&select) {
            let (name, group) = (select.name(), rl.group);
            ensure!(group > 1, "--select {name} with --group {group}: expected groups of at least 2");
            let largest = rl.prompts * select.sizes(group)[1];
            ensure!(
                largest <= 1 << 24,
                "--select {name} may sample {largest} rollouts in a step: expected at most {}, with fewer \
                 --prompts or a smaller --group",
                1 << 24
            );
        }
        Ok(())
    }
}

/// The prompts of the pool.
#[derive(Default)]
pub(super) struct Prompts {
    problems: Vec<Problem>,
    places: BTreeMap<String, usize>,
}

impl Prompts {
    /// Draws `size` different training problems.
    ///
    /// Errors: the task has too few.
    pub(super) fn draw(task: &Task, size: usize, seed: u64) -> Result<Self> {
        let mut pool = Self::default();
        for row in 0..size {
            let mut stream = Stream::new(seed, Phase::Pool, 0, row as u64);
            let fresh = (0..MAX_DRAWS)
                .map(|_| task.training(&mut |n| stream.below(n)))
                .find(|problem| !pool.places.contains_key(&problem.prompt));
            let Some(problem) = fresh else {
                bail!("--pool is {size}: only {row} different training prompts were found in the task");
            };
            pool.places.insert(problem.prompt.clone(), row);
            pool.problems.push(problem);
        }
        Ok(pool)
    }

    /// The place of a group's prompt.
    fn place(&self, group: &Group) -> Result<usize> {
        let prompt = &group.problem.prompt;
        self.places.get(prompt).copied().with_context(|| format!("prompt '{prompt}' is not in the pool"))
    }
}

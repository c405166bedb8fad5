//! A fixed pool of training prompts that come back, what is known of each, and rules that choose a step's
//! prompts and rollouts by it. The formulas are in [`lockstep::schedules`]; what is ours is said here.

use std::collections::BTreeMap;
use std::iter::repeat_n;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use lockstep::schedule::dars::{Dars, Deviation, Treatment};
use lockstep::schedule::gdro_bins::{Bins, Window};
use lockstep::schedule::gdro_prompt::PromptGdro;
use lockstep::schedule::gdro_rollout::{Nearest, RolloutGdro, UtilitySign};
use lockstep::schedule::{
    Posterior, Vade, dots_select, prompt_gdro_weights, rollout_gdro_choose, vade_select,
};
use lockstep::{Credit, Duty};
use serde::{Deserialize, Serialize};

use super::bits;
use super::group::{Group, Response};
use super::state::State;
use super::trainer::Trainer;
use crate::config::Rl;
use crate::model::Weights;
use crate::random::{Phase, Stream};
use crate::task::{Problem, Task};

/// Maximum number of draws in search of a prompt that is not in the pool yet.
const MAX_DRAWS: usize = 1000;
/// DOTS: the pass rate to be near to, and the temperature (2506.05316).
const DOTS: (f64, f64) = (0.5, 1e-3);
/// GDRO: rollouts from which a prompt's pass rate is measured (ours). An observation is a rollout: with pass@k
/// of whole groups nearly all prompts would be in the easiest bin.
const HORIZON: u32 = 16;
/// GDRO: the difficulty bins.
const BINS: Bins<'_> = {
    use lockstep::schedule::gdro_bins::Hysteresis;
    Bins { count: 10, edges: &[], margin: 0.0, hysteresis: Hysteresis::OwnEdges }
};

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
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Vade => "vade",
            Self::Dots => "dots",
            Self::Gdro => "gdro",
            Self::Dars => "dars",
        }
    }

    /// The fewest and the most rollouts of a prompt. For GDRO both are ours.
    fn sizes(self, group: usize) -> [usize; 2] {
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

/// What is known of the pool's prompts, and of the difficulty bins. Vectors are empty before they are used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct History {
    /// Rollouts sampled so far.
    pub rollouts: u64,
    /// VADE, DOTS: a and b of each prompt's posterior, `[P, 2]`.
    #[serde(with = "bits::doubles", skip_serializing_if = "Vec::is_empty")]
    posteriors: Vec<f64>,
    /// GDRO: each prompt's last outcomes, the latest in the lowest bit, and their number, `[P]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outcomes: Vec<(u64, u32)>,
    /// GDRO: the bin in which each prompt was when it was last chosen, `[P]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bins: Vec<Option<u32>>,
    /// Prompt-GDRO: the score of each bin, as bits, `[B]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scores: Vec<Option<u64>>,
    /// Rollout-GDRO: the score of each number of rollouts in each bin, `[B, K]`.
    #[serde(with = "bits::doubles", skip_serializing_if = "Vec::is_empty")]
    arms: Vec<f64>,
    /// Rollout-GDRO: the price of a rollout.
    #[serde(with = "bits::double")]
    price: f64,
}

impl History {
    /// Whether nothing is known yet.
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// The posterior of each of `size` prompts.
    fn posteriors(&self, size: usize) -> Vec<Posterior> {
        match self.posteriors.is_empty() {
            true => vec![Posterior::default(); size],
            false => self.posteriors.chunks(2).map(|pair| Posterior { a: pair[0], b: pair[1] }).collect(),
        }
    }

    fn scores(&self) -> Vec<Option<f64>> {
        let mut scores: Vec<Option<f64>> = self.scores.iter().map(|bits| bits.map(f64::from_bits)).collect();
        scores.resize(BINS.count as usize, None);
        scores
    }

    /// Puts prompts into their bins; returns these, and the number of prompts in each bin.
    fn sort(&mut self, places: &[usize], size: usize) -> Result<(Vec<usize>, Vec<u32>)> {
        self.outcomes.resize(size, (0, 0));
        self.bins.resize(size, None);
        for &place in places {
            let (outcomes, number) = self.outcomes[place];
            let past = (0..number).rev().map(|back| outcomes >> back & 1 == 1);
            let window = past.fold(Window::default(), Window::observe);
            self.bins[place] = Some(BINS.of(window.accuracy(HORIZON)?, self.bins[place])?);
        }
        Ok(self.bins_of(places))
    }

    fn bins_of(&self, places: &[usize]) -> (Vec<usize>, Vec<u32>) {
        let bins: Vec<usize> =
            places.iter().map(|place| self.bins[*place].unwrap_or_default() as usize).collect();
        let mut count = vec![0; BINS.count as usize];
        bins.iter().for_each(|bin| count[*bin] += 1);
        (bins, count)
    }

    /// Adds the outcomes of groups to the posteriors.
    fn observe_rates(&mut self, places: &[usize], groups: &[Group], size: usize) -> Result<()> {
        let mut posteriors = self.posteriors(size);
        let visited: Vec<u32> = places.iter().map(|place| *place as u32).collect();
        let right: Vec<u32> = groups.iter().map(|group| group.right() as u32).collect();
        let rollouts: Vec<u32> = groups.iter().map(|group| group.responses.len() as u32).collect();
        Vade::default().update(&mut posteriors, &visited, &right, &rollouts)?;
        self.posteriors = posteriors.iter().flat_map(|posterior| [posterior.a, posterior.b]).collect();
        Ok(())
    }

    /// Adds the outcomes of groups to the scores of the bins, and to the prompts' own. A prompt's loss is the
    /// share of its wrong responses (our reading).
    fn observe_bins(&mut self, places: &[usize], groups: &[Group], gdro: &RolloutGdro<'_>) -> Result<()> {
        let (bins, count) = self.bins_of(places);
        let mut loss = vec![0.0; count.len()];
        // A bin without prompts is not updated, whatever its number of rollouts.
        let mut chosen = vec![gdro.least; count.len()];
        let mut total = 0;
        for ((group, bin), place) in groups.iter().zip(&bins).zip(places) {
            let rollouts = group.responses.len();
            loss[*bin] += 1.0 - group.right() as f64 / rollouts as f64;
            chosen[*bin] = rollouts as u32;
            total += rollouts as u64;
            let (outcomes, number) = &mut self.outcomes[*place];
            for passed in group.passes() {
                (*outcomes, *number) = (*outcomes << 1 | u64::from(passed), (*number + 1).min(HORIZON));
            }
        }
        let mut scores = self.scores();
        PromptGdro::default().observe(&mut scores, &loss, &count)?;
        self.scores = scores.iter().map(|score| score.map(f64::to_bits)).collect();
        let mean: Vec<f64> = loss.iter().zip(&count).map(|(loss, n)| loss / f64::from(*n)).collect();
        gdro.update(&mut self.arms, &count, &chosen, &mean, self.price)?;
        self.price = gdro.next_price(self.price, total, groups.len() as u64);
        Ok(())
    }
}

impl Trainer {
    fn select(&self) -> Select {
        self.config().pool.unwrap_or_default().select
    }

    /// Rollout-GDRO's settings; those of its bandit are ours.
    fn gdro(&self) -> RolloutGdro<'static> {
        let group = self.config().rl.group;
        let [least, most] = Select::Gdro.sizes(group).map(|size| size as u32);
        RolloutGdro {
            least,
            most,
            among: &[],
            rate: 0.1,
            exploration: 0.1,
            price_rate: 0.01,
            target: group as f64,
            utility_sign: UtilitySign::Paper,
            nearest: Nearest::Smaller,
        }
    }

    /// Chooses the prompts of a round, and the number of rollouts of each. Prompts that the recipe prunes come
    /// last. Fewer, where the pool has no more.
    pub(super) fn choose(
        &self,
        pool: &Prompts,
        state: &mut State,
        step: u64,
        round: usize,
    ) -> Result<(Vec<Problem>, Vec<usize>)> {
        let (rl, seed, size) = (&self.config().rl, self.config().seed, pool.problems.len());
        let select = self.select();
        let posteriors = || state.memory.pool.posteriors(size);
        let mut order: Vec<u32> = match select {
            Select::Vade => vade_select(&Vade::default(), &posteriors(), size, seed, step as u32)?.prompts,
            Select::Dots => {
                let rates: Vec<f64> = posteriors().into_iter().map(Posterior::mean).collect();
                dots_select(&rates, size, DOTS.0, DOTS.1, seed, step as u32)?
            }
            Select::Uniform | Select::Gdro | Select::Dars => {
                let mut order: Vec<u32> = (0..size as u32).collect();
                Stream::new(seed, Phase::RlProblems, step, 0).shuffle(&mut order);
                order
            }
        };
        order.sort_by_key(|place| state.memory.is_solved(&pool.problems[*place as usize].prompt));
        let chosen = order.into_iter().skip(round * rl.prompts).take(rl.prompts);
        let chosen: Vec<usize> = chosen.map(|place| place as usize).collect();
        let sizes = match select {
            // Groups of unlike sizes, so that a recipe that refuses them does so before the warm start.
            Select::Gdro | Select::Dars if self.trial => {
                select.sizes(rl.group).into_iter().cycle().take(chosen.len()).collect()
            }
            Select::Gdro => {
                let (history, gdro) = (&mut state.memory.pool, self.gdro());
                let (bins, count) = history.sort(&chosen, size)?;
                history.arms.resize(count.len() * gdro.arms(), 0.0);
                let budget = (chosen.len() * rl.group) as u64;
                let rollouts = rollout_gdro_choose(&gdro, &history.arms, &count, budget)?.per_prompt;
                bins.into_iter().map(|bin| rollouts[bin] as usize).collect()
            }
            _ => vec![self.group_size(); chosen.len()],
        };
        Ok((chosen.into_iter().map(|place| pool.problems[place].clone()).collect(), sizes))
    }

    /// DARS: samples more rollouts for the groups of hard prompts.
    pub(super) fn join(&self, weights: &Weights, groups: &mut [Group], step: u64) -> Result<()> {
        if self.select() != Select::Dars || self.trial {
            return Ok(());
        }
        let [rollouts, most] = Select::Dars.sizes(self.config().rl.group).map(|size| size as u32);
        let deviation = match self.algorithm.recipe().advantage.norm_by_std {
            true => Deviation::With,
            false => Deviation::Without,
        };
        let dars = Dars { rollouts, most, deviation, treatment: Treatment::Equal };
        let mut more = Vec::new();
        for (g, group) in groups.iter().enumerate() {
            let extra = dars.extra(group.right() as f64 / group.responses.len() as f64)?;
            more.extend(repeat_n(g, extra as usize));
        }
        let asked: Vec<&Problem> = more.iter().map(|g| &groups[*g].problem).collect();
        let sampled = self.rollouts(weights, &asked, Phase::Joining, step, 0)?;
        let rewards = self.rewards(&asked, &sampled);
        for ((g, sampled), reward) in more.into_iter().zip(sampled).zip(rewards) {
            groups[g].responses.push(Response::new(sampled, reward));
        }
        Ok(())
    }

    /// Adds the outcomes of a round's groups to what is known of their prompts.
    pub(super) fn observe(&self, history: &mut History, groups: &[Group]) -> Result<()> {
        let Some(pool) = &self.pool else { return Ok(()) };
        history.rollouts += groups.iter().map(|group| group.responses.len() as u64).sum::<u64>();
        let places: Vec<usize> = groups.iter().map(|group| pool.place(group)).collect::<Result<_>>()?;
        match self.select() {
            _ if self.trial => Ok(()),
            Select::Vade | Select::Dots => history.observe_rates(&places, groups, pool.problems.len()),
            Select::Gdro => history.observe_bins(&places, groups, &self.gdro()),
            Select::Uniform | Select::Dars => Ok(()),
        }
    }

    /// Prompt-GDRO: multiplies the advantages of each group by the weight of its prompt's bin.
    pub(super) fn weigh(&self, history: &History, groups: &[Group], credit: &mut Credit) -> Result<()> {
        let Some(pool) = self.pool.as_ref().filter(|_| self.select() == Select::Gdro && !self.trial) else {
            return Ok(());
        };
        let places: Vec<usize> = groups.iter().map(|group| pool.place(group)).collect::<Result<_>>()?;
        let (bins, count) = history.bins_of(&places);
        let weights = prompt_gdro_weights(&PromptGdro::default(), &history.scores(), &count)?;
        let per_token = credit.per_token;
        let elements = |group: &Group| match per_token {
            true => group.responses.iter().map(|response| response.tokens.len()).sum(),
            false => group.responses.len(),
        };
        let factors =
            groups.iter().zip(bins).flat_map(|(group, bin)| repeat_n(weights[bin] as f32, elements(group)));
        credit.advantage.iter_mut().zip(factors).for_each(|(advantage, factor)| *advantage *= factor);
        Ok(())
    }
}

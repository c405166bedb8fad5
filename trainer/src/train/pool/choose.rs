//! The choice of a step's prompts and rollouts, and what follows from their outcomes.

use std::iter::repeat_n;

use anyhow::Result;
use lockstep::Credit;
use lockstep::schedule::dars::{Dars, Deviation, Treatment};
use lockstep::schedule::gdro_prompt::PromptGdro;
use lockstep::schedule::gdro_rollout::{Nearest, RolloutGdro, UtilitySign};
use lockstep::schedule::{
    Posterior, Vade, dots_select, prompt_gdro_weights, rollout_gdro_choose, vade_select,
};

use super::{History, Prompts, Select};
use crate::model::Weights;
use crate::random::{Phase, Stream};
use crate::task::Problem;
use crate::train::group::{Group, Response};
use crate::train::state::State;
use crate::train::trainer::Trainer;

/// DOTS: the pass rate to be near to, and the temperature (2506.05316).
const DOTS: (f64, f64) = (0.5, 1e-3);

impl Trainer {
    /// How prompts are chosen; uniformly without a pool.
    pub(in crate::train) fn select(&self) -> Select {
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

    /// Chooses the prompts of a round, and the number of rollouts of each: fewer prompts where the pool has
    /// no more. Prompts that the recipe prunes come last.
    pub(in crate::train) fn choose(
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
            Select::Vade => vade_select(&Vade::default(), &posteriors()?, size, seed, step as u32)?.prompts,
            Select::Dots => {
                let rates: Vec<f64> = posteriors()?.into_iter().map(Posterior::mean).collect();
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
    pub(in crate::train) fn join(&self, weights: &Weights, groups: &mut [Group], step: u64) -> Result<()> {
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
    pub(in crate::train) fn observe(&self, history: &mut History, groups: &[Group]) -> Result<()> {
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
    pub(in crate::train) fn weigh(
        &self,
        history: &History,
        groups: &[Group],
        credit: &mut Credit,
    ) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::super::Pool;
    use super::*;
    use crate::task::Task;

    /// 24 prompts, 6 a step.
    fn trainer(select: Select, group: usize) -> Trainer {
        Trainer::small("addition:1-2", "grpo", |config| {
            (config.rl.prompts, config.rl.group, config.rl.minibatches) = (6, group, 3);
            config.pool = Some(Pool { size: 24, select });
        })
    }

    fn group(trainer: &Trainer, place: usize, rewards: &[f32]) -> Group {
        let problem = trainer.pool.as_ref().unwrap().problems[place].clone();
        let response = |reward: &f32| {
            let sampled = crate::policy::Sampled { response: vec![1, 2], logp: vec![-1.0; 2], routed: None };
            Response::new(sampled, *reward)
        };
        Group { row: 0, problem, responses: rewards.iter().map(response).collect(), baseline: 0.0 }
    }

    fn chosen(trainer: &Trainer, state: &mut State, step: u64, round: usize) -> (Vec<usize>, Vec<usize>) {
        let pool = trainer.pool.as_ref().unwrap();
        let (problems, sizes) = trainer.choose(pool, state, step, round).unwrap();
        (problems.iter().map(|problem| pool.places[&problem.prompt]).collect(), sizes)
    }

    #[test]
    fn a_pool_has_different_prompts_and_no_more_than_the_task() {
        let task = Task::named("addition:1").unwrap();
        let draw = |size, seed| Prompts::draw(&task, size, seed);
        let pool = draw(60, 1).unwrap();
        assert_eq!((pool.problems.len(), pool.places.len()), (60, 60));
        assert_eq!(pool.problems, draw(60, 1).unwrap().problems);
        assert_ne!(pool.problems, draw(60, 2).unwrap().problems);
        let error = draw(200, 1).err().unwrap().to_string();
        assert!(error.contains("--pool is 200") && error.contains("in the task"), "{error}");
    }

    #[test]
    fn rounds_of_a_step_go_once_through_the_pool() {
        let trainer = trainer(Select::Uniform, 4);
        let mut state = State::new(trainer.config());
        let mut round = |step, round| chosen(&trainer, &mut state, step, round).0;
        let mut all: Vec<usize> = (0..4).flat_map(|r| round(7, r)).collect();
        assert_ne!(all[..6], round(8, 0));
        assert!(round(7, 4).is_empty());
        all.sort_unstable();
        assert!(all.into_iter().eq(0..24));
    }

    /// Prompt 3 has a pass rate of one third, where VADE's utility is highest, prompt 5 one of a half; all
    /// others are nearly solved.
    #[test]
    fn each_rule_prefers_its_own_pass_rate() {
        let first = |select| {
            let trainer = trainer(select, 4);
            let mut state = State::new(trainer.config());
            let sure = |place| match place {
                3 => [1e6, 2e6],
                5 => [1e6, 1e6],
                _ => [9.9e5, 1e4],
            };
            state.memory.pool.posteriors = (0..24).flat_map(sure).collect();
            chosen(&trainer, &mut state, 0, 0).0[..2].to_vec()
        };
        assert_eq!(first(Select::Vade), [3, 5]);
        assert_eq!(first(Select::Dots), [5, 3]);
    }

    /// 3 of 4 right: a = 1 + 3, b = 1 + 1; the next step's global decay is 0.99.
    #[test]
    fn outcomes_are_counted_for_their_prompt() {
        let trainer = trainer(Select::Vade, 4);
        let mut history = History::default();
        let visit = [group(&trainer, 2, &[1.0, 1.0, 0.0, 1.0])];
        trainer.observe(&mut history, &visit).unwrap();
        trainer.observe(&mut history, &[group(&trainer, 0, &[0.0; 4])]).unwrap();
        let posterior = |place: usize| history.posteriors(24).unwrap()[place];
        assert_eq!((posterior(0).a, posterior(0).b), (1.0, 5.0));
        assert!((posterior(2).a - 3.97).abs() < 1e-12 && (posterior(2).b - 1.99).abs() < 1e-12);
        assert_eq!((posterior(1), history.rollouts), (Posterior::default(), 8));
        let text = serde_json::to_string(&history).unwrap();
        assert_eq!(serde_json::from_str::<History>(&text).unwrap(), history);
        // Of an edited checkpoint.
        let wrong = history.posteriors(25).unwrap_err().to_string();
        assert!(wrong.contains("posteriors has 48 numbers: expected 50"), "{wrong}");
    }

    #[test]
    fn gdro_refuses_an_edited_checkpoint() {
        let refused = |outcomes, bins| {
            let mut history = History::default();
            (history.outcomes, history.bins) = (outcomes, bins);
            history.sort(&[1, 4], 24).unwrap_err().to_string()
        };
        for (found, expected) in [
            (refused(vec![(0, 0); 25], vec![]), "outcomes has 25 entries: expected 24, one per prompt"),
            (refused(vec![], vec![None; 3]), "bins has 3 entries: expected 24, one per prompt"),
            (
                refused(vec![(0, 65); 24], vec![]),
                "outcomes has a prompt with 65 of them: expected at most 16",
            ),
            (refused(vec![], vec![Some(10); 24]), "bins has bin 10: expected one below 10"),
        ] {
            assert!(found.contains(expected), "{found}");
        }
    }

    /// Two new prompts, in the hardest bin: losses 0.5 and 1, mean 0.75. Then the first one's rate is 1/2,
    /// and it moves to bin 5, whose weight is 1; that of bin 0 is e^(0.1 · 0.75).
    #[test]
    fn gdro_by_hand() {
        let trainer = trainer(Select::Gdro, 4);
        let mut history = History::default();
        let groups = [group(&trainer, 1, &[1.0, 0.0, 1.0, 0.0]), group(&trainer, 4, &[0.0; 4])];
        assert_eq!(history.sort(&[1, 4], 24).unwrap().0, [0, 0]);
        // Arms of 2 to 8 rollouts.
        history.arms = vec![0.0; 70];
        trainer.observe(&mut history, &groups).unwrap();
        assert_eq!(history.scores()[0], Some(0.75));
        assert_eq!((history.arms[2], history.arms.iter().filter(|x| **x != 0.0).count()), (-0.75, 1));
        assert_eq!((history.outcomes[1], history.outcomes[4]), ((0b1010, 4), (0, 4)));
        assert_eq!(history.price, 0.0, "4 rollouts a prompt are the target");
        assert_eq!(history.sort(&[1, 4], 24).unwrap().0, [5, 0]);
        for (per_token, length) in [(false, 4), (true, 8)] {
            let mut credit = match per_token {
                true => Credit::per_token(vec![2.0; 16]),
                false => Credit::per_sequence(vec![2.0; 8]),
            };
            trainer.weigh(&history, &groups, &mut credit).unwrap();
            let (one, other) = credit.advantage.split_at(length);
            let weight = 2.0 * 0.075_f32.exp();
            assert!(one.iter().all(|x| *x == 2.0) && other.iter().all(|x| (x - weight).abs() < 1e-6));
        }
    }

    /// Groups of unlike sizes are trained on, and every step has its budget.
    #[test]
    fn gdro_keeps_to_the_budget() {
        let trainer = trainer(Select::Gdro, 4);
        let mut state = State::new(trainer.config());
        state.reference = Some(state.weights.clone());
        // All is wrong here: pass rates that put prompts into two bins make unlike groups.
        state.memory.pool.outcomes = (0..24).map(|place| (place % 2 * 0b11, 2)).collect();
        for step in 1..=3 {
            let done = trainer.rl_step(&mut state, drop).unwrap();
            let count = done.record.rollouts.unwrap();
            assert_eq!((count.step, count.total), (24, 24 * step));
            let ends = done.rollouts.cu_groups.unwrap();
            let sizes: Vec<u32> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(step > 1 || sizes.iter().any(|size| *size != sizes[0]), "{sizes:?}");
            assert!(done.record.loss.is_finite());
        }
    }

    /// Table 8.7 with the standard deviation: of 8, none right gives 9 more, one right 5, half right none.
    #[test]
    fn hard_prompts_get_more_rollouts() {
        let trainer = trainer(Select::Dars, 8);
        let state = State::new(trainer.config());
        let rewards = |right: usize| (0..8).map(|i| f32::from(u8::from(i < right))).collect::<Vec<_>>();
        let mut groups: Vec<Group> =
            [0, 1, 4].into_iter().map(|right| group(&trainer, right, &rewards(right))).collect();
        trainer.join(&state.weights, &mut groups, 0).unwrap();
        assert_eq!(groups.iter().map(|group| group.responses.len()).collect::<Vec<_>>(), [17, 13, 8]);
        trainer.join(&state.weights, &mut groups[2..], 1).unwrap();
        assert_eq!(groups[2].responses.len(), 8, "none is hard");
    }
}

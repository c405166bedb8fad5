//! Batches that exercise a recipe's corner cases: masks with holes, sequences that have no live token or are
//! left out, groups of one, rewards of every kind, truncated episodes, rejected sequences, clipped ratios,
//! parts of a larger batch.

use lockstep::core::num::exp64;
use lockstep::recipe::{AdvantageEstimator, GuardChoice, Recipe, SingletonChoice};
use lockstep::schedules::random::{Purpose, Stream};
use lockstep::{Error, RolloutsBuf, synthetic};

/// Callers' purposes start at 256.
const CORNERS: Purpose = Purpose(4096);

/// Every batch of a recipe, with its name.
pub fn batches(recipe: &Recipe) -> Result<Vec<(&'static str, RolloutsBuf)>, Error> {
    let draw = |sequences, tokens, seed| synthetic::rollouts(recipe, sequences, tokens, seed);
    let mut out = vec![("plain", draw(8, 100, 1)?)];
    let mut holes = Corners::new(recipe, draw(13, 333, 2)?, 2);
    holes.mask(0.2, None);
    holes.spread_logp(0.15, 0.0);
    holes.away_from_sampler();
    out.push(("holes", holes.rollouts));
    let mut part = Corners::new(recipe, draw(18, 400, 3)?, 3);
    part.mask(0.1, Some(2));
    part.rewards(8, false);
    part.ends();
    part.away_from_sampler();
    part.rollouts.counts = part.rollouts.counts.is_none().then(|| vec![777, 41, 44]);
    out.push(("part", part.rollouts));
    let mut wide = Corners::new(recipe, draw(24, 900, 4)?, 4);
    wide.mask(0.3, Some(7));
    wide.rewards(5, true);
    wide.spread_logp(1.2, 0.0);
    wide.away_from_sampler();
    wide.ends();
    out.push(("wide", wide.rollouts));
    let mut guarded = Corners::new(recipe, draw(9, 120, 5)?, 5);
    let beyond = if recipe.ratio.guard == GuardChoice::None { 2.5 } else { 21.0 };
    guarded.spread_logp(0.3, beyond);
    guarded.rewards(4, false);
    out.push(("guarded", guarded.rollouts));
    let mut long = Corners::new(recipe, draw(8, 600, 6)?, 6);
    long.mask(0.02, None);
    long.spread_logp(0.3, 0.0);
    long.rewards(2, false);
    out.push(("long", long.rollouts));
    if recipe.advantage.singleton != SingletonChoice::Error
        && recipe.advantage.estimator != AdvantageEstimator::PassAtK
    {
        let mut lone = Corners::new(recipe, draw(12, 200, 7)?, 7);
        lone.lone_group();
        lone.mask(0.2, None);
        lone.away_from_sampler();
        out.push(("lone", lone.rollouts));
    }
    for (_, rollouts) in &out {
        rollouts.view().check()?;
    }
    Ok(out)
}

/// Builds a batch of corner cases.
struct Corners {
    rollouts: RolloutsBuf,
    stream: Stream,
    /// Minimum number of members of a group that must keep counting.
    least: usize,
    corrected: bool,
}

impl Corners {
    fn new(recipe: &Recipe, rollouts: RolloutsBuf, seed: u64) -> Corners {
        let least = if recipe.advantage.estimator == AdvantageEstimator::PassAtK { 4 } else { 2 };
        let mut own = Corners {
            rollouts,
            stream: Stream::new(seed, CORNERS, 0, 0),
            least,
            corrected: recipe.correction.is_some(),
        };
        let RolloutsBuf { role_values, step, score_norm, sum_p_squared, logp_old, .. } = &mut own.rollouts;
        // States other than the first, and the second of two interchangeable columns.
        if seed.is_multiple_of(2) {
            *step = step.is_some().then(|| vec![50 + 7 * seed]);
            if recipe.advantage.estimator == AdvantageEstimator::RoleBaseline {
                *role_values = Some(vec![0.25, -0.5]);
            }
            if score_norm.is_some() || sum_p_squared.is_some() {
                *score_norm = None;
                // Uses Lockstep's exponential, so that the batches are the same on every machine.
                let sum = |logp: &f32| {
                    let p = exp64((*logp).into());
                    (p * p + 0.5 * (1.0 - p) * (1.0 - p)) as f32
                };
                *sum_p_squared = logp_old.as_ref().map(|old| old.iter().map(sum).collect());
            }
        }
        if recipe.advantage.estimator == AdvantageEstimator::Tempo && seed > 3 {
            let sequences = own.sequences();
            own.rollouts.outcome_weights = Some((0..sequences).map(|s| 0.5 + (s % 3) as f32).collect());
        }
        own
    }

    fn offsets(&self) -> (Vec<u32>, Vec<u32>) {
        let clone = |offsets: &Option<Vec<u32>>| offsets.clone().unwrap_or_default();
        (clone(&self.rollouts.cu_seqlens), clone(&self.rollouts.cu_groups))
    }

    fn sequences(&self) -> usize {
        self.offsets().0.len() - 1
    }

    fn group_of(&self, sequence: usize) -> std::ops::Range<usize> {
        let (_, cu_groups) = self.offsets();
        let g = cu_groups.partition_point(|start| *start as usize <= sequence) - 1;
        cu_groups[g] as usize..cu_groups[g + 1] as usize
    }

    /// Masks a share of the tokens and, in every third sequence, the first quarter; one sequence gets no live
    /// token if its group can spare it.
    fn mask(&mut self, share: f64, empty: Option<usize>) {
        let (cu, _) = self.offsets();
        let n = cu[cu.len() - 1] as usize;
        let mut mask: Vec<u8> = (0..n).map(|_| u8::from(self.stream.uniform() >= share)).collect();
        for s in 0..self.sequences() {
            let (start, end) = (cu[s] as usize, cu[s + 1] as usize);
            if s % 3 == 0 {
                mask[start..start + (end - start) / 4].fill(0);
            }
            mask[end - 1] = u8::from(s % 4 != 1 || end - start < 4);
            if !mask[start..end].contains(&1) {
                mask[start] = 1;
            }
            if empty == Some(s) && self.group_of(s).len() > self.least {
                mask[start..end].fill(0);
            }
        }
        self.rollouts.loss_mask = Some(mask);
    }

    /// Rewards on a grid of `steps` steps; with `gaps`, one member of a group has no score and another is
    /// invalid.
    fn rewards(&mut self, steps: u64, gaps: bool) {
        let mut draw = |n: usize| -> Vec<f32> {
            (0..n).map(|_| self.stream.below(steps + 1) as f32 / steps as f32).collect()
        };
        for column in [
            &mut self.rollouts.rewards,
            &mut self.rollouts.reward_components,
            &mut self.rollouts.turn_rewards,
            &mut self.rollouts.step_rewards,
        ] {
            *column = column.as_ref().map(|values| draw(values.len()));
        }
        if !gaps {
            return;
        }
        let sequences = self.sequences();
        let spare = |own: &Corners, s: usize| own.group_of(s).len() >= own.least + 2;
        let masked = self.rollouts.counts.is_some();
        if spare(self, 1) && !masked {
            for values in
                [&mut self.rollouts.rewards, &mut self.rollouts.reward_components].into_iter().flatten()
            {
                values[1] = f32::NAN;
            }
        }
        let mut valid = vec![1; sequences];
        let last = sequences - 2;
        valid[last] = u8::from(!spare(self, last));
        self.rollouts.valid = Some(valid);
    }

    /// Moves the policy by up to `spread`, and one token in each direction by `beyond`.
    fn spread_logp(&mut self, spread: f32, beyond: f32) {
        let Some(old) = self.rollouts.logp_old.clone() else { return };
        let noise: Vec<f32> = old.iter().map(|_| 2.0 * self.stream.uniform32() - 1.0).collect();
        // Some tokens are nearly certain: covariances of either sign and every size.
        let moved = |(i, old): (usize, &f32)| (old + spread * noise[i]).min(-1e-3);
        let mut logp: Vec<f32> = old.iter().enumerate().map(moved).collect();
        if beyond > 0.0 {
            let (there, back) = (old.len() / 3, 2 * old.len() / 3);
            logp[back] = old[back] - beyond;
            logp[there] = -0.01;
            for column in [&mut self.rollouts.logp_old, &mut self.rollouts.logp_rollout].into_iter().flatten()
            {
                column[there] = -0.01 - beyond;
            }
        }
        self.rollouts.logp = Some(logp);
    }

    /// If there is a correction, every third sequence equals the sampled one up to rounding, and every third
    /// is far from it.
    fn away_from_sampler(&mut self) {
        let (cu, _) = self.offsets();
        let (Some(old), true) = (&self.rollouts.logp_old, self.corrected) else { return };
        let mut rollout = self.rollouts.logp_rollout.clone().unwrap_or_default();
        for s in (0..cu.len() - 1).filter(|s| s % 3 < 2) {
            let size = if s % 3 == 0 { 5e-4 } else { 1.5 };
            for i in cu[s] as usize..cu[s + 1] as usize {
                rollout[i] = (old[i] + size * (2.0 * self.stream.uniform32() - 1.0)).min(-1e-4);
            }
        }
        self.rollouts.logp_rollout = Some(rollout);
    }

    /// Truncates some sequences.
    fn ends(&mut self) {
        let s = self.sequences();
        if self.rollouts.values_old.is_some() {
            self.rollouts.truncated = Some((0..s).map(|s| u8::from(s % 3 == 1)).collect());
            self.rollouts.terminated = Some((0..s).map(|s| u8::from(s % 3 != 1)).collect());
            self.rollouts.bootstrap = Some((0..s).map(|s| 0.1 * s as f32).collect());
        }
    }

    /// Makes the first member of the first group a group of its own.
    fn lone_group(&mut self) {
        let (_, mut cu_groups) = self.offsets();
        let n = cu_groups[1] as usize;
        cu_groups.insert(1, 1);
        self.rollouts.cu_groups = Some(cu_groups);
        if let Some(values) = &mut self.rollouts.baseline {
            values.insert(0, 0.375);
        }
        if let Some(values) = &mut self.rollouts.reference {
            values[0] = 0;
            values.insert(0, 0);
        }
        if let Some(pairs) = &mut self.rollouts.similarity {
            let inner = (1..n).flat_map(|i| (1..n).map(move |j| i * n + j)).map(|k| pairs[k]);
            let rest = std::iter::once(pairs[0]).chain(inner).chain(pairs[n * n..].iter().copied());
            *pairs = rest.collect();
        }
    }
}

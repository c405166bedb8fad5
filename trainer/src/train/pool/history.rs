//! What a run knows of the prompts of its pool.

use anyhow::{Result, bail, ensure};
use lockstep::schedule::gdro_bins::{Bins, Hysteresis, Window};
use lockstep::schedule::gdro_prompt::PromptGdro;
use lockstep::schedule::gdro_rollout::RolloutGdro;
use lockstep::schedule::{Posterior, Vade};
use serde::{Deserialize, Serialize};

use crate::train::bits;
use crate::train::group::Group;

/// GDRO: rollouts from which a prompt's pass rate is measured (ours). An observation is a rollout: with
/// pass@k of whole groups nearly all prompts would be in the easiest bin.
const HORIZON: u32 = 16;
/// GDRO: the difficulty bins.
const BINS: Bins<'_> = Bins { count: 10, edges: &[], margin: 0.0, hysteresis: Hysteresis::OwnEdges };

/// What is known of the pool's prompts, and of the difficulty bins. Vectors are empty before they are used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct History {
    /// Rollouts sampled so far.
    pub rollouts: u64,
    /// VADE, DOTS: a and b of each prompt's posterior, `[P, 2]`.
    #[serde(with = "bits::doubles", skip_serializing_if = "Vec::is_empty")]
    pub(super) posteriors: Vec<f64>,
    /// GDRO: each prompt's last outcomes, the latest in the lowest bit, and their number, `[P]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) outcomes: Vec<(u64, u32)>,
    /// GDRO: the bin in which each prompt was when it was last chosen, `[P]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) bins: Vec<Option<u32>>,
    /// Prompt-GDRO: the score of each bin, as bits, `[B]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scores: Vec<Option<u64>>,
    /// Rollout-GDRO: the score of each number of rollouts in each bin, `[B, K]`.
    #[serde(with = "bits::doubles", skip_serializing_if = "Vec::is_empty")]
    pub(super) arms: Vec<f64>,
    /// Rollout-GDRO: the price of a rollout.
    #[serde(with = "bits::double")]
    pub(super) price: f64,
}

impl History {
    /// The posterior of each of `size` prompts.
    ///
    /// Errors: an edited checkpoint with others.
    pub(super) fn posteriors(&self, size: usize) -> Result<Vec<Posterior>> {
        let (got, expected) = (self.posteriors.len(), 2 * size);
        if got == 0 {
            return Ok(vec![Posterior::default(); size]);
        }
        ensure!(
            got == expected,
            "memory.pool.posteriors has {got} numbers: expected {expected}, two per prompt"
        );
        Ok(self.posteriors.chunks(2).map(|pair| Posterior { a: pair[0], b: pair[1] }).collect())
    }

    /// Prompt-GDRO's score of each bin.
    pub(super) fn scores(&self) -> Vec<Option<f64>> {
        let mut scores: Vec<Option<f64>> = self.scores.iter().map(|bits| bits.map(f64::from_bits)).collect();
        scores.resize(BINS.count as usize, None);
        scores
    }

    /// Puts prompts into their bins; returns these, and the number of prompts in each bin.
    ///
    /// Errors: an edited checkpoint with others.
    pub(super) fn sort(&mut self, places: &[usize], size: usize) -> Result<(Vec<usize>, Vec<u32>)> {
        for (name, got) in [("outcomes", self.outcomes.len()), ("bins", self.bins.len())] {
            ensure!(
                got == 0 || got == size,
                "memory.pool.{name} has {got} entries: expected {size}, one per prompt"
            );
        }
        if let Some((_, number)) = self.outcomes.iter().find(|(_, number)| *number > HORIZON) {
            bail!("memory.pool.outcomes has a prompt with {number} of them: expected at most {HORIZON}");
        }
        if let Some(bin) = self.bins.iter().flatten().find(|bin| **bin >= BINS.count) {
            bail!("memory.pool.bins has bin {bin}: expected one below {}", BINS.count);
        }
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

    /// The bins of prompts, and the number of prompts in each.
    pub(super) fn bins_of(&self, places: &[usize]) -> (Vec<usize>, Vec<u32>) {
        let bins: Vec<usize> =
            places.iter().map(|place| self.bins[*place].unwrap_or_default() as usize).collect();
        let mut count = vec![0; BINS.count as usize];
        bins.iter().for_each(|bin| count[*bin] += 1);
        (bins, count)
    }

    /// Adds the outcomes of groups to the posteriors.
    pub(super) fn observe_rates(&mut self, places: &[usize], groups: &[Group], size: usize) -> Result<()> {
        let mut posteriors = self.posteriors(size)?;
        let visited: Vec<u32> = places.iter().map(|place| *place as u32).collect();
        let right: Vec<u32> = groups.iter().map(|group| group.right() as u32).collect();
        let rollouts: Vec<u32> = groups.iter().map(|group| group.responses.len() as u32).collect();
        Vade::default().update(&mut posteriors, &visited, &right, &rollouts)?;
        self.posteriors = posteriors.iter().flat_map(|posterior| [posterior.a, posterior.b]).collect();
        Ok(())
    }

    /// Adds the outcomes of groups to the scores of the bins, and to the prompts' own. A prompt's loss is the
    /// share of its wrong responses (our reading).
    pub(super) fn observe_bins(
        &mut self,
        places: &[usize],
        groups: &[Group],
        gdro: &RolloutGdro<'_>,
    ) -> Result<()> {
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

//! ReMax over rewards of tokens.

use super::{Estimator, Recipe, TokenAdvantages};
use crate::{Batch, Device, Error, ops};
use lockstep_core::Error as Argument;

impl Recipe {
    /// Advantages of rewards per token `[N]`, of the estimator `remax`: what is still to come, less the `greedy` response's reward `[G]`,
    /// within ±`advantage.limit` and then whitened, where the recipe asks for it.
    ///
    /// Errors: another estimator; lengths that disagree; a live reward or a greedy one that is not finite (index); a result that is not finite (index).
    ///
    /// ```
    /// use lockstep::{Batch, Device, Recipe};
    /// let batch = Batch::new(&[0, 2, 3], &[0, 2], None)?;
    /// let out = Recipe::named("remax")?.remax_advantages(&Device::cpu(), &batch, &[0.25, 1.0, 0.0], &[0.5])?;
    /// assert_eq!((out.advantage, out.returns), (vec![0.75, 0.5, -0.5], vec![1.25, 1.0, 0.0]));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn remax_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        token_rewards: &[f32],
        greedy: &[f32],
    ) -> Result<TokenAdvantages, Error> {
        if self.advantage.estimator != Estimator::ReMax || self.advantage.over_time.is_some() {
            let expected = "advantage.estimator takes no greedy rewards: only remax does";
            return Err(Argument::Combination { argument: "greedy rewards", expected }.into());
        }
        crate::batch::check_length("greedy rewards", batch.groups(), "one per group", greedy.len())?;
        ops::locate::each_finite("greedy rewards", greedy)?;
        let returns = ops::discounted_return(device, batch, token_rewards, 1.0)?;
        let limit = self.advantage.limit.map_or(f32::INFINITY, |limit| limit as f32);
        let mut advantage = vec![0.0; returns.len()];
        for (group, greedy) in greedy.iter().enumerate() {
            let sequences = batch.cu_groups().span(group);
            for sequence in sequences.start..sequences.end {
                let tokens = batch.cu_seqlens().span(sequence);
                let live = (tokens.start..tokens.end).filter(|i| batch.loss_mask().at(*i));
                live.for_each(|i| advantage[i] = (returns[i] - greedy).clamp(-limit, limit));
            }
        }
        let advantage = self.whitened(device, batch, advantage.into())?;
        Ok(TokenAdvantages { advantage, returns })
    }
}

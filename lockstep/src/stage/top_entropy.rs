//! The tokens with the largest entropies, as a mask.

use super::reward::needed;
use crate::ops::locate;
use crate::ops::select::{Candidates, Pick, select, top_quantile, torch_quantile};
use crate::recipe::{EntropyTokens, GateChoice, QuantileRule, Recipe};
use crate::{Batch, Device, Error, Rollouts};
use lockstep_core::check::Domain;

impl Recipe {
    /// The live tokens that `mask.top_entropy` keeps, `[N]`, if they are needed as a mask: for `torch`'s
    /// rule, for GMPO, which excludes the other tokens, and for an entropy bonus over these tokens only.
    /// `None` otherwise, when the weights are made from the selection itself.
    pub(super) fn kept_tokens(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(top) = self.mask.top_entropy else { return Ok(None) };
        let rule = self.mask.quantile;
        let gmpo = matches!(self.gate, GateChoice::Gmpo { .. });
        let bonus = self.entropy.is_some_and(|entropy| entropy.of == EntropyTokens::Kept);
        if rule == QuantileRule::Count && !gmpo && !bonus {
            return Ok(None);
        }
        let entropy = finite_entropy(batch, rollouts)?;
        let live = |i: usize| batch.loss_mask().at(i);
        if rule == QuantileRule::Count {
            let n = top_quantile(top, batch.counts(device)?.tokens)?;
            let selection = select(device, batch, &Candidates::largest(entropy), n)?;
            let (chosen, _) = selection.choose(device, batch, Pick::All(1.0), Pick::All(0.0))?;
            return Ok(Some(chosen.into_iter().map(|x| u8::from(x != 0.0)).collect()));
        }
        let mut values: Vec<f32> = (0..batch.tokens()).filter(|i| live(*i)).map(|i| entropy[i]).collect();
        let Some(least) = torch_quantile(&mut values, (1.0 - top) as f32) else {
            return Ok(Some(vec![0; batch.tokens()]));
        };
        Ok(Some((0..batch.tokens()).map(|i| u8::from(live(i) && entropy[i] >= least)).collect()))
    }
}

/// The entropies, finite where a token is live.
pub(super) fn finite_entropy<'a>(batch: &Batch<'_>, rollouts: &Rollouts<'a>) -> Result<&'a [f32], Error> {
    let entropy = needed(rollouts.entropy, "entropy")?;
    locate::live(batch, "entropy", entropy, Domain::Finite)?;
    Ok(entropy)
}

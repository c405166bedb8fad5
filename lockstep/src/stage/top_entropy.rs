//! The tokens with the largest entropies, as a mask.

use super::reward::needed;
use crate::ops::locate;
use crate::ops::select::{Candidates, Pick, select, top_quantile};
use crate::recipe::{EntropyTokens, GateChoice, QuantileRule, Recipe};
use crate::{Batch, Device, Error, Rollouts};

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
        let entropy = needed(rollouts.entropy, "entropy")?;
        let live = |i: usize| batch.loss_mask().at(i);
        let finite = |i: usize, x: f32| !live(i) || x.is_finite();
        locate::each("entropy", entropy, "a finite number", finite)?;
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

/// `torch.quantile` of finite binary32 numbers, which are reordered: interpolates between two order
/// statistics, with every step in binary32. `None` without numbers.
fn torch_quantile(values: &mut [f32], q: f32) -> Option<f32> {
    let last = values.len().checked_sub(1)?;
    let rank = q * last as f32;
    // With more than 2²⁴ values the rank is rounded, but never beyond the last.
    let below = (rank as usize).min(last);
    let above = (rank.ceil() as usize).min(last);
    let weight = rank - below as f32;
    let (_, a, rest) = values.select_nth_unstable_by(below, f32::total_cmp);
    let a = *a;
    let b = if above > below { rest.iter().copied().min_by(f32::total_cmp).unwrap_or(a) } else { a };
    Some(if weight < 0.5 { a + weight * (b - a) } else { b - (b - a) * (1.0 - weight) })
}

#[cfg(test)]
mod tests {
    use super::torch_quantile;

    #[test]
    fn a_quantile_is_torchs() {
        let of = |values: &[f32], q: f32| torch_quantile(&mut values.to_vec(), q);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[3.0], 0.9), Some(3.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0], 0.0), Some(1.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0], 1.0), Some(4.0));
        // Rank 0.75: 4 - (4 - 1)·0.25.
        assert_eq!(of(&[4.0, 1.0], 0.75), Some(3.25));
        // Rank 0.25.
        assert_eq!(of(&[4.0, 1.0], 0.25), Some(1.75));
        // 1 - 0.7 is 0.30000000000000004, times 10 more than 3; as binary32 it is 3.
        let eleven: Vec<f32> = (0..11u8).map(f32::from).collect();
        assert_eq!(of(&eleven, (1.0 - 0.7) as f32), Some(3.0));
    }
}

//! The entropy stage of a recipe. It aggregates the entropies; its coefficients are for `logits_gradient`.

use super::naming::Naming;
use super::reward::needed;
use super::shared_ratio::live;
use crate::loss::EntropyTerm;
use crate::ops::aggregate::{aggregate, fold_rows};
use crate::recipe::{CountsOf, EntropyTokens, Recipe};
use crate::{Advantage, Batch, Counts, Credit, Device, Error, PolicyOutput, Rollouts};

impl Recipe {
    /// Adds the entropy term, if the recipe has one; `kept` are the tokens that `mask.top_entropy` keeps, if
    /// any, and `credit` has the advantages.
    pub(super) fn add_entropy(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        (rollouts, kept, credit): (&Rollouts<'_>, Option<&[u8]>, &Credit),
        counts: Counts,
        out: &mut PolicyOutput,
    ) -> Result<Option<EntropyTerm>, Error> {
        let Some(choice) = self.entropy else { return Ok(None) };
        let entropy = needed(rollouts.entropy, "entropy")?;
        let positive;
        let batch = &match (choice.of, kept) {
            (EntropyTokens::Kept, Some(kept)) => batch.with_mask(kept)?,
            (EntropyTokens::Positive, _) => {
                positive = positive_tokens(batch, credit.advantages());
                batch.with_mask(&positive)?
            }
            _ => *batch,
        };
        let counts = match choice.over {
            CountsOf::Batch => counts,
            CountsOf::Call => batch.counts(device)?,
        };
        let weight = choice.aggregation.unwrap_or(self.aggregation).weight_in(batch, counts);
        let aggregated = aggregate(device, batch, entropy, &weight).naming(&[("values", "entropy")])?;
        let mut coef = vec![0.0; batch.tokens()];
        for (sequence, length) in aggregated.row_tokens.iter().enumerate() {
            let own = -(f64::from(choice.coef) * weight.of(u64::from(*length))) as f32;
            live(batch, sequence).for_each(|i| coef[i] = own);
        }
        if out.loss.is_some() {
            let rows = aggregated.row_sum.iter().zip(&aggregated.row_tokens);
            for (loss, (sum, length)) in out.row_loss.iter_mut().zip(rows) {
                *loss -= f64::from(choice.coef) * (weight.of(u64::from(*length)) * sum);
            }
            out.loss = Some(fold_rows(device, &out.row_loss, batch.sequences())?[0]);
        }
        let loss = -(f64::from(choice.coef) * aggregated.value);
        Ok(Some(EntropyTerm { loss, entropy: aggregated.value, coef }))
    }
}

/// The live tokens whose advantage is positive, `[N]`.
fn positive_tokens(batch: &Batch<'_>, advantage: Advantage<'_>) -> Vec<u8> {
    let mut positive = vec![0; batch.tokens()];
    for sequence in 0..batch.sequences() {
        for i in live(batch, sequence) {
            let advantage = match advantage {
                Advantage::PerSequence(of) => of[sequence],
                Advantage::PerToken(of) => of[i],
            };
            positive[i] = u8::from(advantage > 0.0);
        }
    }
    positive
}

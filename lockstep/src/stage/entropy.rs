//! The entropy stage of a recipe: a composition of `aggregate` and `logits_gradient`.

use super::Recipe;
use crate::ops::aggregate;
use crate::{Batch, Counts, Device, Error};

/// The entropy term of a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EntropyTerm {
    /// −coef·agg(H), to be added to the policy loss.
    pub loss: f64,
    /// agg(H), what a trainer logs.
    pub entropy: f64,
    /// dL/dH = −coef·W of each token, `[N]`; 0 where masked. What `logits_gradient` takes.
    pub coef: Vec<f32>,
}

impl Recipe {
    /// The entropy term for the `entropy` `[N]` of each token, by the aggregation of the policy loss. `counts` are those of the
    /// *whole* batch when this is a part of it.
    ///
    /// Errors: a recipe without an `[entropy]` stage; lengths that disagree; a live entropy that is not finite (index).
    ///
    /// ```
    /// use lockstep::{Batch, Device, Recipe};
    /// let recipe = Recipe::from_toml("[entropy]\ncoef = 0.5\n[aggregation]\nmode = \"token-mean\"\n")?;
    /// let batch = Batch::new(&[0, 3], &[0, 1], Some(&[1, 0, 1]))?;
    /// let term = recipe.entropy_term(&Device::cpu(), &batch, &[1.0, f32::NAN, 3.0], None)?;
    /// assert_eq!((term.loss, term.entropy, term.coef), (-1.0, 2.0, vec![-0.25, 0.0, -0.25]));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn entropy_term(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        entropy: &[f32],
        counts: Option<Counts>,
    ) -> Result<EntropyTerm, Error> {
        self.check()?;
        let Some(choice) = self.entropy else {
            return Err(Error::Recipe("no [entropy] stage: an entropy term needs one".into()));
        };
        let counts = match counts {
            Some(counts) => counts,
            None => batch.counts(device)?,
        };
        let weight = self.aggregation.weight_in(batch, counts);
        let aggregated = aggregate(device, batch, entropy, &weight)?;
        let mut coef = vec![0.0; batch.tokens()];
        for (sequence, length) in aggregated.row_tokens.iter().enumerate() {
            let own = -(f64::from(choice.coef) * weight.of(u64::from(*length))) as f32;
            let span = batch.cu_seqlens().span(sequence);
            (span.start..span.end).filter(|i| batch.loss_mask().at(*i)).for_each(|i| coef[i] = own);
        }
        let loss = -(f64::from(choice.coef) * aggregated.value);
        Ok(EntropyTerm { loss, entropy: aggregated.value, coef })
    }
}

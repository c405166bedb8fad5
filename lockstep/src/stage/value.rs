//! The value stage of a recipe, and the checks of aggregations.

use super::reward::needed;
use crate::ops::value_loss::{ValueInput, ValueOutput, value_loss_into};
use crate::recipe::{Aggregation, AggregationMode, EmptySequence, Horizon, Recipe, ValueChoice, ensure};
use crate::{Batch, Counts, Credit, Device, Error, Rollouts};
use lockstep_core::aggregate::Weight;

impl Aggregation {
    /// Errors unless the horizon is given, and is a valid number, exactly if it is needed; `stage` is the
    /// TOML path for the message.
    pub(crate) fn check(&self, stage: &str) -> Result<(), Error> {
        let message = match (self.mode, self.horizon) {
            (AggregationMode::SeqMeanTokenSumNorm, None) => format!(
                "{stage}.mode seq-mean-token-sum-norm needs {stage}.horizon, its constant C in tokens \
                 or \"longest\""
            ),
            (AggregationMode::SeqMeanTokenSumNorm, Some(Horizon::Tokens(c)))
                if !(c > 0.0 && c.is_finite()) =>
            {
                format!("{stage}.horizon is {c}: expected a positive finite number")
            }
            (AggregationMode::SeqMeanTokenSumNorm, Some(_)) | (_, None) => return Ok(()),
            (_, Some(_)) => format!("{stage}.horizon is used by seq-mean-token-sum-norm only"),
        };
        Err(Error::Recipe(message))
    }

    /// Like `check`, for a term without a ratio, to which an empty sequence adds nothing.
    pub(crate) fn check_plain(&self, stage: &str) -> Result<(), Error> {
        self.check(stage)?;
        let nothing = self.empty == EmptySequence::Nothing;
        ensure!(nothing, "{stage}.empty one is for the policy term only: set it in [aggregation]");
        Ok(())
    }
}

impl ValueChoice {
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.aggregation.check_plain("value.aggregation")?;
        ensure!(self.coef.is_finite(), "value.coef is {}: expected a finite number", self.coef);
        for (name, bound) in [("cliprange_value", self.cliprange_value), ("huber_delta", self.huber_delta)] {
            let Some(bound) = bound else { continue };
            ensure!(bound > 0.0, "value.{name} is {bound}: expected a positive number");
        }
        Ok(())
    }
}

impl Recipe {
    /// Computes the loss of the critic and dL/dV, if the recipe has one.
    pub(super) fn value_loss(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        (rollouts, credit): (&Rollouts<'_>, &Credit),
        counts: Counts,
        token_loss: bool,
        spare: Option<ValueOutput>,
    ) -> Result<Option<ValueOutput>, Error> {
        let Some(value) = &self.value else { return Ok(None) };
        let weight = Weight { scale: value.coef, ..value.aggregation.weight_in(batch, counts) };
        let input = ValueInput {
            values: needed(rollouts.values, "values")?,
            values_old: rollouts.values_old,
            // A part without tokens has empty returns.
            returns: if batch.tokens() == 0 { &[] } else { credit.needed_returns()? },
            huber_delta: value.huber_delta,
        };
        let range = value.cliprange_value.unwrap_or(f32::INFINITY);
        let mut out = spare.unwrap_or_default();
        value_loss_into(device, batch, &input, range, &weight, token_loss, &mut out)?;
        Ok(Some(out))
    }
}

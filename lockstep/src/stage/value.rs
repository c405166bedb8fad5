//! The value stage of a recipe, and what aggregations must satisfy.

use super::{Aggregation, AggregationMode, Recipe, ValueChoice};
use crate::ops::value_loss::{ValueInput, ValueOutput, value_loss};
use crate::{Batch, Counts, Device, Error};

impl Aggregation {
    /// Whether the horizon is there, and a number, exactly where it is needed; `stage` is the TOML path for the message.
    pub(super) fn check(&self, stage: &str) -> Result<(), Error> {
        let message = match (self.mode, self.horizon) {
            (AggregationMode::SeqMeanTokenSumNorm, None) => format!(
                "{stage}.mode seq-mean-token-sum-norm needs {stage}.horizon, its constant C in tokens"
            ),
            (AggregationMode::SeqMeanTokenSumNorm, Some(c)) if !(c > 0.0 && c.is_finite()) => {
                format!("{stage}.horizon is {c}: expected a positive finite number")
            }
            (AggregationMode::SeqMeanTokenSumNorm, Some(_)) | (_, None) => return Ok(()),
            (_, Some(_)) => format!("{stage}.horizon is used by seq-mean-token-sum-norm only"),
        };
        Err(Error::Recipe(message))
    }
}

impl ValueChoice {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.aggregation.check("value.aggregation")?;
        if !self.coef.is_finite() {
            return Err(Error::Recipe(format!("value.coef is {}: expected a finite number", self.coef)));
        }
        match self.cliprange_value {
            Some(range) if range.is_nan() || range <= 0.0 => {
                Err(Error::Recipe(format!("value.cliprange_value is {range}: expected a positive number")))
            }
            _ => Ok(()),
        }
    }
}

impl Recipe {
    /// Loss of the critic and dL/dV; `counts` are those of the *whole* batch when this is a part of it.
    ///
    /// Errors: a recipe without a `[value]` stage; those of [`value_loss`].
    ///
    /// ```
    /// use lockstep::{Batch, Device, Recipe, ops::value_loss::ValueInput};
    /// let recipe = Recipe::from_toml("[value]\ncliprange_value = 0.5\n")?;
    /// let batch = Batch::new(&[0, 2], &[0, 1], None)?;
    /// let input = ValueInput { values: &[1.0, 2.0], values_old: Some(&[1.0, 3.0]), returns: &[0.0, 1.0] };
    /// let out = recipe.value_loss(&Device::cpu(), &batch, &input, None)?;
    /// assert_eq!((out.gradient, out.loss), (vec![0.5, 0.0], 0.8125));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn value_loss(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &ValueInput<'_>,
        counts: Option<Counts>,
    ) -> Result<ValueOutput, Error> {
        self.check()?;
        let Some(value) = &self.value else {
            return Err(Error::Recipe("no [value] stage: a critic's loss needs one".into()));
        };
        let counts = match counts {
            Some(counts) => counts,
            None => batch.counts(device)?,
        };
        let weight = value.aggregation.weight_in(batch, counts);
        let weight = lockstep_core::aggregate::Weight { scale: value.coef, ..weight };
        value_loss(device, batch, input, value.cliprange_value.unwrap_or(f32::INFINITY), &weight)
    }
}

//! The golden op `value_loss`.

use super::compare::Compared;
use super::config::Config;
use super::expected::Expected;
use super::format::Case;
use super::run::{floats, text, widen};
use lockstep::ops::value_loss::ValueInput;
use lockstep::recipe::{Aggregation, AggregationMode, ValueChoice};
use lockstep::{Batch, Device, Recipe};

pub(super) fn value_loss(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let range = config.number("cliprange_value")?.unwrap_or(0.5);
    let mode = match config.text("aggregation")?.unwrap_or("token-mean") {
        "token-mean" => AggregationMode::TokenMean,
        "seq-mean-token-mean" => AggregationMode::SeqMeanTokenMean,
        other => return Err(format!("aggregation `{other}` is not known")),
    };
    config.finish()?;
    let value = ValueChoice {
        cliprange_value: Some(range as f32),
        aggregation: Aggregation { mode, ..Aggregation::default() },
        ..ValueChoice::default()
    };
    let recipe = Recipe::builder("golden").value(value).build().map_err(text)?;
    let values = floats("value_new", &case.inputs.value_new)?;
    let old = floats("value_old", &case.inputs.value_old)?;
    let returns = floats("returns", &case.inputs.returns)?;
    let input = ValueInput { values: &values, values_old: Some(&old), returns: &returns };
    let out = recipe.value_loss(device, batch, &input, None).map_err(text)?;
    let mut expected = Expected::new(&case.expected, batch);
    expected.array("dloss_dvalue", &widen(&out.gradient))?;
    // A sum of squares does not cancel.
    expected.scalar("loss", out.loss, 0.0)?;
    expected.scalar("clipfrac", out.clip_fraction, 0.0)?;
    expected.finish(&["dloss_dvalue", "loss", "clipfrac"])
}

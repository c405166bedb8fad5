//! DOTS: predicted difficulty and how likely a prompt is selected.

use crate::inputs::Inputs;
use crate::numbers::Got;
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::Plan;
use lockstep::Device;
use lockstep::schedule::{calibrate, dots_difficulty};
use serde_json::Value;

/// The ops of the table.
pub(crate) fn ops() -> Vec<&'static str> {
    vec!["difficulty_prediction", "selection_probabilities"]
}

/// What the table says of a case.
pub(crate) fn read(
    op: &str,
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    _: &Device,
) -> Result<Plan, String> {
    if op == "selection_probabilities" {
        return Ok(Plan::Missing(
            "DOTS's selection probabilities: the prompts drawn are all that comes back",
        ));
    }
    let scaling = config.text("scaling")?.ok_or("config `scaling` is missing")?;
    let temperature = config.number("tau")?.unwrap_or(1.0);
    let nearest = config.number("top_k")?.map(|k| k as usize);
    let calibration = match scaling {
        "plain" => None,
        "group_logit_temp" => Some([inputs.numbers("calibration_a")?, inputs.numbers("calibration_b")?]),
        "temperature" | "platt" => {
            return Ok(Plan::Missing("DOTS's calibration by one temperature, or by a slope and a shift"));
        }
        other => return Err(format!("config `scaling` is {other:?}")),
    };
    let (queries, rates) = (inputs.rows("query")?, inputs.rows("reference_pass_rate")?);
    let references = inputs.value("reference")?.as_array().ok_or("`reference` is not a list")?;
    let (mut base, mut predicted) = (Vec::new(), Vec::new());
    for (i, ((query, references), rates)) in queries.iter().zip(references).zip(&rates).enumerate() {
        let own = predict(query, &embeddings(references)?, rates, temperature, nearest)?;
        base.push(own);
        predicted.push(calibration.as_ref().map_or(own, |[a, b]| calibrate(own, a[i], b[i])));
    }
    let got = vec![("base", Got::All(base)), ("predicted", Got::All(predicted))];
    Ok(Plan::Numbers("schedule::dots_select", got))
}

fn embeddings(references: &Value) -> Result<Vec<Vec<f64>>, String> {
    let rows = references.as_array().ok_or("`reference` is not a list of tables")?;
    let numbers = |row: &Value| row.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
    rows.iter().map(|row| numbers(row).ok_or_else(|| "`reference` is not of numbers".into())).collect()
}

/// With `nearest`, from as many references, those with the most attention.
fn predict(
    query: &[f64],
    references: &[Vec<f64>],
    rates: &[f64],
    temperature: f64,
    nearest: Option<usize>,
) -> Result<f64, String> {
    let of = |which: &[usize]| {
        let flat: Vec<f64> = which.iter().flat_map(|k| &references[*k]).copied().collect();
        let rates: Vec<f64> = which.iter().map(|k| rates[*k]).collect();
        dots_difficulty(query, &flat, &rates, temperature).map_err(text)
    };
    let mut which: Vec<usize> = (0..rates.len()).collect();
    let all = of(&which)?;
    let Some(nearest) = nearest.filter(|nearest| *nearest < rates.len()) else { return Ok(all.base) };
    which.sort_by(|a, b| all.weights[*b].total_cmp(&all.weights[*a]));
    Ok(of(&which[..nearest])?.base)
}

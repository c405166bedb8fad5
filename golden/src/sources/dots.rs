//! DOTS: predicted difficulty, and the probability that a prompt is selected.

use crate::numbers::Got;
use crate::outcome::text;
use crate::sources::{Plan, Request};
use lockstep::schedule::{calibrate, dots_difficulty};
use lockstep::schedules::dots;
use serde_json::Value;

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["difficulty_prediction", "selection_probabilities"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    if op == "selection_probabilities" {
        let target = config.required("alpha")?;
        let temperature = config.required("tau")?;
        let predicted = inputs.numbers("predicted")?;
        let mut p = vec![0.0; predicted.len()];
        dots::probabilities(&predicted, target, temperature, &mut p).map_err(|e| e.to_string())?;
        return Ok(Plan::Numbers("schedule::dots_select", vec![("probabilities", Got::All(p))], None));
    }
    let scaling = config.required_text("scaling")?;
    let temperature = config.number("tau")?.unwrap_or(1.0);
    let nearest = config.number("top_k")?.map(|k| k as usize);
    let calibration = match scaling {
        "plain" | "temperature" | "platt" => None,
        "group_logit_temp" => Some([inputs.numbers("calibration_a")?, inputs.numbers("calibration_b")?]),
        other => return Err(format!("config `scaling` is {other:?}")),
    };
    let one = |name: &str| inputs.numbers(name).map(|numbers| numbers[0]);
    let platt = match scaling {
        "temperature" => Some([1.0 / one("scale")?, 0.0]),
        "platt" => Some([one("scale")?, one("res_scale")?]),
        _ => None,
    };
    let (queries, rates) = (inputs.rows("query")?, inputs.rows("reference_pass_rate")?);
    let references = inputs.value("reference")?.as_array().ok_or("`reference` is not a list")?;
    let (mut base, mut predicted) = (Vec::new(), Vec::new());
    for (i, ((query, references), rates)) in queries.iter().zip(references).zip(&rates).enumerate() {
        let own = predict(query, &embeddings(references)?, rates, temperature, nearest)?;
        base.push(own);
        predicted.push(match (&calibration, platt) {
            (Some([a, b]), _) => calibrate(own, a[i], b[i]),
            (None, Some([slope, shift])) => dots::calibrate_platt(own, slope, shift),
            (None, None) => own,
        });
    }
    let got = vec![("base", Got::All(base)), ("predicted", Got::All(predicted))];
    Ok(Plan::Numbers("schedule::dots_select", got, None))
}

fn embeddings(references: &Value) -> Result<Vec<Vec<f64>>, String> {
    let rows = references.as_array().ok_or("`reference` is not a list of tables")?;
    let numbers = |row: &Value| row.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
    rows.iter().map(|row| numbers(row).ok_or_else(|| "`reference` is not of numbers".into())).collect()
}

/// With `nearest`, uses that many references, those with the most attention.
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

//! MASA's reward for a prediction about the model's own rollouts.

use crate::numbers::Got;
use crate::sources::{Plan, Request};
use lockstep::schedule::masa;
use serde_json::{Map, Value};

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["reward_meta"];

/// Translates a case into a plan. A missing prediction scores 0.
pub(crate) fn read(Request { inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    let object = |name: &str| inputs.value(name)?.as_object().ok_or(format!("`{name}` is not an object"));
    let (said, truth) = (object("prediction")?, object("ground_truth")?);
    let problem = truth["problem"].as_str().ok_or("`problem` is not a text")?;
    let responses = list(truth, "response", Value::as_str)?;
    let scores = list(truth, "score", Value::as_u64)?;
    let lengths = list(truth, "length", Value::as_u64)?;

    let notions = said.get("math_notion").map_or_else(Vec::new, notions);
    let of = |score: u64| responses.iter().zip(&scores).filter(move |(_, own)| **own == score);
    let occurs = |notion: &String, score| of(score).filter(|(text, _)| text.contains(notion)).count() as u32;
    let right: Vec<u32> = notions.iter().map(|notion| occurs(notion, 1)).collect();
    let wrong: Vec<u32> = notions.iter().map(|notion| occurs(notion, 0)).collect();
    let known: Vec<bool> = notions.iter().map(|notion| problem.contains(notion)).collect();
    let notion = masa::notion_score(&right, &wrong, &known).map_err(|e| e.to_string())?;

    let of_right = lengths.iter().zip(&scores).filter(|(_, score)| **score == 1);
    let of_right: Vec<u32> = of_right.map(|(length, _)| *length as u32).collect();
    let length = said.get("solution_length").and_then(Value::as_i64);
    let length = length.map_or(0.0, |length| masa::length_score(length.max(0) as u32, &of_right));

    let accuracy = scores.iter().sum::<u64>() as f64 / scores.len().max(1) as f64;
    let difficulty = match said.get("pass_rate").and_then(Value::as_i64) {
        None => 0.0,
        Some(passes) => match u32::try_from(passes) {
            Ok(passes) if passes <= masa::ATTEMPTS => {
                masa::difficulty_score(passes, accuracy).map_err(|e| e.to_string())?
            }
            _ => return Ok(Plan::Missing("MASA's score of predicted passes outside of 0 to 8")),
        },
    };
    let all = masa::reward(notion, length, difficulty);
    let names = ["score", "notion_score", "pred_acc_score", "length_score"];
    let got = names.into_iter().zip([all, notion, difficulty, length]);
    Ok(Plan::Numbers("schedule::masa", got.map(|(name, x)| (name, Got::Number(x, 0.0))).collect(), None))
}

fn list<'a, T>(
    of: &'a Map<String, Value>,
    name: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Vec<T>, String> {
    let values = of[name].as_array().and_then(|values| values.iter().map(read).collect());
    values.ok_or_else(|| format!("`{name}` is not a list of its kind"))
}

/// The distinct notions, from a list or from comma-separated text.
fn notions(said: &Value) -> Vec<String> {
    let each: Vec<&str> = match said {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        Value::String(text) if text.contains(',') => {
            text.split(',').map(|notion| notion.trim().trim_matches(['[', ']'])).collect()
        }
        Value::String(text) => vec![text],
        _ => Vec::new(),
    };
    let mut out: Vec<String> = Vec::new();
    for notion in each.into_iter().map(singular) {
        if !out.contains(&notion) {
            out.push(notion);
        }
    }
    out
}

/// The singular of a word, by the code's rule.
fn singular(word: &str) -> String {
    let lower = word.to_lowercase();
    let ends = |with: &[&str]| with.iter().any(|end| lower.ends_with(end));
    let but = |last: usize| word.chars().take(word.chars().count() - last).collect::<String>();
    match () {
        () if lower == "series" => word.into(),
        () if ends(&["ies"]) => but(3) + "y",
        () if ends(&["ches", "shes", "xes", "zes", "oes"]) => but(2),
        () if ends(&["s"]) && !ends(&["ss"]) => but(1),
        () => word.into(),
    }
}

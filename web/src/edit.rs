//! A named recipe with some of its numbers changed by sliders.

use crate::{Error, snippet};
use lockstep::Recipe;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The stages whose numbers have sliders: those that the plots show.
const STAGES: [&str; 9] =
    ["reward", "advantage", "ratio", "correction", "mask", "gate", "kl", "entropy", "value"];

/// A recipe, and numbers that replace its own, by path: `gate.clip_ratio_high`, `correction.reject.0.high`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edited {
    recipe: String,
    #[serde(default)]
    set: BTreeMap<String, f64>,
}

/// A number of a recipe.
#[derive(Debug, Serialize)]
pub(crate) struct Number {
    path: String,
    value: f64,
    /// The ends of its slider.
    range: [f64; 2],
    whole: bool,
}

/// What sliders and the text to copy show.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    numbers: Vec<Number>,
    toml: String,
    python: String,
    rust: String,
}

impl Edited {
    /// The recipe. Errors: an unknown name or path; what [`Recipe::from_toml`] refuses.
    pub(crate) fn recipe(&self) -> Result<Recipe, Error> {
        let named = Recipe::named(&self.recipe)?;
        if self.set.is_empty() {
            return Ok(named);
        }
        let mut table: Table = toml::from_str(&named.to_toml()?)?;
        for (path, number) in &self.set {
            put(&mut table, path, *number)?;
        }
        Ok(Recipe::from_toml(&toml::to_string(&table)?)?)
    }

    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let recipe = self.recipe()?;
        let toml = recipe.to_toml()?;
        let table: Table = toml::from_str(&toml)?;
        let mut found = Vec::new();
        for stage in STAGES {
            table.get(stage).into_iter().for_each(|value| leaves(stage.to_owned(), value, &mut found));
        }
        // The first of these ends that the recipe takes.
        let end = |path: &str, value: f64, ends: [f64; 2]| {
            let takes = |end: &f64| {
                let mut other = table.clone();
                put(&mut other, path, *end).is_ok()
                    && toml::to_string(&other).is_ok_and(|text| Recipe::from_toml(&text).is_ok())
            };
            ends.into_iter().find(takes).unwrap_or(value)
        };
        let number = |(path, value, whole): (String, f64, bool)| {
            let (near, far) = (
                end(&path, value, [0.0, if whole { (value / 10.0).floor() } else { value / 10.0 }]),
                if value == 0.0 { 1.0 } else { 3.0 * value },
            );
            let far = end(&path, value, [far, value.signum()]);
            Number { range: [near.min(far), near.max(far)], path, value, whole }
        };
        let numbers =
            found.into_iter().map(number).filter(|number| number.range[0] < number.range[1]).collect();
        let changed = !self.set.is_empty();
        let [python, rust] = [snippet::python, snippet::rust].map(|text| text(&recipe, changed));
        Ok(Settings { numbers, toml, python, rust })
    }
}

/// Collects the finite numbers below a value.
fn leaves(path: String, value: &Value, found: &mut Vec<(String, f64, bool)>) {
    match value {
        Value::Float(x) if x.is_finite() => found.push((path, *x, false)),
        Value::Integer(x) => found.push((path, *x as f64, true)),
        Value::Table(table) => {
            table.iter().for_each(|(key, value)| leaves(format!("{path}.{key}"), value, found))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| leaves(format!("{path}.{i}"), value, found));
        }
        _ => {}
    }
}

fn put(table: &mut Table, path: &str, number: f64) -> Result<(), Error> {
    let mut parts = path.split('.');
    let mut at = parts.next().and_then(|first| table.get_mut(first));
    for part in parts {
        at = at.and_then(|value| match value {
            Value::Table(table) => table.get_mut(part),
            Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
            _ => None,
        });
    }
    match at {
        Some(Value::Float(x)) => *x = number,
        Some(Value::Integer(x)) if number.fract() == 0.0 && number.abs() < 9e15 => *x = number as i64,
        Some(Value::Integer(_)) => return Err(format!("{path} is {number}: expected a whole number").into()),
        _ => return Err(format!("the recipe has no number {path}").into()),
    }
    Ok(())
}

//! Describes what a recipe does: `lockstep explain`.

use std::fmt::Write;

use anyhow::Result;
use lockstep::plan::{Calls, Capacity};
use lockstep::{Call, Column, Device, Outputs, Recipe, recipe as recipes, synthetic};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::formulas;

/// The stages in the order in which data passes through them.
const ORDER: [&str; 11] = [
    "reward",
    "correction",
    "advantage",
    "ratio",
    "mask",
    "gate",
    "kl",
    "entropy",
    "value",
    "aggregation",
    "metrics",
];

/// Describes a recipe: its source and evidence, its stages with their formulas, the columns that each call
/// reads, the outputs of both, the duties of the training loop, and the launches on a GPU. A recipe that the
/// calls refuse is an error.
pub fn explain(recipe: &Recipe) -> Result<String> {
    let mut out = head(recipe);
    out += &stages_text(recipe)?;
    out += &columns(recipe);
    out += &outputs(recipe)?;
    out += &duties(recipe);
    out += &launches(recipe)?;
    Ok(out)
}

/// Name, source and evidence. A file that keeps a named recipe's name but changes its choices has no source
/// and no evidence.
fn head(recipe: &Recipe) -> String {
    let own = recipes::entries().iter().find(|entry| entry.name == recipe.name);
    let own = own.filter(|entry| Recipe::named(&entry.name).is_ok_and(|named| named == *recipe));
    match own {
        None => format!("{}\n", recipe.name),
        Some(entry) => {
            let extends = entry.extends.as_ref().map_or(String::new(), |base| format!("; extends {base}"));
            let (name, what) = (&entry.name, &entry.what);
            let evidence = crate::evidence(name, entry.confidence);
            format!("{name}: {what}\nsource: {}; evidence: {evidence}{extends}\n", entry.source)
        }
    }
}

/// A stage of a recipe, or a choice within one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stage {
    /// `gate`; `reward.shaping`.
    pub name: String,
    /// Its settings, in words; empty if it has none of its own.
    pub settings: String,
    /// What it computes, one line for each choice.
    pub formulas: Vec<&'static str>,
}

/// Lists the stages of a recipe in the order in which data passes through them. Errors: those of serialising
/// the recipe.
pub fn stages(recipe: &Recipe) -> Result<Vec<Stage>> {
    let mut out = Vec::new();
    let Value::Object(mut tables) = toml::from_str(&recipe.to_toml()?)? else { return Ok(out) };
    for stage in ORDER {
        let Some(Value::Object(settings)) = tables.remove(stage) else { continue };
        let (inner, own): (Vec<_>, Vec<_>) = settings.iter().partition(|(_, value)| value.is_object());
        let of = |name: &str, said: Vec<(&String, &Value)>, settings| Stage {
            name: name.to_owned(),
            settings: said.iter().map(|(key, value)| setting(key, value)).collect::<Vec<_>>().join(", "),
            formulas: formulas::of(name, settings),
        };
        let whole = of(stage, own, &settings);
        if !(whole.settings.is_empty() && whole.formulas.is_empty()) {
            out.push(whole);
        }
        for (key, value) in inner {
            let Value::Object(settings) = value else { continue };
            out.push(of(&format!("{stage}.{key}"), settings.iter().collect(), settings));
        }
    }
    Ok(out)
}

/// Every stage with its settings, and its formulas below.
fn stages_text(recipe: &Recipe) -> Result<String> {
    let mut out = String::from("\nStages\n");
    for Stage { name, settings, formulas } in stages(recipe)? {
        let mut name = name.as_str();
        for line in [settings.as_str()].into_iter().filter(|line| !line.is_empty()).chain(formulas) {
            let _ = writeln!(out, "  {name:<18} {line}");
            name = "";
        }
    }
    Ok(out)
}

fn setting(key: &str, value: &Value) -> String {
    format!("{key} {}", text(value))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => n.as_f64().unwrap_or(f64::NAN).to_string(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(" to "),
        Value::Object(fields) => fields.iter().map(|(k, v)| setting(k, v)).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// The columns that each call reads.
fn columns(recipe: &Recipe) -> String {
    let mut out = String::from("\nColumns\n");
    let needs = recipe.needs();
    for (call, name) in [(Call::Advantages, "advantages"), (Call::Loss, "loss")] {
        for need in needs.iter().filter(|need| need.call == call) {
            let or = need.or.map_or(String::new(), |or| format!(" or {}", or.name()));
            let column: Column = need.column;
            let required = if need.required { "required" } else { "optional" };
            let shape = column.shape().name();
            let what = column.name().to_owned() + &or;
            let _ = writeln!(
                out,
                "  {name:<11} {required} {what:<32} {:<4} {shape:<7} for {}: {}",
                column.element().name(),
                need.stage,
                column.meaning()
            );
        }
    }
    out
}

/// The outputs of both calls, found by running them on random rollouts.
fn outputs(recipe: &Recipe) -> Result<String> {
    let (credit, loss) = recipe.step(&Device::cpu(), &synthetic::rollouts(recipe, 8, 64, 1)?.view())?;
    let mut out = String::from("\nOutputs\n");
    let mut say = |there: bool, name: &str, shape: &str, what: &str| {
        if there {
            let _ = writeln!(out, "  {name:<18} {shape:<4} {what}");
        }
    };
    let shape = if credit.per_token { "[N]" } else { "[S]" };
    say(true, "advantage", shape, if credit.per_token { "one per token" } else { "one per response" });
    say(!credit.returns.is_empty(), "returns", "[N]", "what a critic learns");
    say(!credit.keep.is_empty(), "keep", "[S]", "1: the filter leaves the response in");
    say(credit.loss_mask.is_some(), "loss_mask", "[N]", "what filter and rejection left of the loss mask");
    say(credit.weights.is_some(), "weights", "[N]", "of the rollout correction");
    say(
        !credit.state.role_values.is_empty(),
        "state.role_values",
        "[P]",
        "column role_values of the next batch",
    );
    say(true, "loss", "[1]", "policy, KL and entropy terms");
    say(true, "coef", "[N]", "dL/dlogp");
    say(loss.entropy.is_some(), "entropy.coef", "[N]", "dL/dentropy");
    say(loss.value.is_some(), "value.gradient", "[N]", "dL/dvalue");
    Ok(out)
}

/// What the training loop has to do.
fn duties(recipe: &Recipe) -> String {
    let duties = recipe.duties();
    if duties.is_empty() {
        return "\nDuties of the training loop: none\n".to_owned();
    }
    let each = duties.iter().map(|duty| format!("  {:<20} {}\n", duty.name(), duty.meaning()));
    "\nDuties of the training loop\n".to_owned() + &each.collect::<String>()
}

/// The launches of both calls on a device, with loss, gradients and metrics.
fn launches(recipe: &Recipe) -> Result<String> {
    let capacity = Capacity { tokens: 1 << 20, sequences: 512, groups: 64 };
    let plan = recipe.plan(capacity, Calls::Both, Outputs::ALL)?;
    let mut out = format!("\nLaunches ({})\n  {}\n", plan.launches().len(), plan.launches().join(", "));
    for stage in plan.host_stages() {
        let call = if stage.call == Call::Advantages { "advantages" } else { "loss" };
        let megabytes = stage.bytes as f64 / 1e6;
        let _ = writeln!(
            out,
            "  on the host: {call}, for {} ({megabytes:.1} MB copied for 2^20 tokens)",
            stage.stage
        );
    }
    Ok(out)
}

/// The string value of a setting; empty if absent.
pub(crate) fn choice<'a>(settings: &'a Map<String, Value>, key: &str) -> &'a str {
    settings.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> String {
        explain(&Recipe::named(name).unwrap()).unwrap_or_else(|e| panic!("{name}: {e:#}"))
    }

    #[test]
    fn every_name_is_explained_and_every_choice_has_its_formula() {
        for name in recipes::names() {
            let text = said(name);
            for part in [
                "source: ",
                "Stages",
                "  advantage",
                "  gate",
                "Columns",
                "cu_seqlens",
                "Outputs",
                "coef",
                "Duties",
            ] {
                assert!(text.contains(part), "{name}: no {part}\n{text}");
            }
            let formulas = text.lines().filter(|line| line.starts_with(&" ".repeat(21))).count();
            assert!(formulas >= 4, "{name}: {formulas} formulas\n{text}");
            let recipe = Recipe::named(name).unwrap();
            assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe);
        }
    }

    #[test]
    fn what_is_special_is_said() {
        let text = said("ppo_critic");
        for part in ["values_old", "train_critic", "value.gradient", "entropy.coef", "returns", "δₜ"] {
            assert!(text.contains(part), "no {part}\n{text}");
        }
        assert!(said("spiral").contains("state.role_values"));
        assert!(said("remax").contains("rewards or token_rewards"));
    }
}

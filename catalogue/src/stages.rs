//! The choices of a recipe, read from the recipe itself.

use lockstep::Recipe;
use lockstep::recipe::{Duty, RewardChoice};
use toml::{Table, Value};

/// The order of the pipeline; stages that are not listed come last.
const ORDER: [&str; 10] =
    ["reward", "advantage", "ratio", "correction", "mask", "gate", "kl", "entropy", "value", "aggregation"];

/// Lists the stages in the order of the pipeline, each with its choice and every setting that differs from
/// the default of `grpo`, and then the duties.
pub(super) fn of(recipe: &Recipe) -> String {
    let (own, mut default) = (table(recipe), table(&Recipe::default()));
    if let Ok(reward) = Value::try_from(RewardChoice::default()) {
        default.insert("reward".into(), reward);
    }
    let mut stages: Vec<(&String, &Table)> =
        own.iter().filter_map(|(stage, value)| Some((stage, value.as_table()?))).collect();
    stages.sort_by_key(|(stage, _)| ORDER.iter().position(|known| known == stage).unwrap_or(ORDER.len()));
    let said = stages.into_iter().filter_map(|(stage, settings)| {
        let usual = default.get(stage).and_then(Value::as_table);
        let unusual = |key: &str, value| usual.and_then(|usual| usual.get(key)) != Some(value);
        let is_choice = |key: &str| matches!(key, "estimator" | "kind" | "mode" | "level");
        let choice = settings.iter().filter(|(key, _)| is_choice(key)).map(|(_, value)| text(value));
        let others = settings.iter().filter(|(key, value)| !is_choice(key) && unusual(key, value));
        let said: Vec<String> =
            choice.chain(others.map(|(key, value)| format!("{key} {}", text(value)))).collect();
        (!said.is_empty()).then(|| format!("{stage}: {}", said.join(", ")))
    });
    let duties: Vec<&str> = recipe.duties().into_iter().map(Duty::name).collect();
    let duties = (!duties.is_empty()).then(|| format!("duties: {}", duties.join(", ")));
    said.chain(duties).collect::<Vec<_>>().join("; ")
}

fn table(recipe: &Recipe) -> Table {
    recipe.to_toml().ok().and_then(|text| toml::from_str(&text).ok()).unwrap_or_default()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Float(x) => x.to_string(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(" and "),
        Value::Table(inner) => {
            let (kind, others): (Vec<_>, Vec<_>) = inner.iter().partition(|(key, _)| *key == "kind");
            let kind = kind.into_iter().map(|(_, value)| text(value));
            let others = others.into_iter().map(|(key, value)| format!("{key} {}", text(value)));
            format!("({})", kind.chain(others).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

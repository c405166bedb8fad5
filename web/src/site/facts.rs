//! What the pages say of a recipe.

use crate::Error;
use lockstep::recipe::{NamedRecipe, RatioLevel, entries};
use lockstep::{Call, Column, Device, Duty, Recipe};
use lockstep_catalogue::Stage;
use serde::Serialize;
use serde_json::Value;

/// A recipe, as pages and scripts read it.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) name: String,
    /// Two sentences.
    pub(super) what: [String; 2],
    pub(super) source: String,
    pub(super) confidence: String,
    pub(super) evidence: String,
    pub(super) extends: Option<String>,
    pub(super) stages: Vec<Stage>,
    pub(super) needs: Vec<Need>,
    /// Name and meaning.
    pub(super) duties: Vec<[&'static str; 2]>,
    pub(super) tags: Tags,
    /// The digest of both calls, computed when the site was written.
    pub(super) digest: String,
    #[serde(skip)]
    pub(super) recipe: Recipe,
}

/// A column that a call reads.
#[derive(Debug, Serialize)]
pub(super) struct Need {
    pub(super) call: &'static str,
    pub(super) column: String,
    pub(super) shape: String,
    pub(super) stage: &'static str,
    pub(super) required: bool,
    pub(super) meaning: &'static str,
}

/// What the index filters by.
#[derive(Debug, Serialize)]
pub(super) struct Tags {
    pub(super) gate: String,
    pub(super) level: String,
    pub(super) framework: Option<&'static str>,
    pub(super) off_policy: bool,
    pub(super) moe: bool,
    pub(super) critic: bool,
}

/// First words of the presets' names, and what they are presets of.
const FRAMEWORKS: [(&str, &str); 8] = [
    ("verl", "verl"),
    ("trl", "TRL"),
    ("openrlhf", "OpenRLHF"),
    ("slime", "slime"),
    ("areal", "AReaL"),
    ("nemo", "NeMo RL"),
    ("roll", "ROLL"),
    ("mlperf", "MLPerf"),
];

/// Papers about mixtures of experts, besides GSPO and IcePop.
const MOE_PAPERS: [&str; 1] = ["2512.01374"];

/// The facts of every named recipe, in the order of the list.
pub(super) fn all() -> Result<Vec<Facts>, Error> {
    entries().iter().map(of).collect()
}

fn of(entry: &NamedRecipe) -> Result<Facts, Error> {
    let recipe = Recipe::named(&entry.name)?;
    let values = serde_json::to_value(&recipe)?;
    let text = |stage: &str, key: &str| values[stage][key].as_str().unwrap_or_default().to_owned();
    let (gate, level) = (text("gate", "kind"), text("ratio", "level"));
    let advantage = match &values["advantage"]["over_time"] {
        Value::Object(choice) => choice["kind"].as_str().unwrap_or_default().to_owned(),
        _ => text("advantage", "estimator"),
    };
    let composed = format!(
        "Advantages come from {advantage}, ratios are at level {level}; the gate is {gate}, the aggregation \
         {}.",
        text("aggregation", "mode")
    );
    let prefix = entry.name.split('_').next();
    let duties = recipe.duties();
    let reads = recipe.reads();
    Ok(Facts {
        what: [format!("{}.", entry.what.trim_end_matches('.')), composed],
        source: entry.source.clone(),
        confidence: lockstep_catalogue::words(entry.confidence).to_owned(),
        evidence: lockstep_catalogue::evidence(&entry.name, entry.confidence),
        extends: entry.extends.clone(),
        stages: lockstep_catalogue::stages(&recipe)?,
        needs: needs(&recipe),
        tags: Tags {
            framework: FRAMEWORKS.iter().find(|(first, _)| Some(*first) == prefix).map(|(_, name)| *name),
            off_policy: recipe.correction.is_some()
                || recipe.mask.opsm_delta.is_some()
                || [Column::logp_rollout, Column::logp_latest]
                    .into_iter()
                    .any(|column| reads.contains(column)),
            moe: recipe.ratio.level == RatioLevel::Sequence
                || entry.name.contains("icepop")
                || MOE_PAPERS.iter().any(|paper| entry.source.contains(paper)),
            critic: recipe.value.is_some() || duties.contains(&Duty::TrainCritic),
            gate,
            level,
        },
        duties: duties.into_iter().map(|duty| [duty.name(), duty.meaning()]).collect(),
        digest: lockstep_recipe_bits::digest_of(&Device::cpu(), &[&entry.name])?,
        name: entry.name.clone(),
        recipe,
    })
}

fn needs(recipe: &Recipe) -> Vec<Need> {
    let need = |need: lockstep::Need| Need {
        call: if need.call == Call::Advantages { "advantages" } else { "loss" },
        column: need.column.name().to_owned()
            + &need.or.map_or(String::new(), |or| format!(" or {}", or.name())),
        shape: format!("{} {}", need.column.element().name(), need.column.shape().name()),
        stage: need.stage,
        required: need.required,
        meaning: need.column.meaning(),
    };
    recipe.needs().into_iter().map(need).collect()
}

/// The addresses of the papers in a source: each `2402.03300` of it, with its link.
pub(super) fn papers(source: &str) -> Vec<(&str, Option<String>)> {
    let is_paper = |word: &str| {
        let digits = |text: &str, n| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
        word.split_once('.').is_some_and(|(month, number)| digits(month, 4) && digits(number, 5))
    };
    let link = |word: &str| is_paper(word).then(|| format!("https://arxiv.org/abs/{word}"));
    source.split(", ").map(|word| (word, link(word))).collect()
}

//! Everything that has a name in the literature and is here: what it consists of, where it comes from, how far it is
//! checked, what it costs. `lockstep list` prints it; `docs/algorithms.md` is generated from it.
//!
//! A recipe's stages are read from the recipe itself, so that they cannot differ from what runs.

mod functions;
mod stages;

use crate::Recipe;
use crate::recipe;
use serde::Deserialize;
use std::fmt;

/// How sure we are that a formula is the one of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Read in the authors' own repository.
    OfficialCode,
    /// Read in a training framework.
    FrameworkCode,
    /// The paper's, confirmed by a text that reproduces it.
    Paper,
    /// As we know it from the literature; the text itself could not be read again.
    Recalled,
    /// Only the abstract was available: the equation is ours, and no parity is claimed.
    OurReading,
    /// Ours, or elementary.
    Ours,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Confidence::OfficialCode => "official code",
            Confidence::FrameworkCode => "framework code",
            Confidence::Paper => "paper",
            Confidence::Recalled => "paper, recalled",
            Confidence::OurReading => "our reading",
            Confidence::Ours => "ours",
        })
    }
}

/// How an entry is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// [`Recipe::named`].
    Recipe,
    /// A function of [`ops`](crate::ops).
    Function,
    /// A function of the host, without a kernel.
    Schedule,
}

/// One line of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name, or the path of its function.
    pub name: &'static str,
    /// How it is used.
    pub kind: Kind,
    /// What it is, in one line.
    pub what: &'static str,
    /// What a recipe consists of: every choice that is not the default.
    pub stages: String,
    /// Paper id, or framework.
    pub source: &'static str,
    /// How sure we are.
    pub confidence: Confidence,
    /// Golden files of a peer that it is compared with; everything is compared with the f64 oracle.
    pub golden: Vec<&'static str>,
    /// The bench that times it, if it is not a recipe.
    pub bench: Option<&'static str>,
    /// Nanoseconds a token (or what `per` says) on the recorded machine, if it is an op.
    pub cost: Option<f64>,
    /// What the cost is per.
    pub per: &'static str,
}

/// All entries: recipes, functions, schedules.
pub fn catalogue() -> Vec<Entry> {
    let recipes = recipe::entries().iter().filter_map(|entry| {
        let recipe = Recipe::named(&entry.name).ok()?;
        Some(Entry {
            name: &entry.name,
            kind: Kind::Recipe,
            what: &entry.what,
            stages: stages::of(&recipe),
            source: &entry.source,
            confidence: entry.confidence,
            golden: stages::golden(&recipe),
            bench: None,
            cost: None,
            per: "",
        })
    });
    recipes.chain(functions::all()).collect()
}

/// Two tables in Markdown: the recipes, and the functions with what they cost.
pub fn markdown() -> String {
    let (recipes, functions): (Vec<Entry>, Vec<Entry>) =
        catalogue().into_iter().partition(|entry| entry.kind == Kind::Recipe);
    let mut out = String::from(
        "## Recipes\n\n| name | what it is | choices | source | confidence | checked against |\n",
    );
    out += "|---|---|---|---|---|---|\n";
    for entry in recipes {
        let checked = entry.checked();
        let Entry { name, what, stages, source, confidence, .. } = entry;
        out += &format!("| `{name}` | {what} | {stages} | {source} | {confidence} | {checked} |\n");
    }
    out += "\n## Functions\n\n| name | what it is | source | confidence | checked against | ns |\n";
    out += "|---|---|---|---|---|---|\n";
    for entry in functions {
        let (kind, checked, cost) = (entry.kind_name(), entry.checked(), entry.cost_text());
        let Entry { name, what, source, confidence, .. } = entry;
        out += &format!("| `{name}` ({kind}) | {what} | {source} | {confidence} | {checked} | {cost} |\n");
    }
    out
}

/// The table for a terminal: an entry a paragraph.
pub fn text() -> String {
    let mut out = String::new();
    for entry in catalogue() {
        let Entry { name, what, stages, source, confidence, .. } = &entry;
        let (kind, checked, cost) = (entry.kind_name(), entry.checked(), entry.cost_text());
        out += &format!("{name}  [{kind}]\n    {what}\n");
        if !stages.is_empty() {
            out += &format!("    {stages}\n");
        }
        out += &format!("    {source}; {confidence}; checked against {checked}");
        out += &if cost.is_empty() { "\n".to_owned() } else { format!("; {cost}\n") };
    }
    out
}

impl Entry {
    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Recipe => "recipe",
            Kind::Function => "function",
            Kind::Schedule => "schedule",
        }
    }

    fn checked(&self) -> String {
        let oracle = if self.kind == Kind::Schedule { "worked vectors, properties" } else { "f64 oracle" };
        if self.golden.is_empty() {
            oracle.to_owned()
        } else {
            format!("{oracle}, verl 0.9.1: {}", self.golden.join(", "))
        }
    }

    fn cost_text(&self) -> String {
        match self.cost {
            Some(cost) => format!("{cost:.3}/{}", self.per),
            None if self.bench.is_none() && self.kind != Kind::Recipe => "host rule".into(),
            None => String::new(),
        }
    }
}

/// Nanoseconds of a function in the record of `cargo run --release -p lockstep-benches --example catalogue`; none
/// where it has not been measured yet.
fn measured(name: &str) -> Option<f64> {
    let record = include_str!("measured.csv");
    record.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (found, value) = line.split_once(',')?;
        (found == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_listed() {
        let listed: Vec<&str> = catalogue().iter().map(|entry| entry.name).collect();
        let missing: Vec<_> = recipe::names().iter().filter(|name| !listed.contains(*name)).collect();
        assert!(!listed.is_empty() && missing.is_empty(), "recipes/*.toml: no recipe of {missing:?}");
    }

    #[test]
    fn every_function_over_arrays_has_a_cost() {
        let lacks = |entry: &Entry| entry.bench.is_some() && entry.cost.is_none();
        let lacking: Vec<&str> = catalogue().iter().filter(|e| lacks(e)).map(|entry| entry.name).collect();
        assert!(
            lacking.is_empty(),
            "measured.csv lacks {lacking:?}: run the example catalogue of lockstep-benches"
        );
    }

    #[test]
    fn no_name_twice_and_none_planned() {
        let mut names: Vec<&str> = catalogue().iter().map(|entry| entry.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(!markdown().contains("planned"));
    }
}

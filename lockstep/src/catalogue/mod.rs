//! Everything that has a name in the literature and is here: what it consists of, where it comes from, how
//! far it is checked, what it costs. `lockstep list` prints it; `docs/algorithms.md` is generated from it.
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
            Confidence::OfficialCode => "official code, read",
            Confidence::FrameworkCode => "framework code, read",
            Confidence::Paper => "paper's formula",
            Confidence::Recalled => "paper's formula, recalled",
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
    /// The same with the cases of released code that it agrees with, where there are any ([`evidence`]).
    pub evidence: String,
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
            evidence: evidence(&entry.name, entry.confidence),
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
    let mut out = String::from("## Recipes\n\n| name | what it is | choices | source | evidence |\n");
    out += "|---|---|---|---|---|\n";
    for entry in recipes {
        let Entry { name, what, stages, source, evidence, .. } = entry;
        out += &format!("| `{name}` | {what} | {stages} | {source} | {evidence} |\n");
    }
    out += "\n## Functions\n\n| name | what it is | source | evidence | ns |\n|---|---|---|---|---|\n";
    for entry in functions {
        let (kind, cost) = (entry.kind_name(), entry.cost_text());
        let Entry { name, what, source, evidence, .. } = entry;
        out += &format!("| `{name}` ({kind}) | {what} | {source} | {evidence} | {cost} |\n");
    }
    out
}

/// The table for a terminal: an entry a paragraph.
pub fn text() -> String {
    let mut out = String::new();
    for entry in catalogue() {
        let Entry { name, what, stages, source, evidence, .. } = &entry;
        let (kind, cost) = (entry.kind_name(), entry.cost_text());
        out += &format!("{name}  [{kind}]\n    {what}\n");
        if !stages.is_empty() {
            out += &format!("    {stages}\n");
        }
        out += &format!("    {source}; {evidence}");
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

    fn cost_text(&self) -> String {
        match self.cost {
            Some(cost) => format!("{cost:.3}/{}", self.per),
            None if self.bench.is_none() && self.kind != Kind::Recipe && !self.name.starts_with("ops::") => {
                "host rule".into()
            }
            None => String::new(),
        }
    }
}

/// Nanoseconds of a function in the record of `cargo run --release -p lockstep-benches --example catalogue`;
/// none where it has not been measured yet.
fn measured(name: &str) -> Option<f64> {
    let record = include_str!("measured.csv");
    record.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (found, value) = line.split_once(',')?;
        (found == name).then(|| value.trim().parse().ok())?
    })
}

/// How sure we are of a name: the cases of released code that it agrees with, as docs/evidence.md lists them,
/// or else what was read. Everything is compared with the f64 oracle besides.
pub fn evidence(name: &str, confidence: Confidence) -> String {
    let list = include_str!("evidence.csv").lines().filter(|line| !line.starts_with('#'));
    let (mut sources, mut total) = (Vec::new(), 0);
    for line in list {
        let [found, source, cases] = *line.split(',').collect::<Vec<_>>() else { continue };
        if found == name {
            sources.push(source);
            total += cases.parse().unwrap_or(0);
        }
    }
    match total {
        0 => format!("{confidence}; no case of released code"),
        _ => format!("released code, {total} cases ({})", sources.join(", ")),
    }
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
    fn evidence_is_of_names_that_exist() {
        let listed: Vec<&str> = catalogue().iter().map(|entry| entry.name).collect();
        for line in include_str!("evidence.csv").lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<&str> = line.split(',').collect();
            let cases: usize = parts[2].parse().unwrap();
            assert!(parts.len() == 3 && listed.contains(&parts[0]) && cases > 0, "{line}");
        }
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

//! Everything that has a name in the literature and is here: what it consists of, where it comes from, how far it is
//! checked, what it costs. `lockstep list` prints it; `docs/algorithms.md` is generated from it.
//!
//! A recipe's stages are read from the recipe itself, so that they cannot differ from what runs.

mod functions;
mod recipes;
mod stages;

use crate::Recipe;
use crate::recipe::NAMES;
use std::borrow::Cow;
use std::fmt;

/// How sure we are that a formula is the one of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// What it consists of.
    pub stages: Cow<'static, str>,
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
    let recipes = NAMES.iter().filter_map(|name| {
        let recipe = Recipe::named(name).ok()?;
        let (source, confidence) = recipes::source(name)?;
        Some(Entry {
            name,
            kind: Kind::Recipe,
            stages: stages::of(&recipe).into(),
            source,
            confidence,
            golden: stages::golden(&recipe),
            bench: None,
            cost: measured(name),
            per: "token",
        })
    });
    recipes.chain(functions::all()).collect()
}

/// The table in Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "| name | stages | source | confidence | checked against | ns |\n|---|---|---|---|---|---|\n",
    );
    for entry in catalogue() {
        let name = match entry.kind {
            Kind::Recipe => format!("`{}`", entry.name),
            Kind::Function | Kind::Schedule => format!("`{}` ({})", entry.name, entry.kind_name()),
        };
        let (checked, cost) = (entry.checked(), entry.cost_text());
        let Entry { stages, source, confidence, .. } = &entry;
        out += &format!("| {name} | {stages} | {source} | {confidence} | {checked} | {cost} |\n");
    }
    out
}

/// The table for a terminal: an entry a paragraph.
pub fn text() -> String {
    let mut out = String::new();
    for entry in catalogue() {
        let Entry { name, stages, source, confidence, .. } = &entry;
        let (kind, checked, cost) = (entry.kind_name(), entry.checked(), entry.cost_text());
        out +=
            &format!("{name}  [{kind}]\n    {stages}\n    {source}; {confidence}; checked against {checked}");
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

/// Nanoseconds of a name; none where it has not been measured yet.
fn measured(name: &str) -> Option<f64> {
    recorded(name)?.parse().ok()
}

/// The entry of a name in the record of `cargo run --release -p lockstep-benches --example catalogue`: nanoseconds, or `-` until the next run.
fn recorded(name: &str) -> Option<&'static str> {
    let record = include_str!("measured.csv");
    record.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (found, value) = line.split_once(',')?;
        (found == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_listed() {
        let listed: Vec<&str> = catalogue().iter().map(|entry| entry.name).collect();
        let missing: Vec<_> = NAMES.iter().filter(|name| !listed.contains(*name)).collect();
        assert!(missing.is_empty(), "catalogue/recipes.rs lacks {missing:?}");
    }

    #[test]
    fn every_recipe_is_in_the_record_of_costs() {
        let known = |name: &str| recorded(name).is_some_and(|value| value == "-" || measured(name).is_some());
        let lacking: Vec<_> = NAMES.iter().filter(|name| !known(name)).collect();
        assert!(
            lacking.is_empty(),
            "measured.csv lacks {lacking:?}: run the example catalogue of lockstep-benches"
        );
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

//! The catalogue of everything here that has a name in the literature: its choices, its source, the evidence
//! for it, and its measured cost. `lockstep list` prints it; `docs/algorithms.md` is generated from it.
//!
//! A recipe's stages are read from the recipe itself, so they cannot differ from what runs.

mod explain;
mod formulas;
mod functions;
mod stages;

pub use explain::{Stage, explain, stages};

use lockstep::Recipe;
use lockstep::recipe::{self, Confidence};

/// How an entry is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A recipe of [`Recipe::named`].
    Recipe,
    /// A function of [`ops`](lockstep::ops).
    Function,
    /// A function that runs on the host, without a kernel.
    Schedule,
}

/// An entry of the catalogue.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The name of the recipe, or the path of the function.
    pub name: &'static str,
    /// How it is used.
    pub kind: Kind,
    /// A one-line description.
    pub what: &'static str,
    /// The choices of a recipe that are not the default; empty for functions.
    pub stages: String,
    /// Paper id, or framework.
    pub source: &'static str,
    /// Our confidence in the formula.
    pub confidence: Confidence,
    /// The confidence in words, or the cases of released code that the entry agrees with, if there are any
    /// ([`evidence`]).
    pub evidence: String,
    /// The benchmark that times it; `None` for recipes.
    pub bench: Option<&'static str>,
    /// Nanoseconds per token (or per unit of `per`) on the recorded machine, if it is an op.
    pub cost: Option<f64>,
    /// The unit that the cost is per.
    pub per: &'static str,
}

/// Lists all entries: recipes, functions, schedules.
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

/// Formats the catalogue as two Markdown tables: the recipes, and the functions with their costs.
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

/// Formats the catalogue for a terminal, one paragraph per entry.
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

/// The nanoseconds of a function in the record of `cargo run --release -p lockstep-benches --example
/// catalogue`; `None` if it has not been measured yet.
fn measured(name: &str) -> Option<f64> {
    let record = include_str!("measured.csv");
    record.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (found, value) = line.split_once(',')?;
        (found == name).then(|| value.trim().parse().ok())?
    })
}

/// Our confidence in a formula, in words.
pub fn words(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::OfficialCode => "official code, read",
        Confidence::FrameworkCode => "framework code, read",
        Confidence::Paper => "paper's formula",
        Confidence::Recalled => "paper's formula, recalled",
        Confidence::OurReading => "our reading",
        Confidence::Ours => "ours",
    }
}

/// Describes the evidence for a name: the number of cases of released code that it agrees with, as listed in
/// docs/evidence.md, or else `confidence` in words. Everything is also compared with the f64 oracle.
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
        0 => format!("{}; no case of released code", words(confidence)),
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

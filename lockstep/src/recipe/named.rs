//! Named recipes: the entries of `lockstep/recipes/*.toml`, read once.

use super::Recipe;
use super::extend::{build, overlay};
use crate::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use strsim::levenshtein;
use toml::Table;
use toml::de::DeTable;

/// The files, in the order in which their recipes are listed.
const FILES: [(&str, &str); 4] = [
    ("gates.toml", include_str!("../../recipes/gates.toml")),
    ("advantages.toml", include_str!("../../recipes/advantages.toml")),
    ("corrections.toml", include_str!("../../recipes/corrections.toml")),
    ("frameworks.toml", include_str!("../../recipes/frameworks.toml")),
];

/// How many similar names the error for an unknown name lists.
const NEAR: usize = 5;

/// Our confidence that a formula is that of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Read in the authors' own code.
    OfficialCode,
    /// Read in the code of a training framework.
    FrameworkCode,
    /// The paper's formula, confirmed by a text that reproduces it.
    Paper,
    /// The paper's formula as we know it from the literature; the text itself could not be read again.
    Recalled,
    /// Our own equation, because only the abstract was available; no parity is claimed.
    OurReading,
    /// Our own, or elementary.
    Ours,
}

/// A named recipe, as its file describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct NamedRecipe {
    /// The name of the recipe.
    #[serde(skip)]
    pub name: String,
    /// The recipe that it extends; `None` for `grpo`, whose values are the defaults of the choices.
    pub extends: Option<String>,
    /// Paper id, or framework.
    pub source: String,
    /// Our confidence that the recipe does what its source does.
    pub confidence: Confidence,
    /// A one-line description.
    pub what: String,
    /// The choices that it changes.
    #[serde(flatten)]
    choices: Table,
}

/// Lists the entries of all named recipes, in the order of the files.
pub fn entries() -> &'static [NamedRecipe] {
    read_once().as_deref().unwrap_or_default()
}

/// Lists the names that [`Recipe::named`] knows, in the order of the files.
pub fn names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| entries().iter().map(|entry| entry.name.as_str()).collect())
}

fn read_once() -> &'static Result<Vec<NamedRecipe>, String> {
    static ENTRIES: OnceLock<Result<Vec<NamedRecipe>, String>> = OnceLock::new();
    ENTRIES.get_or_init(read)
}

fn read() -> Result<Vec<NamedRecipe>, String> {
    let mut entries: Vec<NamedRecipe> = Vec::new();
    for (file, text) in FILES {
        let wrong = |error: toml::de::Error| format!("recipes/{file}: {error}");
        let mut tables: BTreeMap<String, NamedRecipe> = toml::from_str(text).map_err(wrong)?;
        let places = DeTable::parse(text).map_err(wrong)?;
        let mut names: Vec<_> = places.get_ref().keys().collect();
        names.sort_by_key(|name| name.span().start);
        for name in names {
            let name: &str = name.get_ref();
            let Some(entry) = tables.remove(name) else { continue };
            if entries.iter().any(|earlier| earlier.name == name) {
                return Err(format!("recipes/{file}: `{name}` is defined twice"));
            }
            entries.push(NamedRecipe { name: name.into(), ..entry });
        }
    }
    Ok(entries)
}

/// The entry with a name. Errors: an unknown name, with similar known ones.
fn entry(name: &str) -> Result<&'static NamedRecipe, Error> {
    let entries = read_once().as_deref().map_err(|message| Error::Recipe(message.clone()))?;
    entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let near = near(name);
        let meant =
            if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
        Error::Recipe(format!(
            "no recipe is called `{name}`{meant}. `lockstep list` or recipe::names() lists all {}",
            entries.len()
        ))
    })
}

/// All choices of a named recipe: its entry overlaid on the one that it extends, and so on down to the
/// defaults.
///
/// Errors: an unknown name; a cycle.
pub(super) fn choices(name: &str) -> Result<Table, Error> {
    let mut chain = vec![entry(name)?];
    while let Some(parent) = chain.last().and_then(|entry| entry.extends.as_deref()) {
        let parent = entry(parent)?;
        if chain.contains(&parent) {
            return Err(Error::Recipe(format!("recipe `{name}` extends itself via `{}`", parent.name)));
        }
        chain.push(parent);
    }
    let mut table = Table::try_from(Recipe::default()).map_err(|e| Error::Recipe(e.to_string()))?;
    for entry in chain.iter().rev() {
        overlay(&mut table, &entry.choices);
    }
    table.insert("name".into(), name.into());
    Ok(table)
}

/// Known names that resemble `name`, the most similar first.
fn near(name: &str) -> Vec<&'static str> {
    let plain = |name: &str| name.to_lowercase().replace(['_', '-', ' ', '.', '+'], "");
    let asked = plain(name);
    let rank = |known: &str| {
        let known = plain(known);
        let part = asked.len() > 2 && known.len() > 2 && (known.contains(&asked) || asked.contains(&known));
        let edits = levenshtein(&asked, &known);
        (part || edits <= 1 + asked.len() / 4).then_some((!part, edits))
    };
    let mut near: Vec<_> = names().iter().filter_map(|known| Some((rank(known)?, *known))).collect();
    near.sort_by_key(|(rank, _)| (rank.1, rank.0));
    near.into_iter().take(NEAR).map(|(_, known)| known).collect()
}

impl Recipe {
    /// Returns the recipe called `name`; [`entries`] lists and describes them all.
    ///
    /// Errors: an unknown name, with similar known ones.
    ///
    /// ```
    /// let error = lockstep::Recipe::named("dapo_ful").unwrap_err().to_string();
    /// assert!(error.contains("dapo_full"), "{error}");
    /// ```
    pub fn named(name: &str) -> Result<Recipe, Error> {
        build(choices(name)?).map_err(|e| Error::Recipe(format!("{name}: {}", e.message())))
    }
}

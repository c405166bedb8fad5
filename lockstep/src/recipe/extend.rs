//! Recipes that extend another recipe: TOML tables overlaid on each other.

use super::{Recipe, named, numbers, place};
use crate::Error;
use toml::{Table, Value};

/// The value that removes an optional key or table.
const NONE: &str = "none";

/// Overlays `changes` on `base`. Tables are merged, except that a table of another `kind` replaces the old
/// one; other values replace the old ones.
pub(super) fn overlay(base: &mut Table, changes: &Table) {
    for (key, change) in changes {
        match (base.get_mut(key), change) {
            (Some(Value::Table(old)), Value::Table(new)) if same_kind(old, new) => overlay(old, new),
            _ => {
                base.insert(key.clone(), change.clone());
            }
        }
    }
}

fn same_kind(old: &Table, new: &Table) -> bool {
    new.get("kind").is_none_or(|kind| old.get("kind") == Some(kind))
}

/// Builds the recipe from a table with every choice. `"none"` is a value for keys that have such a value; for
/// others, it removes the key.
pub(super) fn build(mut table: Table) -> Result<Recipe, toml::de::Error> {
    let mut absent = Vec::new();
    remove_none(&mut table, &mut Vec::new(), &mut absent);
    if absent.is_empty() {
        return table.try_into();
    }
    // A key that there is not is an error, whatever its value.
    for path in &absent {
        let mut with = table.clone();
        put_none(&mut with, path);
        match with.try_into::<Recipe>() {
            Err(error) if error.message().contains("unknown field") => return Err(error),
            _ => {}
        }
    }
    let without = match table.clone().try_into::<Recipe>() {
        // Not for the sake of what was taken out.
        Err(error) if !error.message().contains("missing field") => return Err(error),
        without => without.ok(),
    };
    let written = without.as_ref().and_then(|recipe| Table::try_from(recipe).ok());
    // Without its own whitening, an estimator differs from one without the choice.
    let whitens = without.is_some_and(|recipe| recipe.advantage.estimator.whitens());
    // A key that is still written is not optional, so its own type decides about the value.
    for path in absent {
        let own = whitens && path == ["advantage", "whiten"];
        if own || written.as_ref().is_none_or(|written| at(written, &path)) {
            put_none(&mut table, &path);
        }
    }
    table.try_into()
}

fn remove_none(table: &mut Table, path: &mut Vec<String>, absent: &mut Vec<Vec<String>>) {
    table.retain(|key, value| {
        path.push(key.into());
        let none = value.as_str() == Some(NONE);
        if none {
            absent.push(path.clone());
        } else if let Value::Table(inner) = value {
            remove_none(inner, path, absent);
        }
        path.pop();
        !none
    });
}

/// Whether the table has a value at a path.
fn at(table: &Table, path: &[String]) -> bool {
    match path {
        [] => true,
        [key] => table.contains_key(key),
        [key, rest @ ..] => table.get(key).and_then(Value::as_table).is_some_and(|inner| at(inner, rest)),
    }
}

fn put_none(table: &mut Table, path: &[String]) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), NONE.into());
        }
        [key, rest @ ..] => {
            if let Some(Value::Table(inner)) = table.get_mut(key) {
                put_none(inner, rest);
            }
        }
    }
}

/// Reads a user's TOML, overlaid on `own`, or else on the recipe that it `extends`, or on `grpo`.
pub(super) fn read(text: &str, own: Option<Table>) -> Result<Recipe, Error> {
    let wrong = |e: toml::de::Error| Error::Recipe(e.to_string().trim_end().into());
    let mut changes: Table = toml::from_str(text).map_err(wrong)?;
    let mut table = match (own, changes.remove("extends")) {
        (Some(own), None) => own,
        (Some(_), Some(_)) => {
            let expected = "extends is a key of a whole recipe: expected choices only";
            return Err(Error::Recipe(expected.into()));
        }
        (None, None) => named::choices("grpo")?,
        (None, Some(Value::String(name))) => named::choices(&name)?,
        (None, Some(other)) => {
            return Err(Error::Recipe(format!("extends is {other}: expected the name of a recipe")));
        }
    };
    spell_estimator(&mut changes);
    overlay(&mut table, &changes);
    let recipe = build(table.clone()).map_err(|merged| wrong(place::in_text(text, &table, merged)))?;
    numbers::check(text, &recipe)?;
    let written = Table::try_from(&recipe).map_err(|e| Error::Recipe(e.to_string()))?;
    match positional(&changes, &written) {
        Some(key) => Err(Error::Recipe(format!("{key} is an array: expected a table of named choices"))),
        None => Ok(recipe),
    }
}

/// The first key whose array has been read as a table: serde takes its numbers by position.
fn positional(changes: &Table, written: &Table) -> Option<String> {
    changes.iter().find_map(|(key, change)| match (change, written.get(key)?) {
        (Value::Array(_), Value::Table(_)) => Some(key.clone()),
        (Value::Table(inner), Value::Table(written)) => {
            positional(inner, written).map(|inner| format!("{key}.{inner}"))
        }
        _ => None,
    })
}

/// Renames the advantage's key `kind` to `estimator`.
fn spell_estimator(changes: &mut Table) {
    if let Some(Value::Table(advantage)) = changes.get_mut("advantage")
        && !advantage.contains_key("estimator")
        && let Some(kind) = advantage.remove("kind")
    {
        advantage.insert("estimator".into(), kind);
    }
}

//! Where in a TOML text an error is. A recipe is built from tables, without places: one deserialiser for
//! every choice compiles in half the time of two.

use super::Recipe;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::fmt;
use toml::de::Error;
use toml::{Table, Value};

/// The same error with the line and column of the key or value that it is about, if the text has it. `table`
/// is what the recipe was built from.
pub(super) fn in_text(text: &str, table: &Table, error: Error) -> Error {
    let told = error.to_string();
    let message = error.message();
    // Without a place, toml writes the path of the value below the message.
    let path = told[message.len()..].trim().strip_prefix("in `").and_then(|path| path.strip_suffix('`'));
    let mut path: Vec<&str> = path.into_iter().flat_map(|path| path.split('.')).collect();
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    if unknown.is_none() {
        path.extend(key_of_kind(table, &path, message));
    }
    let place = Place { path: &path, unknown, message };
    match toml::Deserializer::parse(text).and_then(|text| place.deserialize(text)) {
        Err(mut placed) if placed.span().is_some() => {
            placed.set_input(Some(text));
            placed
        }
        _ => error,
    }
}

/// The key of the table at `path` whose value is wrong, if it is a table with a `kind`: serde reads such a
/// table whole, and its error names no key. Beside the kind alone, the wrong value still gives the error.
fn key_of_kind<'t>(table: &'t Table, path: &[&str], message: &str) -> Option<&'t str> {
    let own = path.iter().try_fold(table, |table, key| table.get(*key)?.as_table())?;
    let wrong = |key: &&String| {
        let mut alone = table.clone();
        let inner = path.iter().try_fold(&mut alone, |table, key| table.get_mut(*key)?.as_table_mut());
        if let Some(inner) = inner {
            inner.retain(|other, _| other == "kind" || other == *key);
        }
        alone.try_into::<Recipe>().is_err_and(|error| error.message() == message)
    };
    own.get("kind")?;
    own.iter()
        .filter(|(_, value)| !matches!(value, Value::Table(_)))
        .map(|(key, _)| key)
        .find(wrong)
        .map(String::as_str)
}

/// Fails with the message at the unknown key of the table at a path or, without one, at the value there; at
/// the last value on the way if the text does not go so far.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a [&'a str],
    unknown: Option<&'a str>,
    message: &'a str,
}

/// Reads a key; fails if it is the unknown one.
struct Key<'a>(Option<&'a str>, &'a str);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<String, D::Error> {
        let key = String::deserialize(key)?;
        if Some(key.as_str()) == self.0 { Err(D::Error::custom(self.1)) } else { Ok(key) }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        if self.path.is_empty() && self.unknown.is_none() {
            return Err(D::Error::custom(self.message));
        }
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a table")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let unknown = if self.path.is_empty() { self.unknown } else { None };
        while let Some(key) = map.next_key_seed(Key(unknown, self.message))? {
            match self.path {
                // The advantage's estimator may be called its kind.
                [first, path @ ..] if key == *first || (*first == "estimator" && key == "kind") => {
                    return map.next_value_seed(Place { path, ..self });
                }
                _ => map.next_value::<IgnoredAny>()?,
            };
        }
        Err(M::Error::custom(self.message))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, _: S) -> Result<(), S::Error> {
        Err(S::Error::custom(self.message))
    }
}

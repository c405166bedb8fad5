//! A case's settings under the framework's names, and the recipe they translate to.

use lockstep::Recipe;
use serde_json::{Map, Value};
use std::fmt::Display;

/// Settings not yet read: every key must be understood; none is silently ignored.
pub(crate) struct Config<'a>(Vec<(&'a str, &'a Value)>);

impl<'a> Config<'a> {
    pub(crate) fn new(config: &'a Map<String, Value>) -> Self {
        Config(config.iter().map(|(key, value)| (key.as_str(), value)).collect())
    }

    /// Whether `key` is present and unread, even if `null`: for defaults that `null` disables.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| *name == key)
    }

    /// The value of `key`, removed; `null` counts as absent, as in the frameworks' configurations.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a Value> {
        let at = self.0.iter().position(|(name, _)| *name == key)?;
        Some(self.0.swap_remove(at).1).filter(|value| !value.is_null())
    }

    pub(crate) fn number(&mut self, key: &str) -> Result<Option<f64>, String> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub(crate) fn numbers(&mut self, key: &str) -> Result<Option<Vec<f64>>, String> {
        self.typed(key, "a list of numbers", |v| v.as_array()?.iter().map(Value::as_f64).collect())
    }

    pub(crate) fn boolean(&mut self, key: &str) -> Result<Option<bool>, String> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<&'a str>, String> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A number that must be there.
    pub(crate) fn required(&mut self, key: &str) -> Result<f64, String> {
        self.number(key)?.ok_or_else(|| format!("config `{key}` is missing"))
    }

    /// A string that must be there.
    pub(crate) fn required_text(&mut self, key: &str) -> Result<&'a str, String> {
        self.text(key)?.ok_or_else(|| format!("config `{key}` is missing"))
    }

    fn typed<T>(
        &mut self,
        key: &str,
        kind: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| format!("config `{key}` is {value}: expected {kind}"))
    }

    /// Drops keys that the framework does not read for this op, or that only label the case.
    pub(crate) fn ignore(&mut self, keys: &[&str]) {
        for key in keys {
            let _ = self.take(key);
        }
    }

    /// Checks that every key was read.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(format!("config `{key}` is not known for this op")),
        }
    }
}

/// A recipe that extends a preset with the keys that a case sets.
pub(crate) struct Overlay {
    preset: &'static str,
    lines: String,
}

impl Overlay {
    pub(crate) fn new(preset: &'static str) -> Self {
        Overlay { preset, lines: String::new() }
    }

    /// The preset that it extends.
    pub(crate) fn preset(&self) -> &'static str {
        self.preset
    }

    /// Extends another preset of the same framework.
    pub(crate) fn extend(&mut self, preset: &'static str) {
        self.preset = preset;
    }

    /// Sets a key to a literal TOML value.
    pub(crate) fn set(&mut self, key: &str, value: impl Display) {
        self.lines += &format!("{key} = {value}\n");
    }

    pub(crate) fn word(&mut self, key: &str, value: &str) {
        self.set(key, format_args!("{value:?}"));
    }

    /// Sets a number; `None` keeps the preset's.
    pub(crate) fn number(&mut self, key: &str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            // With a point or an exponent, because TOML does not take a whole number as a float.
            self.set(key, format_args!("{value:?}"));
        }
    }

    /// Copies every key that the case has; each pair is the framework's name and the recipe's.
    pub(crate) fn copy(&mut self, config: &mut Config<'_>, keys: &[(&str, &str)]) -> Result<(), String> {
        for (from, to) in keys {
            match config.take(from) {
                None => {}
                Some(Value::Number(number)) => self.number(to, number.as_f64()),
                Some(value @ (Value::Bool(_) | Value::String(_))) => self.set(to, value),
                Some(value) => return Err(format!("config `{from}` is {value}")),
            }
        }
        Ok(())
    }

    pub(crate) fn recipe(&self) -> Result<Recipe, String> {
        let text = format!("extends = {:?}\n{}", self.preset, self.lines);
        Recipe::from_toml(&text).map_err(|e| format!("{e}, in the recipe\n{text}"))
    }
}

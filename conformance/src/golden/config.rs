//! A case's settings under the peer's names: every key must be understood, none is ignored silently.

use serde_json::{Map, Value};

/// Settings not read yet.
pub(super) struct Config<'a>(Vec<(&'a str, &'a Value)>);

impl<'a> Config<'a> {
    pub(super) fn new(config: &'a Map<String, Value>) -> Self {
        Config(config.iter().map(|(key, value)| (key.as_str(), value)).collect())
    }

    /// The value of `key`, removed; `null` counts as absent, as in verl's configuration.
    fn take(&mut self, key: &str) -> Option<&'a Value> {
        let at = self.0.iter().position(|(name, _)| *name == key)?;
        Some(self.0.swap_remove(at).1).filter(|value| !value.is_null())
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<f64>, String> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A string, or a number as its text.
    pub(super) fn number_or_text(&mut self, key: &str) -> Result<Option<String>, String> {
        self.typed(key, "a number or a string", |value| match value {
            Value::Number(number) => Some(number.to_string()),
            Value::String(text) => Some(text.clone()),
            _ => None,
        })
    }

    pub(super) fn boolean(&mut self, key: &str) -> Result<Option<bool>, String> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<&'a str>, String> {
        self.typed(key, "a string", Value::as_str)
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

    /// Whether every key was read.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(format!("config `{key}` is not known for this op")),
        }
    }
}

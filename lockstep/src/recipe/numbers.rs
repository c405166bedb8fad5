//! Detects numbers in a TOML text that the recipe's number types cannot hold.

use super::Recipe;
use crate::Error;
use toml::Value;
use toml::de::{DeTable, DeValue};

/// Checks that the recipe read from a text holds every number of it: finite numbers stay finite, and none
/// becomes 0 or loses bits as a subnormal. Whether `inf`, written out, is allowed is left to the setting's
/// own check; no setting accepts NaN.
///
/// Errors: the key, the value, and what was expected.
pub(super) fn check(text: &str, recipe: &Recipe) -> Result<(), Error> {
    let Ok(written) = DeTable::parse(text) else { return Ok(()) };
    let read = Value::try_from(recipe).map_err(|e| Error::Recipe(e.to_string()))?;
    table(written.get_ref(), Some(&read), "")
}

fn table(written: &DeTable<'_>, read: Option<&Value>, path: &str) -> Result<(), Error> {
    written.iter().try_for_each(|(key, inner)| {
        let key: &str = key.get_ref();
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        value(inner.get_ref(), read.and_then(|read| read.get(key)), &path)
    })
}

fn value(written: &DeValue<'_>, read: Option<&Value>, path: &str) -> Result<(), Error> {
    match written {
        DeValue::Table(inner) => table(inner, read, path),
        DeValue::Array(items) => items.iter().enumerate().try_for_each(|(k, item)| {
            value(item.get_ref(), read.and_then(|read| read.get(k)), &format!("{path}[{k}]"))
        }),
        DeValue::Float(number) => float(number.as_str(), read.and_then(Value::as_float), path),
        _ => Ok(()),
    }
}

fn float(written: &str, read: Option<f64>, path: &str) -> Result<(), Error> {
    let unsigned = written.trim_start_matches(['+', '-']);
    if unsigned == "inf" {
        return Ok(());
    }
    let zero = unsigned.bytes().take_while(|b| !b"eE".contains(b)).all(|b| !(b'1'..=b'9').contains(&b));
    // The value that the setting holds; a setting that its table omits has the default.
    let held = read.or_else(|| written.parse().ok()).unwrap_or(f64::NAN);
    let single = f64::from(held as f32) == held;
    let least = if single { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE };
    let good = if unsigned == "nan" { false } else { held.is_finite() && (zero || held.abs() >= least) };
    if good {
        return Ok(());
    }
    Err(Error::Recipe(format!(
        "{path} is {written}: expected 0 or a normal number, which in binary32 is 1.2e-38 to 3.4e38 in \
         magnitude"
    )))
}

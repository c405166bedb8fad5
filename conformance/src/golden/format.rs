//! The file format, read strictly: an unknown key or a value of the wrong kind is an error that names file
//! and case.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A golden file or directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// Could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A directory without golden files.
    #[error("{}: no *.json file in it", path.display())]
    NoFiles {
        /// The directory.
        path: PathBuf,
    },
    /// Not of the format.
    #[error("{file}: {reason}")]
    Format {
        /// File name.
        file: String,
        /// What is wrong, with line and column.
        reason: String,
    },
}

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(skip)]
    pub(super) name: String,
    pub(super) op: String,
    /// What computed the expected values; its first word is the framework.
    pub(super) source: String,
    #[serde(default, rename = "seed")]
    _seed: Value,
    #[serde(default, rename = "note")]
    _note: Value,
    pub(super) cases: Vec<Case>,
}

/// A case. An input may be `"=k"`: the same as that of case k, which comes before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    #[serde(default)]
    pub(super) config: Map<String, Value>,
    pub(super) inputs: Map<String, Value>,
    pub(super) expected: Map<String, Value>,
    /// The same code with its casts to binary32 widened, where it has any.
    pub(super) expected_float64: Option<Map<String, Value>>,
}

/// The `*.json` files of a directory, by name.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, GoldenError> {
    let io = |source| GoldenError::Io { path: dir.into(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() { Err(GoldenError::NoFiles { path: dir.into() }) } else { Ok(paths) }
}

/// Reads one file.
pub(super) fn read(path: &Path) -> Result<File, GoldenError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| GoldenError::Io { path: path.into(), source })?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let wrong = |reason: String| GoldenError::Format { file: name.clone(), reason };
    let mut file: File = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    if file.cases.is_empty() {
        return Err(wrong("`cases` is empty".into()));
    }
    for case in 0..file.cases.len() {
        let (earlier, rest) = file.cases.split_at_mut(case);
        for (key, value) in &mut rest[0].inputs {
            let Some(text) = value.as_str() else { continue };
            let other = text.strip_prefix('=').and_then(|at| earlier.get(at.parse::<usize>().ok()?));
            let same = other.and_then(|other| other.inputs.get(key));
            *value = same
                .ok_or_else(|| {
                    wrong(format!("case {case}: input `{key}` is {text:?}: no earlier case has it"))
                })?
                .clone();
        }
    }
    file.name = name;
    Ok(file)
}

/// Numbers of a JSON array; `null` is NaN.
pub(super) fn numbers(name: &str, value: &Value) -> Result<Vec<f64>, String> {
    let list = value.as_array().ok_or_else(|| format!("`{name}` is not a list"))?;
    list.iter().map(|x| number(name, x)).collect()
}

/// A number; `null` is NaN.
pub(super) fn number(name: &str, value: &Value) -> Result<f64, String> {
    match value {
        Value::Null => Ok(f64::NAN),
        _ => value.as_f64().ok_or_else(|| format!("`{name}`: {value} is not a number")),
    }
}

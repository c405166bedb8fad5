//! The file format, parsed strictly: an unknown key or a value of the wrong kind is an error that names file
//! and case.

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A golden file or folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// It could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A directory without golden files.
    #[error("{}: no *.json or *.json.gz in it", path.display())]
    NoFiles {
        /// The directory.
        path: PathBuf,
    },
    /// It does not follow the format.
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
pub(crate) struct File {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) op: String,
    /// The code that computed the expected values; the first word is the framework.
    pub(crate) source: String,
    #[serde(default, rename = "seed")]
    _seed: Value,
    #[serde(default, rename = "note")]
    _note: Value,
    pub(crate) cases: Vec<Case>,
}

/// A case. An input may be `"=k"`, which stands for the same input of the earlier case k.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
    pub(crate) inputs: Map<String, Value>,
    pub(crate) expected: Map<String, Value>,
    /// The results of the same code with its casts to binary32 widened, if it has any.
    pub(crate) expected_float64: Option<Map<String, Value>>,
}

/// The golden files of a folder and all folders below it: name relative to the folder, and path, sorted by
/// name.
pub(crate) fn list(dir: &Path) -> Result<Vec<(String, PathBuf)>, GoldenError> {
    let mut found = Vec::new();
    collect(dir, "", &mut found)?;
    found.sort();
    if found.is_empty() { Err(GoldenError::NoFiles { path: dir.into() }) } else { Ok(found) }
}

fn collect(dir: &Path, above: &str, to: &mut Vec<(String, PathBuf)>) -> Result<(), GoldenError> {
    let io = |source| GoldenError::Io { path: dir.into(), source };
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        // Not through links, which may lead in a circle.
        if entry.file_type().map_err(io)?.is_dir() {
            collect(&path, &format!("{above}{name}/"), to)?;
        } else if name.ends_with(".json") || name.ends_with(".json.gz") {
            to.push((format!("{above}{name}"), path));
        }
    }
    Ok(())
}

/// Largest size of one unpacked file: a small damaged file must not exhaust memory.
const LARGEST: u64 = 1 << 28;

fn text(path: &Path) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    let source: Box<dyn Read> = if packed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    source.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads one file.
pub(crate) fn read(name: &str, path: &Path) -> Result<File, GoldenError> {
    let text = text(path).map_err(|source| GoldenError::Io { path: path.into(), source })?;
    let wrong = |reason: String| GoldenError::Format { file: name.into(), reason };
    let mut file: File = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    if file.cases.is_empty() {
        return Err(wrong("`cases` is empty".into()));
    }
    for case in 0..file.cases.len() {
        let (earlier, rest) = file.cases.split_at_mut(case);
        for (key, value) in &mut rest[0].inputs {
            let Some((text, at)) = value.as_str().and_then(|text| Some((text, text.strip_prefix('=')?)))
            else {
                continue;
            };
            let other = at.parse::<usize>().ok().and_then(|at| earlier.get(at));
            let same = other.and_then(|other| other.inputs.get(key));
            *value = same
                .ok_or_else(|| {
                    wrong(format!("case {case}: input `{key}` is {text:?}: no earlier case has it"))
                })?
                .clone();
        }
    }
    file.name = name.into();
    Ok(file)
}

/// The numbers of a JSON array; `null` is NaN.
pub(crate) fn numbers(name: &str, value: &Value) -> Result<Vec<f64>, String> {
    let list = value.as_array().ok_or_else(|| format!("`{name}` is not a list"))?;
    list.iter().map(|x| number(name, x)).collect()
}

/// A number; `null` and `"nan"` are NaN, `true` is 1.
pub(crate) fn number(name: &str, value: &Value) -> Result<f64, String> {
    match value {
        Value::Null => Ok(f64::NAN),
        Value::String(text) if text == "nan" => Ok(f64::NAN),
        Value::Bool(holds) => Ok(f64::from(u8::from(*holds))),
        _ => value.as_f64().ok_or_else(|| format!("`{name}`: {value} is not a number")),
    }
}

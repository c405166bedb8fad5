//! The file format, read strictly: an unknown key or a value of the wrong kind is an error that names file and case.

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
        /// What is wrong, with line and column where the JSON itself is.
        reason: String,
    },
    /// A case that is not of the format.
    #[error("{file}, case {case}: {reason}")]
    Case {
        /// File name.
        file: String,
        /// Index in `cases`.
        case: usize,
        /// What is wrong.
        reason: String,
    },
}

/// A file; cases stay JSON until it is known that their op is covered.
pub(super) struct File {
    pub(super) name: String,
    pub(super) op: String,
    pub(super) cases: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Top {
    op: String,
    #[allow(dead_code, reason = "provenance, for people; must be there")]
    source: String,
    #[serde(default, rename = "seed")]
    _seed: Value,
    #[serde(default, rename = "_comment")]
    _comment: Value,
    cases: Vec<Value>,
}

/// One case of a covered op.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    #[serde(default)]
    pub(super) config: Map<String, Value>,
    pub(super) inputs: Inputs,
    pub(super) expected: Map<String, Value>,
}

/// The inputs of all covered ops; which are needed is the op's business.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inputs {
    pub(super) cu_seqlens: Vec<u32>,
    pub(super) cu_groups: Option<Vec<u32>>,
    pub(super) loss_mask: Option<Vec<u8>>,
    pub(super) rewards: Option<Vec<f64>>,
    pub(super) token_rewards: Option<Vec<f64>>,
    pub(super) values: Option<Vec<f64>>,
    pub(super) logp_new: Option<Vec<f64>>,
    pub(super) logp_old: Option<Vec<f64>>,
    pub(super) logp_ref: Option<Vec<f64>>,
    pub(super) logp_rollout: Option<Vec<f64>>,
    pub(super) seq_advantages: Option<Vec<f64>>,
    pub(super) token_advantages: Option<Vec<f64>>,
    pub(super) is_weights: Option<Vec<f64>>,
    pub(super) value_new: Option<Vec<f64>>,
    pub(super) value_old: Option<Vec<f64>>,
    pub(super) returns: Option<Vec<f64>>,
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
    let top: Top = serde_json::from_str(&text)
        .map_err(|e| GoldenError::Format { file: name.clone(), reason: e.to_string() })?;
    if top.cases.is_empty() {
        return Err(GoldenError::Format { file: name, reason: "`cases` is empty".into() });
    }
    Ok(File { name, op: top.op, cases: top.cases })
}

/// Reads one case of a file whose op is covered.
pub(super) fn case(file: &File, index: usize, value: &Value) -> Result<Case, GoldenError> {
    let wrong = |reason: String| GoldenError::Case { file: file.name.clone(), case: index, reason };
    let case = Case::deserialize(value).map_err(|e| wrong(e.to_string()))?;
    if case.expected.is_empty() {
        return Err(wrong("`expected` is empty".into()));
    }
    Ok(case)
}

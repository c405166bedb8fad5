//! Rollout files.

use std::path::Path;

use anyhow::{Context, Result};
use lockstep::RolloutsBuf;

/// Reads a file; the names are those of its tensors that are no columns, which only `allow_extra` lets through.
pub fn read_rollouts(path: &Path, allow_extra: bool) -> Result<(RolloutsBuf, Vec<String>)> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read rollouts {}", path.display()))?;
    RolloutsBuf::from_safetensors(&bytes, allow_extra).with_context(|| path.display().to_string())
}

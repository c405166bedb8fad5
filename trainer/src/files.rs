//! Rollout files.

use std::path::Path;

use anyhow::{Context, Result};
use lockstep::RolloutsBuf;

/// Reads a rollout file. Also returns the names of its tensors that are not columns; `allow_extra` permits
/// those.
pub fn read_rollouts(path: &Path, allow_extra: bool) -> Result<(RolloutsBuf, Vec<String>)> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read rollouts {}", path.display()))?;
    RolloutsBuf::from_safetensors(&bytes, allow_extra).with_context(|| path.display().to_string())
}

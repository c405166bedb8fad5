//! Rollout files, and short texts.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use lockstep::RolloutsBuf;

/// Reads a rollout file. Also returns the names of its tensors that are not columns; `allow_extra` permits
/// those.
pub fn read_rollouts(path: &Path, allow_extra: bool) -> Result<(RolloutsBuf, Vec<String>)> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read rollouts {}", path.display()))?;
    RolloutsBuf::from_safetensors(&bytes, allow_extra).with_context(|| path.display().to_string())
}

/// Reads a text of at most 1 MiB: a device such as /dev/zero has no end.
pub fn read_text(path: &Path) -> Result<String> {
    const MOST: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MOST, "expected a text of at most 1 MiB");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_file_without_an_end_is_refused() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "expected a text of at most 1 MiB");
    }
}

//! The metadata note (code object v5): names of kernels, their arguments, limits of a launch.

use super::object::LoadError;
use serde::Deserialize;

/// A kernel of the note.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Note {
    #[serde(rename = ".name")]
    pub(super) name: String,
    #[serde(rename = ".symbol")]
    pub(super) symbol: String,
    #[serde(rename = ".args", default)]
    pub(super) arguments: Vec<Argument>,
    #[serde(rename = ".kernarg_segment_size")]
    pub(super) kernarg: u32,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub(super) max_threads: u32,
    #[serde(rename = ".wavefront_size")]
    pub(super) wavefront: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub(super) dynamic_stack: bool,
}

/// An argument of a kernel.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Argument {
    /// First byte in the argument segment.
    #[serde(rename = ".offset")]
    pub offset: u32,
    /// Bytes.
    #[serde(rename = ".size")]
    pub size: u32,
    /// `by_value`, `global_buffer`, `hidden_…`.
    #[serde(rename = ".value_kind")]
    pub kind: String,
}

impl Argument {
    /// Returns whether the launcher supplies it, not the caller.
    pub fn hidden(&self) -> bool {
        self.kind.starts_with("hidden_")
    }
}

#[derive(Deserialize)]
struct Notes {
    #[serde(rename = "amdhsa.target")]
    target: String,
    #[serde(rename = "amdhsa.kernels", default)]
    kernels: Vec<Note>,
}

/// `NT_AMDGPU_METADATA`.
const METADATA: u32 = 32;
/// Maximum number of argument bytes of a kernel: more means a broken file.
const MAX_KERNARG: u32 = 1 << 16;

/// Reads the kernels of a section of notes.
pub(super) fn read(section: &[u8]) -> Result<Vec<Note>, LoadError> {
    let message = message(section).ok_or_else(|| LoadError::new("no AMDGPU metadata"))?;
    let notes: Notes =
        rmp_serde::from_slice(message).map_err(|error| LoadError::new(format!("metadata: {error}")))?;
    if notes.target.split(':').next() != Some("amdgcn-amd-amdhsa--gfx942") {
        return Err(LoadError::new(format!("for {}", notes.target)));
    }
    for note in &notes.kernels {
        let inside = |a: &Argument| a.offset.checked_add(a.size).is_some_and(|end| end <= note.kernarg);
        if note.kernarg > MAX_KERNARG || !note.arguments.iter().all(inside) {
            return Err(LoadError::new(format!("arguments of `{}` beyond their segment", note.name)));
        }
    }
    Ok(notes.kernels)
}

fn message(mut notes: &[u8]) -> Option<&[u8]> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    loop {
        let (name, size, kind) = (word(notes, 0)? as usize, word(notes, 4)? as usize, word(notes, 8)?);
        let start = name.checked_next_multiple_of(4)?.checked_add(12)?;
        let end = start.checked_add(size)?;
        if kind == METADATA && notes.get(12..)?.starts_with(b"AMDGPU\0") {
            return notes.get(start..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

//! Lockstep's own tools, as a library, so that the checks are tested and run in an ordinary `cargo test`.
//!
//! `cargo xtask artifacts` builds the GPU code ([`device`], with the tools that [`toolchain`] finds), reads
//! the results ([`ptx`], [`gfx942`], [`resources`], [`speed`]) and writes them to `kernels/artifacts`;
//! `cargo xtask layers` holds the workspace to its [`layers`]; `cargo xtask divisions` keeps `/` out of
//! kernels ([`divisions`]); `cargo xtask width` keeps lines short ([`width`]); `cargo xtask links` finds
//! references to files that do not exist ([`links`]); `cargo xtask emulate` runs programs on emulated GPUs
//! ([`emulate`]); `cargo xtask site` writes the site of recipes ([`site`]). The checks read text and need no
//! toolchain.
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod code_object;
pub mod device;
pub mod divisions;
pub mod emulate;
pub mod gfx942;
pub mod ir;
pub mod layers;
pub mod links;
pub mod mutants;
pub mod packed;
pub mod ptx;
pub mod resources;
pub mod site;
pub mod speed;
pub mod toolchain;
pub mod traffic;
pub mod width;

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};
use std::fmt::Display;
use std::path::Path;

/// A violation of a rule by a built kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The entry point, or the file as a whole.
    pub entry: String,
    /// Line number in the text, from 1; 0 if there is none.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl Fault {
    /// Creates a fault at a line of an entry point.
    pub fn new(entry: &str, line: usize, what: impl Into<String>) -> Fault {
        Fault { entry: entry.to_owned(), line, what: what.into() }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.entry, self.what),
            line => write!(f, "{}, line {line}: {}", self.entry, self.what),
        }
    }
}

/// Errors: the list of `what` is not empty.
pub fn none(what: impl Display, list: &[impl Display]) -> Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    let list: String = list.iter().map(|item| format!("\n  {item}")).collect();
    bail!("{what}:{list}")
}

/// Every entry point of the table with its op, in table order.
pub fn entries() -> Vec<(&'static str, &'static str)> {
    lockstep_core::op::OPS.iter().flat_map(|op| op.entries.iter().map(|entry| (op.name, *entry))).collect()
}

/// Every entry point in which a block of warps shares a row: NVIDIA's alone.
pub fn blocks() -> Vec<&'static str> {
    lockstep_core::op::OPS.iter().flat_map(|op| op.blocks).copied().collect()
}

/// The differences between a list of entry points and the table's.
pub fn same_entries(of: &str, found: &[&str], wanted: &[&str]) -> Vec<Fault> {
    let missing = wanted.iter().filter(|entry| !found.contains(entry));
    let extra = found.iter().filter(|name| !wanted.contains(name));
    let fault = |name: &str, what: &str| Fault::new(name, 0, format!("{what} {of}"));
    missing
        .map(|entry| fault(entry, "is in the table of ops but not in the"))
        .chain(extra.map(|name| fault(name, "is not in the table of ops but in the")))
        .collect()
}

/// The workspace that `folder` belongs to.
pub fn workspace(folder: &Path) -> Result<Metadata> {
    MetadataCommand::new()
        .current_dir(folder)
        .no_deps()
        .exec()
        .with_context(|| format!("no cargo metadata of {}", folder.display()))
}

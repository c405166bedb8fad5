//! `cargo xtask`: see `cargo xtask help`.

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;

/// Lockstep's own tools.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Rebuild kernels/artifacts: PTX, gfx942 code object, its listing, resource tables, record of the toolchain
    Artifacts {
        /// Write nothing: fail when the same toolchain gives other bytes than the committed ones, report when another one does
        #[arg(long)]
        check: bool,
    },
    /// Fail when a folder uses one that the table in xtask/src/layers.rs does not give it
    Layers,
    /// Fail when `core` divides floats with `/` in what may run on a GPU
    Divisions,
    /// Fail when a link of a Markdown file, or a document that a source mentions, is not in the repository
    Links,
    /// Change the formulas of core one by one; fail when a change passes every check: docs/mutants.md
    Mutants(xtask::mutants::Options),
    /// Run a program on the emulated driver libraries: docs/emulator.md
    Emulate {
        /// Take conformance's example as `cargo test --workspace --release` has built it
        #[arg(long)]
        built: bool,
        /// cuda or rocm; both, side by side, if none is given
        backend: Option<String>,
        /// The program and its arguments; arguments alone (`-- --cases 50`) are those of conformance's example `emulated`
        #[arg(last = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = || -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        match Arguments::parse().command {
            Command::Artifacts { check } => xtask::artifacts::run(&root, check),
            Command::Layers => xtask::layers::run(&root),
            Command::Divisions => xtask::divisions::run(&root),
            Command::Links => xtask::links::run(&root),
            Command::Mutants(options) => xtask::mutants::run(&root, &options),
            Command::Emulate { built, backend, words } => {
                xtask::emulate::run(&root, backend.as_deref(), &words, built)
            }
        }
    };
    match done() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

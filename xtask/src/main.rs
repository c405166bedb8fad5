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
    /// Rebuild kernels/artifacts: PTX, gfx942 code object and its listing, resource tables, toolchain record
    Artifacts {
        /// Write nothing; fail if the recorded toolchain gives different bytes from the committed ones, and
        /// only report it for another toolchain
        #[arg(long)]
        check: bool,
        /// Write it although a kernel is slower than the committed speed table has it
        #[arg(long)]
        slower: bool,
    },
    /// Fail if a folder uses one that the table in xtask/src/layers.rs does not allow it
    Layers,
    /// Fail if code of `core` that may run on a GPU divides floats with `/`
    Divisions,
    /// Fail if a line of a tracked Rust file is longer than 110 characters
    Width,
    /// Fail if a link of a Markdown file, or a document that a source mentions, is not in the repository
    Links,
    /// Mutate the formulas of core one at a time; fail if a change passes every check: docs/mutants.md
    Mutants(xtask::mutants::Options),
    /// Write target/site: a page for every recipe, and the library as WebAssembly: docs/site.md
    Site,
    /// Run a program on the emulated driver libraries: docs/emulator.md
    Emulate {
        /// Use conformance's example as built by `cargo test --workspace --release`
        #[arg(long)]
        built: bool,
        /// cuda or rocm; without it both run, side by side
        backend: Option<String>,
        /// The program and its arguments; arguments alone (`-- --cases 50`) go to conformance's example
        /// `emulated`
        #[arg(last = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = || -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        match Arguments::parse().command {
            Command::Artifacts { check, slower } => xtask::artifacts::run(&root, check, slower),
            Command::Layers => xtask::layers::run(&root),
            Command::Divisions => xtask::divisions::run(&root),
            Command::Width => xtask::width::run(&root),
            Command::Links => xtask::links::run(&root),
            Command::Mutants(options) => xtask::mutants::run(&root, &options),
            Command::Site => xtask::site::run(&root),
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

//! `cargo xtask site`: builds the library for the browser and writes the pages around it.

use crate::toolchain::{compiler, tool};
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

const HELP: &str = "the site cannot be built here: it needs a Rust compiler with the target \
                    wasm32-unknown-unknown and with library sources:
      Debian:    apt-get install rustc-web cargo-web rust-web-src lld-19
      elsewhere: rustup toolchain install nightly --component rust-src
      or set LOCKSTEP_RUSTC to one, with `cargo` beside it";

/// Runs the command.
pub fn run(root: &Path) -> Result<()> {
    let rustc = compiler(&[TARGET]).context(HELP)?;
    let target = workspace(root)?.target_directory.into_std_path_buf();
    let build = target.join("web");
    let mut module = Command::new(rustc.with_file_name("cargo"));
    module
        .current_dir(root)
        .env("RUSTC", &rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &build)
        .args([
            "build",
            "--release",
            "--quiet",
            "--package",
            "lockstep-web",
            "--no-default-features",
            "--lib",
        ])
        .args(["-Zbuild-std=std,panic_abort", "-Zbuild-std-features=", "--target", TARGET]);
    // Debian's compiler comes without its own linker.
    if let Some(linker) = tool("LOCKSTEP_WASM_LD", &["wasm-ld-19", "wasm-ld"]) {
        module.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    }
    finished(&mut module)?;
    // The whole workspace and an example, so that its crates have the features of its tests and are compiled
    // once.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = ["build", "--release", "--quiet", "--workspace", "--bin", "site", "--example", "embedded"];
    finished(Command::new(cargo).current_dir(root).args(built))?;
    let launches = build.join("launches.bin");
    finished(Command::new(target.join("release/examples/embedded")).arg(&launches))?;
    finished(
        Command::new(target.join("release/site"))
            .arg("write")
            .arg(build.join(TARGET).join("release/lockstep_web.wasm"))
            .arg(launches)
            .arg(target.join("site")),
    )
}

fn finished(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

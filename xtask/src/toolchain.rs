//! The tools that build and measure GPU code: where they are, their versions, and how to get missing ones.
//! Nothing is installed.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools that were found.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The cargo that belongs to the compiler below.
    pub cargo: PathBuf,
    /// A compiler with both GPU targets and library sources.
    pub rustc: PathBuf,
    /// LLVM's linker.
    pub lld: PathBuf,
    /// LLVM's disassembler.
    pub objdump: PathBuf,
    /// NVIDIA's assembler.
    pub ptxas: PathBuf,
    /// NVIDIA's disassembler.
    pub nvdisasm: PathBuf,
}

/// Versions of the tools, as recorded with the artifacts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Lines of `rustc --version --verbose`, including LLVM's version.
    pub rustc: Vec<String>,
    /// Links the code object.
    pub lld: String,
    /// Writes the listing.
    pub objdump: String,
    /// Counts registers.
    pub ptxas: String,
    /// Shows what it assembled.
    pub nvdisasm: String,
}

const TARGETS: [&str; 2] = ["nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa"];

const HELP_RUSTC: &str =
    "a Rust compiler with the targets nvptx64-nvidia-cuda and amdgcn-amd-amdhsa and with library sources:
      Debian:    apt-get install rustc-web cargo-web rust-web-src
      elsewhere: rustup toolchain install nightly --component rust-src
      or set LOCKSTEP_RUSTC to one, with `cargo` beside it";
const HELP_LLD: &str = "LLVM's linker ld.lld, 19 or later:
      Debian: apt-get install lld-19         or set LOCKSTEP_LLD";
const HELP_OBJDUMP: &str = "LLVM's disassembler llvm-objdump, 19 or later:
      Debian: apt-get install llvm-19        or set LOCKSTEP_OBJDUMP";
const HELP_PTXAS: &str = "NVIDIA's assembler ptxas, 13 or later (it needs no GPU):
      python3 -m pip install nvidia-cuda-nvcc
      or unpack that wheel anywhere and set LOCKSTEP_PTXAS to its nvidia/cu13/bin/ptxas; the CUDA toolkit's \
      does too, in PATH";
const HELP_NVDISASM: &str = "NVIDIA's disassembler nvdisasm, of the same version (it needs no GPU):
      python3 -m pip install nvidia-cuda-nvdisasm
      or unpack that wheel anywhere and set LOCKSTEP_NVDISASM to its nvidia/cu13/bin/nvdisasm; the CUDA \
      toolkit's does too, in PATH";

impl Toolchain {
    /// Finds the tools: in the environment first, then in PATH, then where Debian and pip install them. The
    /// error names everything that is missing and how to get it.
    pub fn find() -> Result<Toolchain> {
        let mut missing = Vec::new();
        let mut need = |found: Option<PathBuf>, help: &str| {
            if found.is_none() {
                missing.push(format!("  - {help}"));
            }
            found.unwrap_or_default()
        };
        let rustc = need(compiler(&TARGETS), HELP_RUSTC);
        let lld = need(tool("LOCKSTEP_LLD", &["ld.lld-19", "ld.lld"]), HELP_LLD);
        let objdump = need(tool("LOCKSTEP_OBJDUMP", &["llvm-objdump-19", "llvm-objdump"]), HELP_OBJDUMP);
        let ptxas = need(tool("LOCKSTEP_PTXAS", &["ptxas"]).or_else(|| of_pip("ptxas")), HELP_PTXAS);
        let nvdisasm = tool("LOCKSTEP_NVDISASM", &["nvdisasm"]).or_else(|| of_pip("nvdisasm"));
        let nvdisasm = need(nvdisasm, HELP_NVDISASM);
        if !missing.is_empty() {
            bail!("the artifacts cannot be built here; missing:\n{}", missing.join("\n"));
        }
        Ok(Toolchain { cargo: rustc.with_file_name("cargo"), rustc, lld, objdump, ptxas, nvdisasm })
    }

    /// The tools' versions.
    pub fn versions(&self) -> Result<Versions> {
        let line = |tool: &Path, marker: &str| -> Result<String> {
            let text = output(Command::new(tool).arg("--version"))?;
            let line = text.lines().find(|line| line.contains(marker));
            Ok(line.with_context(|| format!("{}: no version", tool.display()))?.trim().to_owned())
        };
        Ok(Versions {
            rustc: output(Command::new(&self.rustc).arg("-vV"))?.lines().map(str::to_owned).collect(),
            lld: line(&self.lld, "LLD")?,
            objdump: line(&self.objdump, "LLVM version")?,
            ptxas: line(&self.ptxas, "Cuda compilation tools")?,
            nvdisasm: line(&self.nvdisasm, "Cuda compilation tools")?,
        })
    }
}

/// What a command prints. Errors: the command fails.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !done.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&done.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Candidate compilers, the preferred one first.
fn compilers() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("LOCKSTEP_RUSTC") {
        return vec![path.into()];
    }
    let nightly = output(Command::new("rustup").args(["which", "--toolchain", "nightly", "rustc"]));
    let nightly = nightly.ok().map(|path| PathBuf::from(path.trim()));
    [PathBuf::from("/usr/bin/rustc")].into_iter().chain(nightly).collect()
}

/// The first compiler with library sources that knows these targets.
pub fn compiler(targets: &[&str]) -> Option<PathBuf> {
    compilers().into_iter().find(|rustc| builds_for(rustc, targets))
}

fn builds_for(rustc: &Path, wanted: &[&str]) -> bool {
    let ask = |what| output(Command::new(rustc).args(["--print", what])).unwrap_or_default();
    let targets = ask("target-list");
    let sources = Path::new(ask("sysroot").trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
    let known = |target: &str| targets.lines().any(|line| line == target);
    rustc.with_file_name("cargo").is_file() && sources.is_file() && wanted.iter().all(|target| known(target))
}

/// The tool that the variable names, or the first of these names found in PATH.
pub fn tool(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(PathBuf::from(path)).filter(|path| path.is_file());
    }
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// A tool that `pip install nvidia-cuda-…` installed.
fn of_pip(tool: &str) -> Option<PathBuf> {
    let list = "import sys, sysconfig, pathlib; site = pathlib.Path(sysconfig.get_path('purelib'));
print(*site.glob('nvidia/*/bin/' + sys.argv[1]), sep='\\n')";
    let paths = output(Command::new("python3").args(["-c", list, tool])).ok()?;
    paths.lines().map(PathBuf::from).find(|path| path.is_file())
}

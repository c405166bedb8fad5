//! `cargo xtask emulate`: runs programs on the emulated driver libraries, which they load as they would a
//! vendor's.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// An emulated library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// The backend that loads it.
    pub backend: &'static str,
    /// Its package.
    package: &'static str,
    /// The file name that cargo gives it.
    built: &'static str,
    /// The file name under which the backend looks for it.
    name: &'static str,
}

/// Both emulated libraries.
pub const LIBRARIES: [Library; 2] = [
    Library {
        backend: "cuda",
        package: "lockstep-emulated-cuda",
        built: "liblockstep_emulated_cuda.so",
        name: "libcuda.so.1",
    },
    Library {
        backend: "rocm",
        package: "lockstep-emulated-hip",
        built: "liblockstep_emulated_hip.so",
        name: "libamdhip64.so",
    },
];

/// Builds the libraries and runs a command on each. The command is `words`; if they begin with `--` or are
/// empty, they are the arguments of conformance's example `emulated`. That example is built first unless
/// `built` is set: the workspace's tests build it too.
pub fn run(root: &Path, backend: Option<&str>, words: &[String], built: bool) -> Result<()> {
    let target = workspace(root)?.target_directory.into_std_path_buf();
    let asked: Vec<Library> = LIBRARIES
        .into_iter()
        .filter(|library| backend.is_none_or(|backend| backend == library.backend))
        .collect();
    if asked.is_empty() {
        bail!("{}: expected cuda or rocm", backend.unwrap_or_default());
    }
    for library in &asked {
        cargo(root, &["-p", library.package])?;
        lay(&target, library)?;
    }
    let ours = words.first().is_none_or(|word| word.starts_with("--"));
    if ours && !built {
        cargo(root, &["-p", "lockstep-conformance", "--example", "emulated"])?;
    }
    let command = |library: &Library| -> Result<Command> {
        let mut command = if ours {
            let mut command = Command::new(target.join("release/examples/emulated"));
            command.args(["--backend", library.backend]).args(words);
            command
        } else {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        };
        let path = path(&folder(&target, library))?;
        command.env("LD_LIBRARY_PATH", path).env("LOCKSTEP_REQUIRE", library.backend);
        Ok(command)
    };
    if let [library] = &asked[..] {
        let status = command(library)?.status().context("the command did not start")?;
        return finished(library, status);
    }
    // They run side by side, and their output is printed one after the other.
    let mut running = Vec::new();
    for library in &asked {
        let mut command = command(library)?;
        running.push((library, std::thread::spawn(move || command.output())));
    }
    let mut results = Vec::new();
    for (library, output) in running {
        let Ok(output) = output.join() else { bail!("{}: the command's thread panicked", library.backend) };
        let output = output.context("the command did not start")?;
        print!("--- {}\n{}", library.backend, String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        results.push(finished(library, output.status));
    }
    results.into_iter().collect()
}

fn finished(library: &Library, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("the command on the emulated {}: {status}", library.name);
    }
    Ok(())
}

/// The folder of a library.
fn folder(target: &Path, library: &Library) -> PathBuf {
    target.join("emulated").join(library.backend)
}

/// Installs a built library where a loader finds it.
fn lay(target: &Path, library: &Library) -> Result<()> {
    let (folder, built) = (folder(target, library), target.join("release").join(library.built));
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    // Not by overwriting the old file: a program may have it mapped.
    let new = folder.join(format!("{}.{}", library.name, std::process::id()));
    fs::copy(&built, &new).with_context(|| format!("{} was not built", built.display()))?;
    fs::rename(&new, folder.join(library.name))?;
    Ok(())
}

/// The loader's path with this folder prepended.
fn path(folder: &Path) -> Result<OsString> {
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_owned())
        .chain(std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty()));
    Ok(std::env::join_paths(all)?)
}

fn cargo(root: &Path, words: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--release", "--quiet"]).args(words);
    if !command.status()?.success() {
        bail!("cargo build --release {} failed", words.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_have_the_names_that_the_backends_look_for() {
        for (library, source) in LIBRARIES
            .iter()
            .zip([include_str!("../../cuda/src/driver.rs"), include_str!("../../rocm/src/driver.rs")])
        {
            assert!(source.contains(&format!("\"{}\"", library.name)), "{library:?}");
        }
    }

    #[test]
    fn the_folder_comes_before_others() -> Result<()> {
        let path = path(Path::new("/here"))?;
        assert_eq!(std::env::split_paths(&path).next(), Some(PathBuf::from("/here")));
        Ok(())
    }

    #[test]
    fn another_backend_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(run(&root, Some("metal"), &[], false).is_err());
    }
}

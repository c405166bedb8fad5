//! Compiles the kernels for one GPU target. The output depends only on source and toolchain, not on the
//! location of the checkout, the build folder or the environment.

use crate::toolchain::{Toolchain, output};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A target and its build flags.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The target's name in Rust.
    pub triple: &'static str,
    /// The processor's name in Rust. Everything later runs the same PTX; a code object runs only on this
    /// processor.
    pub cpu: &'static str,
    /// A flag that only this target needs.
    own: Option<&'static str>,
    /// The compiler's output: kind and extension.
    emit: (&'static str, &'static str),
}

/// NVIDIA from sm_80 on, as text.
pub const PTX: Target = Target { triple: "nvptx64-nvidia-cuda", cpu: "sm_80", own: None, emit: ("asm", "s") };
/// AMD gfx942, as an object of version 5, which ROCm 6.0 reads; LLVM 22 would by default make version 6,
/// which needs 6.3. Loops are not strength-reduced: that keeps two more scalar registers for each array, and
/// kernels with a KL term spilled.
pub const GFX942: Target = Target {
    triple: "amdgcn-amd-amdhsa",
    cpu: "gfx942",
    own: Some("-C llvm-args=--amdhsa-code-object-version=5 --disable-lsr"),
    emit: ("obj", "o"),
};

/// Keeps operations from being packed in pairs (`v_pk_fma_f32`): packing saved no register anywhere and cost
/// a few scalar ones, and the listing's check knows every instruction by name.
const NO_PACKING: &str = "-C no-vectorize-slp";

/// The compiler's output.
#[derive(Clone, Debug)]
pub struct Built {
    /// Path of the text or object.
    pub path: PathBuf,
    /// The optimised LLVM IR that it was made from.
    pub ir: String,
}

impl Target {
    /// The target's flags, for the record.
    pub fn flags(&self) -> String {
        let Target { triple, cpu, own, emit } = self;
        let own = own.map(|own| format!(" {own}")).unwrap_or_default();
        let flags = format!("-C target-cpu={cpu} {NO_PACKING}{own}");
        format!("--profile device --target {triple} -Zbuild-std=core {flags} --emit={}", emit.0)
    }

    /// Compiles the crate `lockstep-kernels`, always from scratch.
    pub fn build(&self, tools: &Toolchain, root: &Path, build: &Path) -> Result<Built> {
        // Cargo builds once at a time in a folder.
        let build = &build.join(self.cpu);
        let folder = build.join(self.triple).join("device");
        // Left-over files would be mistaken for results, and a result that cargo considers fresh would not be
        // rewritten.
        remove(&folder.join("deps"), "lockstep_kernels-")?;
        remove(&folder.join(".fingerprint"), "lockstep-kernels-")?;

        let mut remap = OsString::from("--remap-path-prefix=");
        remap.push(root);
        remap.push("=lockstep");
        let cpu = format!("-Ctarget-cpu={}", self.cpu);
        let mut flags: Vec<OsString> = vec![cpu.into(), NO_PACKING.replace(' ', "").into(), remap];
        flags.extend(self.own.map(|own| own.replacen(' ', "", 1).into()));
        let mut command = Command::new(&tools.cargo);
        for (name, _) in std::env::vars_os() {
            let ours = |name: &str| {
                (name.starts_with("CARGO") && name != "CARGO_HOME")
                    || name.starts_with("RUST") && name != "RUSTUP_HOME"
            };
            if name.to_str().is_some_and(ours) {
                command.env_remove(name);
            }
        }
        command
            .current_dir(root)
            .env("RUSTC", &tools.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_DIR", build)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}".as_ref()))
            .args([
                "rustc",
                "--quiet",
                "--locked",
                "--profile",
                "device",
                "--package",
                "lockstep-kernels",
                "--lib",
            ])
            .args(["-Zbuild-std=core", "--target", self.triple, "--crate-type", "staticlib", "--"])
            .arg(format!("--emit={},llvm-ir", self.emit.0));
        let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
        if !status.success() {
            bail!("{} does not compile ({status}): {command:?}", self.triple);
        }
        let ir = only(&folder.join("deps"), "ll")?;
        let ir = std::fs::read_to_string(&ir).with_context(|| ir.display().to_string())?;
        Ok(Built { path: only(&folder.join("deps"), self.emit.1)?, ir })
    }
}

/// The linker's options, for the record.
pub const LINK: &str = "-shared";

/// Links an object into a code object.
pub fn link(tools: &Toolchain, object: &Path, to: &Path) -> Result<()> {
    output(Command::new(&tools.lld).arg(LINK).arg("-o").arg(to).arg(object)).map(|_| ())
}

/// The disassembler's options, for the record.
pub const LIST: &str = "-d --mcpu=gfx942 --no-show-raw-insn --no-leading-addr --symbolize-operands";

/// The listing of a code object, without paths and addresses.
pub fn list(tools: &Toolchain, object: &Path) -> Result<String> {
    let text = output(Command::new(&tools.objdump).args(LIST.split(' ')).arg(object))?;
    let code = text.split_once("Disassembly of section .text:").context("no disassembly")?.1;
    Ok(tidy(code))
}

/// A zero word as the disassembler prints it; they lie between kernels.
const PADDING: [&str; 2] = ["...", "v_cndmask_b32_e32 v0, s0, v0, vcc"];

/// Strips remarks and padding from the disassembler's text and numbers labels from 0 within each kernel, so
/// that a change to one kernel changes only its own lines.
fn tidy(code: &str) -> String {
    let mut kernels: Vec<Vec<&str>> = Vec::new();
    for line in code.lines() {
        let line = line.split("//").next().unwrap_or_default().trim_end();
        if line.starts_with('<') && defined(line).is_none() {
            kernels.push(Vec::new());
        }
        if let Some(kernel) = kernels.last_mut() {
            kernel.push(line);
        }
    }
    kernels.into_iter().map(tidy_kernel).collect::<Vec<_>>().join("\n")
}

fn tidy_kernel(mut lines: Vec<&str>) -> String {
    while lines.last().is_some_and(|last| last.is_empty() || PADDING.contains(&last.trim())) {
        lines.pop();
    }
    let labels: Vec<&str> = lines.iter().filter_map(|line| defined(line)).collect();
    let number = |label: &str| labels.iter().position(|known| *known == label);
    let tidy = |line: &str| {
        let (start, last) = line.split_at(line.rfind(' ').map_or(0, |at| at + 1));
        match (defined(line).and_then(number), number(last).filter(|_| start.contains("branch"))) {
            (Some(number), _) => format!("<L{number}>:\n"),
            (None, Some(number)) => format!("{start}L{number}\n"),
            (None, None) => format!("{line}\n"),
        }
    };
    lines.iter().map(|line| tidy(line)).collect()
}

/// The label that a line defines: `<L347>:`.
fn defined(line: &str) -> Option<&str> {
    let label = line.strip_prefix('<')?.strip_suffix(">:")?;
    label.strip_prefix('L')?.parse::<usize>().ok().map(|_| label)
}

fn remove(folder: &Path, prefix: &str) -> Result<()> {
    let Ok(list) = folder.read_dir() else { return Ok(()) };
    for entry in list {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) {
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn only(folder: &Path, extension: &str) -> Result<PathBuf> {
    let list = folder.read_dir().with_context(|| folder.display().to_string())?;
    let mut found: Vec<PathBuf> = list.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("lockstep_kernels-") && path.extension().is_some_and(|e| e == extension)
    });
    match &found[..] {
        [path] => Ok(path.clone()),
        _ => bail!("expected one lockstep_kernels-*.{extension} in {}, found {found:?}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::tidy;

    #[test]
    fn labels_are_counted_in_each_kernel() {
        let code = "

<first>:
	s_cbranch_scc1 L0                                          // 00000001DB34: BF870156

<L0>:
	s_endpgm                                                   // 00000001DB38: BF810000
	v_cndmask_b32_e32 v0, s0, v0, vcc                          // 00000001DB3C: 00000000

<second>:
	s_branch L1                                                // 00000001DB40: BF820000

<L1>:
	v_cndmask_b32_e32 v0, s0, v0, vcc
	s_endpgm
		...
";
        let wanted = "<first>:
	s_cbranch_scc1 L0

<L0>:
	s_endpgm

<second>:
	s_branch L0

<L0>:
	v_cndmask_b32_e32 v0, s0, v0, vcc
	s_endpgm
";
        assert_eq!(tidy(code), wanted);
    }
}

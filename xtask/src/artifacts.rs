//! `cargo xtask artifacts`: builds the GPU code, checks it, and writes or compares `kernels/artifacts`.

use crate::code_object::{self, Kernel};
use crate::device::{self, GFX942, PTX};
use crate::resources::{self, PROCESSORS, Row};
use crate::speed::{self, sass};
use crate::toolchain::{Toolchain, Versions, output};
use crate::{Fault, blocks, entries, gfx942, ir, none, packed, ptx, same_entries, workspace};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;

/// The artifacts: a field and the file that holds it.
macro_rules! artifacts {
    ($($field:ident: $kind:ty = $file:literal,)*) => {
        const FILES: [&str; 9] = [$($file),*];

        /// The build artifacts, in memory.
        #[derive(Clone, Debug, Default)]
        pub struct Artifacts {
            $(#[doc = concat!("`", $file, "`.")] pub $field: $kind,)*
        }

        impl Artifacts {
            fn files(&self) -> [(&'static str, &[u8]); 9] {
                [$(($file, AsRef::<[u8]>::as_ref(&self.$field))),*]
            }

            /// Reads the artifacts from a folder.
            pub fn read(folder: &Path) -> Result<Artifacts> {
                let bytes = |name: &str| {
                    let path = folder.join(name);
                    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
                };
                Ok(Artifacts { $($field: <$kind>::try_from(bytes($file)?)?),* })
            }
        }
    };
}

artifacts! {
    ptx: String = "lockstep.ptx",
    object: Vec<u8> = "lockstep.gfx942.co",
    listing: String = "lockstep.gfx942.lst",
    resources: String = "resources.csv",
    tables: String = "resources.md",
    speed: String = "speed.csv",
    costs: String = "speed.md",
    record: String = "toolchain.toml",
    packed: Vec<u8> = "lockstep.ptx.zst",
}

/// `toolchain.toml`: the tools and flags that made the artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Versions of the tools.
    pub versions: Versions,
    /// The flags they were called with, by artifact.
    pub flags: BTreeMap<String, String>,
}

/// The artifacts' folder in the repository.
pub fn folder(root: &Path) -> PathBuf {
    root.join("kernels/artifacts")
}

impl Artifacts {
    /// Checks all rules that can be checked without a toolchain.
    pub fn faults(&self) -> Result<Vec<Fault>> {
        let rows = resources::from_csv(&self.resources)?;
        let kernels = code_object::kernels(&self.object)?;
        let modules = ptx::parse(&self.ptx)?;
        let listed = gfx942::parse(&self.listing)?;
        let costs = speed::from_csv(&self.speed)?;

        let mut faults = Vec::new();
        let found: [(&str, Vec<&str>); 5] = [
            ("PTX", modules.functions.iter().map(|function| &function.name[..]).collect()),
            ("code object", kernels.keys().map(String::as_str).collect()),
            ("listing", listed.iter().map(|function| &function.name[..]).collect()),
            ("resource table", rows.iter().map(|row| &row.entry[..]).collect()),
            ("speed table", costs.iter().map(|row| &row.entry[..]).collect()),
        ];
        for (what, found) in found {
            let mut wanted: Vec<&str> = entries().iter().map(|(_, entry)| *entry).collect();
            if what == "PTX" {
                wanted.extend(blocks());
            }
            faults.extend(same_entries(what, &found, &wanted));
        }
        faults.extend(code_object::check(&kernels));
        faults.extend(resources::check(&rows));
        faults.extend(ptx::check(&modules));
        faults.extend(gfx942::check(&listed));
        faults.extend(agree(&rows, &kernels, &modules.fused(), &gfx942::fused(&listed)));
        faults.extend(speed::agree(&costs, &rows, &speed::codes(&listed)?)?);
        Ok(faults)
    }
}

/// Checks that the resource table agrees with the artifacts themselves.
fn agree(
    rows: &[Row],
    kernels: &BTreeMap<String, Kernel>,
    ptx: &BTreeMap<String, ir::Fused>,
    gfx942: &BTreeMap<String, ir::Fused>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for row in rows {
        for (of, wanted, found) in [
            ("PTX", row.ptx_fused, ptx.get(&row.entry)),
            ("PTX of a block", row.block_fused, ptx.get(&format!("{}_block", row.entry))),
            ("listing", row.gfx942_fused, gfx942.get(&row.entry)),
        ] {
            let found = found.map(|fused| [fused.single as u32, fused.double as u32]);
            if found.is_some_and(|found| found != wanted) {
                let what = format!(
                    "{of}: [f32, f64] fused multiply-adds are {found:?}, the source asks for {wanted:?}"
                );
                faults.push(Fault::new(&row.entry, 0, what));
            }
        }
        if kernels.get(&row.entry).is_some_and(|kernel| resources::of_kernel(kernel) != row.gfx942) {
            faults.push(Fault::new(&row.entry, 0, "resources.csv is not of this code object"));
        }
    }
    faults
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// NVIDIA's half of the artifacts.
struct Nvidia {
    built: device::Built,
    ptx: String,
    assembled: [BTreeMap<String, resources::Assembled>; 3],
    sass: Vec<speed::code::Code>,
}

fn nvidia(tools: &Toolchain, root: &Path, target: &Path, scratch: &Path) -> Result<Nvidia> {
    let built = PTX.build(tools, root, target)?;
    let ptx = resources::limited(&std::fs::read_to_string(&built.path)?)?;
    std::fs::write(&built.path, &ptx)?;
    let [a, b, c] = std::thread::scope(|scope| {
        let assemble = |processor| resources::assemble(&tools.ptxas, &built.path, processor, scratch);
        PROCESSORS.map(|processor| scope.spawn(move || assemble(processor))).map(joined)
    });
    let assembled = [a?, b?, c?];
    for (processor, kernels) in PROCESSORS.iter().zip(&assembled) {
        println!("ptxas: {} kernels for {processor}", kernels.len());
    }
    let cubin = scratch.join(format!("{}.cubin", speed::PROCESSOR));
    let disassembled = output(Command::new(&tools.nvdisasm).args(["-c", "-ndf"]).arg(&cubin))?;
    let sass = sass::parse(&disassembled, &std::fs::read(&cubin)?)?;
    Ok(Nvidia { built, ptx, assembled, sass })
}

/// Builds the artifacts. Errors: one of them breaks a rule.
pub fn build(tools: &Toolchain, root: &Path, target: &Path) -> Result<Artifacts> {
    let scratch = tempfile::tempdir()?;
    let versions = tools.versions()?;
    resources::supports(&tools.ptxas)?;

    // The two vendors' compilers side by side: each takes minutes of one core.
    let linked = scratch.path().join("lockstep.gfx942.co");
    let (nvidia, amd) = std::thread::scope(|scope| {
        let amd = scope.spawn(|| -> Result<_> {
            let object = GFX942.build(tools, root, target)?;
            device::link(tools, &object.path, &linked)?;
            let listing = device::list(tools, &linked)?;
            Ok((object, listing, std::fs::read(&linked)?))
        });
        (nvidia(tools, root, target, scratch.path()), joined(amd))
    });
    let Nvidia { built, ptx, assembled, sass } = nvidia?;
    let (object, listing, linked) = amd?;

    let mut faults = ir::check(&built.ir);
    faults.extend(ir::check(&object.ir));
    let kernels = code_object::kernels(&linked)?;
    let rows = resources::table(&assembled, &kernels, &ir::fused(&built.ir), &ir::fused(&object.ir))?;
    let costs = speed::table(&sass, &speed::codes(&gfx942::parse(&listing)?)?, &rows)?;
    let flags = [
        (FILES[0], PTX.flags()),
        (FILES[1], format!("{}; ld.lld {}", GFX942.flags(), device::LINK)),
        (FILES[2], format!("llvm-objdump {}", device::LIST)),
    ];
    let record = Record { versions, flags: flags.map(|(file, flags)| (file.to_owned(), flags)).into() };
    let artifacts = Artifacts {
        packed: packed::pack(&ptx)?,
        ptx,
        object: linked,
        listing,
        resources: resources::csv(&rows),
        tables: resources::markdown(&rows),
        speed: speed::csv(&costs),
        costs: speed::markdown(&costs),
        record: format!(
            "# Written by `cargo xtask artifacts`: what made the files beside it.\n\n{}",
            toml::to_string(&record)?
        ),
    };
    faults.extend(artifacts.faults()?);
    none(format!("{} faults in what was built", faults.len()), &faults)?;
    println!(
        "checked: {} kernels, PTX and gfx942: entry points, arithmetic, divergence, float mode, spills",
        rows.len()
    );
    Ok(artifacts)
}

/// Runs the command. `slower`: kernels may get slower than the committed table has them.
pub fn run(root: &Path, check: bool, slower: bool) -> Result<()> {
    let tools = Toolchain::find()?;
    let target = workspace(root)?.target_directory.join("device").into_std_path_buf();
    let built = build(&tools, root, &target)?;
    if check {
        let folder = folder(root);
        if !compare(&folder, &built)? {
            let scratch = tempfile::tempdir()?;
            for processor in PROCESSORS {
                let kernels =
                    resources::assemble(&tools.ptxas, &folder.join(FILES[0]), processor, scratch.path())?;
                println!("ptxas: {} committed kernels for {processor}", kernels.len());
            }
        }
        return Ok(());
    }
    if !slower {
        fast_enough(&folder(root), &built)?;
    }
    write(&folder(root), &built)
}

/// Errors: a kernel is slower than the committed table has it. Another toolchain counts differently.
fn fast_enough(folder: &Path, built: &Artifacts) -> Result<()> {
    let Ok(committed) = Artifacts::read(folder) else { return Ok(()) };
    if toml::from_str::<Record>(&committed.record)?.versions
        != toml::from_str::<Record>(&built.record)?.versions
    {
        return Ok(());
    }
    let faults = speed::worse(&speed::from_csv(&committed.speed)?, &speed::from_csv(&built.speed)?);
    if !faults.is_empty() {
        let list: Vec<String> = faults.iter().map(|fault| format!("  {fault}")).collect();
        bail!("slower than {}:\n{}\n`--slower` writes it all the same", FILES[5], list.join("\n"));
    }
    Ok(())
}

fn write(folder: &Path, built: &Artifacts) -> Result<()> {
    for (name, bytes) in built.files() {
        let path = folder.join(name);
        let same = std::fs::read(&path).is_ok_and(|old| old == bytes);
        if !same {
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        println!("{}: {} bytes, {}", path.display(), bytes.len(), if same { "unchanged" } else { "written" });
    }
    Ok(())
}

/// Compares the built artifacts with the committed ones. Errors: the recorded toolchain gives different
/// bytes. Another toolchain may give different bytes; the run then only shows that what it built passes every
/// check. Returns whether it was the recorded one.
fn compare(folder: &Path, built: &Artifacts) -> Result<bool> {
    let committed = Artifacts::read(folder)?;
    let [old, new] = [&committed.record, &built.record].map(|text| toml::from_str::<Record>(text));
    let (old, new) = (old.context("toolchain.toml")?, new?);
    let differences: Vec<String> = committed
        .files()
        .iter()
        .zip(built.files())
        .filter(|((_, old), (_, new))| old != new)
        .map(|((name, old), (_, new))| format!("  {name}: {}", first_difference(old, new)))
        .collect();
    if old.versions != new.versions {
        println!(
            "another toolchain than the recorded one:\n  recorded {:?}\n  here     {:?}",
            old.versions, new.versions
        );
        println!(
            "what it built passes every check; {} files differ:\n{}",
            differences.len(),
            differences.join("\n")
        );
        return Ok(false);
    }
    fast_enough(folder, built)?;
    if !differences.is_empty() {
        bail!(
            "the committed artifacts are not what this source and toolchain give:\n{}\n\
             run `cargo xtask artifacts` and commit",
            differences.join("\n")
        );
    }
    println!("identical: {} files of {}", FILES.len(), folder.display());
    Ok(true)
}

fn first_difference(old: &[u8], new: &[u8]) -> String {
    let sizes = format!("{} bytes committed, {} built", old.len(), new.len());
    let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else { return sizes };
    let lines = old.lines().zip(new.lines()).enumerate();
    match lines.map(|(i, pair)| (i + 1, pair)).find(|(_, (old, new))| old != new) {
        Some((line, (old, new))) => format!("{sizes}; line {line}: `{}` is now `{}`", old.trim(), new.trim()),
        None => sizes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifacts(ptxas: &str, flags: &str, ptx: &str) -> Result<Artifacts> {
        let versions = Versions { ptxas: ptxas.to_owned(), ..Versions::default() };
        let record = Record { versions, flags: [(FILES[0].to_owned(), flags.to_owned())].into() };
        Ok(Artifacts {
            ptx: ptx.to_owned(),
            object: vec![0x7f, 0xff],
            record: toml::to_string(&record)?,
            ..Artifacts::default()
        })
    }

    #[test]
    fn a_difference_is_an_error_unless_the_toolchain_is_another() -> Result<()> {
        let folder = tempfile::tempdir()?;
        assert!(
            compare(folder.path(), &artifacts("13.5", "-O3", "add.rn.f32")?).is_err(),
            "nothing committed"
        );
        write(folder.path(), &artifacts("13.5", "-O3", "add.rn.f32")?)?;
        assert!(compare(folder.path(), &artifacts("13.5", "-O3", "add.rn.f32")?)?);
        assert!(!compare(folder.path(), &artifacts("13.6", "-O3", "mul.rn.f32")?)?);

        let named = |built: &Artifacts| -> Vec<&str> {
            let error = compare(folder.path(), built).expect_err("a difference").to_string();
            FILES.into_iter().filter(|file| error.contains(&format!("{file}: "))).collect()
        };
        assert_eq!(named(&artifacts("13.5", "-O3", "mul.rn.f32")?), ["lockstep.ptx"]);
        assert_eq!(named(&artifacts("13.5", "-O2", "add.rn.f32")?), ["toolchain.toml"]);
        let mut object = artifacts("13.5", "-O3", "add.rn.f32")?;
        object.object.push(0);
        assert_eq!(named(&object), ["lockstep.gfx942.co"]);
        Ok(())
    }
}

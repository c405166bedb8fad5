//! The copy of the repository in which `core` holds all of its changes.

use super::hash;
use super::points::{self, Place};
use super::rewrite::{Written, rewrite};
use crate::toolchain::output;
use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders and files of `core/src` that hold no formula, or none that the plain level computes with:
/// launches, memory, lanes, blocks of rows on wide registers (compared with the plain level bit by bit).
const LEFT_OUT: [&str; 8] = [
    "op/",
    "team/",
    "ragged/",
    "routing/block/",
    "routing/gating_backward.rs: GatingBackward::block:",
    "error.rs",
    "lib.rs",
    "num/settle.rs",
];

/// Inlined into every op, the changes would be compiled for a quarter of an hour. Both have one length:
/// places stay where they are.
const INLINE: &str = "#[inline(always)]";
const SHORT: &str = "#[inline]        ";

/// One change of one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mutant {
    /// File below `core/src`.
    pub(super) file: String,
    /// Line, from 1.
    pub(super) line: usize,
    /// Column, from 1.
    pub(super) column: usize,
    /// Function, change and number: what it keeps when code moves.
    pub(super) name: String,
    /// By which it is chosen, from 1; another one in each build.
    pub(super) id: u32,
}

impl Mutant {
    /// File and name.
    pub(super) fn key(&self) -> String {
        format!("{} {}", self.file, self.name)
    }
}

/// The built copy.
pub(super) struct Built {
    /// Where everything lies, the copy in `tree`.
    pub(super) folder: PathBuf,
    /// Every change that compiles.
    pub(super) mutants: Vec<Mutant>,
    /// How many do not.
    pub(super) dropped: usize,
    /// Of the changed core; results are its own.
    pub(super) core: String,
    /// The same of everything that was built.
    pub(super) stamp: String,
    /// Programs by name: `mutants`, `all`, `lockstep_core`, `num_sample`.
    pub(super) programs: BTreeMap<String, PathBuf>,
}

struct Source {
    file: String,
    text: String,
    places: Vec<Place>,
    names: Vec<Vec<String>>,
    ids: Vec<Vec<u32>>,
}

/// Copies the repository at `root` to `folder/tree`, changes and builds it.
pub(super) fn build(root: &Path, folder: &Path) -> Result<Built> {
    let tree = folder.join("tree");
    let files =
        output(Command::new("git").current_dir(root).args(["ls-files", "-co", "--exclude-standard"]))?;
    let mut sources = Vec::new();
    for file in files.lines() {
        let Ok(bytes) = fs::read(root.join(file)) else { continue };
        let formula = file
            .strip_prefix("core/src/")
            .filter(|file| file.ends_with(".rs") && !LEFT_OUT.iter().any(|left| file.starts_with(left)));
        if let Some(file) = formula {
            sources.push(source(file, String::from_utf8(bytes)?.replace(INLINE, SHORT))?);
        } else if file.starts_with("core/src/") && file != "core/src/lib.rs" {
            write(&tree.join(file), String::from_utf8(bytes)?.replace(INLINE, SHORT).as_bytes())?;
        } else if file == "core/src/lib.rs" {
            let text = String::from_utf8(bytes)?;
            write(&tree.join(file), (text + "\n#[doc(hidden)]\npub mod mutant;\n").as_bytes())?;
        } else if file.starts_with("cpu-ref/src/") {
            // Plain alone, as on a processor that nobody knows.
            let text = String::from_utf8(bytes)?;
            let text = ["x86_64", "aarch64"]
                .iter()
                .fold(text, |text, arch| text.replace(&format!("target_arch = \"{arch}\""), "any()"));
            write(&tree.join(file), text.replace(INLINE, SHORT).as_bytes())?;
        } else {
            write(&tree.join(file), &bytes)?;
        }
    }
    write(&tree.join("conformance/examples/mutants.rs"), include_bytes!("worker.rs.txt"))?;
    let all: usize = sources.iter().flat_map(|source| &source.names).map(Vec::len).sum();
    number(&mut sources, &BTreeSet::new());
    let mut bad = BTreeSet::new();
    for round in 1.. {
        let count = number(&mut sources, &bad);
        let written = write_sources(&tree, &sources, count)?;
        let refused = refused(folder, &sources, &written)?;
        if refused.is_empty() {
            break;
        }
        println!("mutants: round {round}: {} places do not compile", refused.len());
        if round == 12 {
            bail!("places that do not compile are found again and again");
        }
        bad.extend(refused);
    }
    let mutants = mutants(&sources);
    let programs = programs(folder)?;
    let texts: Vec<&str> = sources.iter().map(|source| &source.text[..]).collect();
    let times: Vec<_> =
        programs.values().map(|path| fs::metadata(path)?.modified()).collect::<std::io::Result<_>>()?;
    let core = format!("{:08x}", hash(texts) as u32);
    let stamp = format!("{:08x}", hash(times) as u32);
    Ok(Built { folder: folder.to_owned(), dropped: all - mutants.len(), mutants, core, stamp, programs })
}

fn source(file: &str, text: String) -> Result<Source> {
    let mut places = points::places(&text).with_context(|| file.to_owned())?;
    let left_out = |place: &Place| LEFT_OUT.contains(&&*format!("{file}: {}:", place.function));
    places.retain(|place| !left_out(place));
    let names = points::names(&places);
    let ids = names.iter().map(|names| vec![0; names.len()]).collect();
    Ok(Source { file: file.to_owned(), text, places, names, ids })
}

/// Gives every change its number, except at places that do not compile; how many there are.
fn number(sources: &mut [Source], bad: &BTreeSet<(usize, usize)>) -> u32 {
    let mut last = 0;
    for (s, source) in sources.iter_mut().enumerate() {
        for (p, ids) in source.ids.iter_mut().enumerate() {
            for id in ids {
                last += u32::from(!bad.contains(&(s, p)));
                *id = if bad.contains(&(s, p)) { 0 } else { last };
            }
        }
    }
    last
}

fn mutants(sources: &[Source]) -> Vec<Mutant> {
    let mut all = Vec::new();
    for source in sources {
        for ((place, names), ids) in source.places.iter().zip(&source.names).zip(&source.ids) {
            for (name, &id) in names.iter().zip(ids).filter(|(_, id)| **id > 0) {
                let (line, column) = place.at;
                all.push(Mutant { file: source.file.clone(), line, column, name: name.clone(), id });
            }
        }
    }
    all
}

/// The files of core; for each, where its places came to stand.
fn write_sources(tree: &Path, sources: &[Source], count: u32) -> Result<Vec<Vec<Written>>> {
    let hook = include_str!("hook.rs.txt").replace("COUNT", &(count + 1).to_string());
    write(&tree.join("core/src/mutant.rs"), hook.as_bytes())?;
    let mut all = Vec::new();
    for source in sources {
        let (text, written) = rewrite(&source.text, &source.places, &source.ids);
        write(&tree.join("core/src").join(&source.file), text.as_bytes())?;
        all.push(written);
    }
    Ok(all)
}

/// Leaves a file that is so already as it is: cargo looks at times.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Cargo in the copy. Fast to build.
fn cargo(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(folder.join("tree"))
        .env("CARGO_TARGET_DIR", folder.join("build"))
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("RUSTFLAGS", "--cap-lints=allow --cfg=lockstep_plain_variants")
        .args(words)
        .args(["--release", "--quiet", "--message-format=json"]);
    command
}

/// What the compiler says in cargo's messages.
fn diagnostics(messages: &[u8]) -> impl Iterator<Item = Diagnostic> {
    Message::parse_stream(messages).filter_map(|message| match message {
        Ok(Message::CompilerMessage(said)) => Some(said.message),
        _ => None,
    })
}

/// The places that hold an error of the compiler: source and place.
fn refused(folder: &Path, sources: &[Source], written: &[Vec<Written>]) -> Result<BTreeSet<(usize, usize)>> {
    let words = ["check", "--locked", "-p", "lockstep-core", "--features", "std"];
    let done = cargo(folder, &words).output()?;
    let mut refused = BTreeSet::new();
    for error in diagnostics(&done.stdout).filter(|said| said.level == DiagnosticLevel::Error) {
        let mut blamed = false;
        for span in error.spans.iter().filter(|span| span.is_primary) {
            let file = span.file_name.strip_prefix("core/src/");
            let Some(s) = sources.iter().position(|source| Some(&source.file[..]) == file) else { continue };
            let (start, end) = (span.byte_start as usize, span.byte_end as usize);
            let around = |w: &&Written| w.bytes.start <= start && end <= w.bytes.end;
            let innermost = written[s].iter().filter(around).min_by_key(|w| w.bytes.len());
            blamed |= innermost.is_some();
            refused.extend(innermost.map(|w| (s, w.place)));
        }
        if !blamed && !error.spans.is_empty() {
            bail!("the changed core does not compile:\n{}", error.rendered.unwrap_or_default());
        }
    }
    if refused.is_empty() && !done.status.success() {
        bail!("cargo check of the changed core:\n{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(refused)
}

/// Builds what checks, and finds it.
fn programs(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let of = ["--locked", "-p", "lockstep-core", "-p", "lockstep-conformance"];
    let tests = ["test", "--no-run", "--lib", "--test", "num_sample", "--test", "all"];
    let mut found = BTreeMap::new();
    for words in [&["build", "--example", "mutants"][..], &tests] {
        let done = cargo(folder, &[words, &of].concat()).output()?;
        if !done.status.success() {
            let errors: Vec<String> = diagnostics(&done.stdout).filter_map(|said| said.rendered).collect();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            bail!("the copy does not build:\n{}\n{said}", errors.join("\n"));
        }
        found.extend(Message::parse_stream(&done.stdout[..]).filter_map(|message| match message {
            Ok(Message::CompilerArtifact(built)) => {
                Some((built.target.name, built.executable?.into_std_path_buf()))
            }
            _ => None,
        }));
    }
    Ok(found)
}

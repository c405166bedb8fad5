//! `cargo xtask mutants`: formulas of core changed one by one; each change must be caught by a check.
//!
//! `points` finds what can be changed, `rewrite` writes one text that holds a file and all of its
//! changes, `tree` builds a copy of the repository with them, once. `run` turns them on one after the
//! other, against the oracle's cases and then `tests`. `report` counts, and knows the reasons why a
//! change may pass.

mod points;
mod report;
mod rewrite;
mod run;
mod tests;
mod tree;

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

/// A fixed draw has so many changes: the same ones while core stays as it is.
const DRAWN: usize = 500;

/// Which changes to try.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// So many of the draw
    #[arg(long, default_value_t = DRAWN)]
    sample: usize,
    /// Every change that there is, in place of the draw
    #[arg(long, conflicts_with = "sample")]
    all: bool,
    /// One part of several: 2/5
    #[arg(long, value_parser = part)]
    part: Option<(usize, usize)>,
    /// Stop after so many minutes; the next call goes on
    #[arg(long)]
    minutes: Option<u64>,
    /// Try those again that passed before: a check was added
    #[arg(long)]
    survivors: bool,
    /// Only files of core/src whose names begin so
    #[arg(long)]
    only: Option<String>,
    /// Write docs/mutants.md, from a run of the whole draw
    #[arg(long)]
    write: bool,
}

fn part(text: &str) -> Result<(usize, usize)> {
    let (part, of) = text.split_once('/').context("expected PART/PARTS")?;
    let (part, of) = (part.parse()?, of.parse()?);
    if part == 0 || part > of {
        bail!("expected a part from 1 to {of}");
    }
    Ok((part, of))
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The command.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    let folder = crate::workspace(root)?.target_directory.into_std_path_buf().join("mutants");
    let start = Instant::now();
    let built = tree::build(root, &folder)?;
    println!(
        "mutants: {} changes, {} do not compile; built in {:.0} s",
        built.mutants.len(),
        built.dropped,
        start.elapsed().as_secs_f64()
    );
    let results = folder.join(format!("results-{}.jsonl", built.core));
    let until = options.minutes.map(|minutes| start + Duration::from_secs(60 * minutes));
    let run = run::Run { built: &built, results, until };
    let mut asked: Vec<&tree::Mutant> = built.mutants.iter().collect();
    asked.retain(|mutant| options.only.as_ref().is_none_or(|only| mutant.file.starts_with(only)));
    if !options.all {
        asked.sort_by_key(|mutant| hash(mutant.key()));
        asked.truncate(options.sample);
    }
    if let Some((part, of)) = options.part {
        asked.retain(|mutant| hash(mutant.key()) % of as u64 == part as u64 - 1);
    }
    let known = run::results(&run.results);
    let again = |mutant: &&&tree::Mutant| match known.get(&mutant.key()) {
        None => true,
        Some(outcome) => options.survivors && matches!(outcome, run::Outcome::Survived { .. }),
    };
    let waiting: Vec<&tree::Mutant> = asked.iter().filter(again).copied().collect();
    if !waiting.is_empty() {
        let (tests, trace) = std::thread::scope(|scope| {
            let trace = scope.spawn(|| run.trace());
            (tests::tests(&built), trace.join().expect("no panic"))
        });
        trace?;
        let tests = tests?;
        println!("mutants: ready to try {} after {:.0} s", waiting.len(), start.elapsed().as_secs_f64());
        run.all(&waiting, &tests)?;
    }
    let known: BTreeMap<String, run::Outcome> = run::results(&run.results);
    let report = report::Report::new(&asked, &known, &report::reasons()?);
    println!("{report}");
    println!("mutants: {:.0} s", start.elapsed().as_secs_f64());
    if options.write {
        report.document(root, (built.mutants.len(), built.dropped))?;
    }
    report.check()
}

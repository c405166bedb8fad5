//! What was caught and what was not, file by file; the reasons why a change may pass.

use super::run::Outcome;
use super::tree::Mutant;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::path::Path;

/// Of a hundred changes that have no reason to pass, so many are caught.
const LEAST: f64 = 98.0;

/// Why changes pass: file, the beginning of their names, the reason.
pub(super) type Reasons = Vec<[&'static str; 3]>;

/// The committed reasons.
pub(super) fn reasons() -> Result<Reasons> {
    let read = |line: &'static str| {
        let parts: Vec<&str> = line.splitn(3, " | ").map(str::trim).collect();
        <[&str; 3]>::try_from(parts).ok().with_context(|| format!("expected file | change | reason: {line}"))
    };
    let lines = include_str!("reasons.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(read).collect()
}

fn reason(reasons: &Reasons, mutant: &Mutant) -> Option<&'static str> {
    let fits = |name: &str| match name.strip_suffix('*') {
        Some(begin) => mutant.name.starts_with(begin),
        None => mutant.name == name,
    };
    reasons.iter().find(|[file, name, _]| *file == mutant.file && fits(name)).map(|[_, _, reason]| *reason)
}

#[derive(Clone, Copy, Default)]
struct Count {
    tried: usize,
    oracle: usize,
    tests: usize,
    explained: usize,
    open: usize,
}

/// A change that passed.
struct Passed {
    mutant: Mutant,
    cases: usize,
    other: usize,
    tests: usize,
    reason: Option<&'static str>,
}

/// The whole.
pub(super) struct Report {
    asked: usize,
    files: BTreeMap<String, Count>,
    passed: Vec<Passed>,
    idle: Vec<String>,
}

impl Report {
    /// Of the changes that were asked for, by the results so far.
    pub(super) fn new(asked: &[&Mutant], results: &BTreeMap<String, Outcome>, reasons: &Reasons) -> Report {
        let (mut files, mut passed) = (BTreeMap::<String, Count>::new(), Vec::new());
        let mut used = BTreeSet::<&str>::new();
        for mutant in asked {
            let Some(outcome) = results.get(&mutant.key()) else { continue };
            let count = files.entry(mutant.file.clone()).or_default();
            count.tried += 1;
            match outcome {
                Outcome::Oracle(_) => count.oracle += 1,
                Outcome::Test(_) => count.tests += 1,
                Outcome::Survived { cases, other, tests } => {
                    let reason = reason(reasons, mutant);
                    used.extend(reason);
                    *if reason.is_some() { &mut count.explained } else { &mut count.open } += 1;
                    let (mutant, cases, other, tests) = ((*mutant).clone(), *cases, *other, *tests);
                    passed.push(Passed { mutant, cases, other, tests, reason });
                }
            }
        }
        passed.sort_by(|a, b| a.mutant.cmp(&b.mutant));
        let idle = reasons.iter().filter(|[_, _, why]| !used.contains(why));
        let idle = idle.map(|[file, name, _]| format!("{file} {name}")).collect();
        Report { asked: asked.len(), files, passed, idle }
    }

    fn total(&self) -> Count {
        self.files.values().fold(Count::default(), |a, b| Count {
            tried: a.tried + b.tried,
            oracle: a.oracle + b.oracle,
            tests: a.tests + b.tests,
            explained: a.explained + b.explained,
            open: a.open + b.open,
        })
    }

    /// Fails when a change passes without a reason, or too many do.
    pub(super) fn check(&self) -> Result<()> {
        let Count { tried, explained, open, .. } = self.total();
        let share = 100.0 * (tried - explained - open) as f64 / (tried - explained).max(1) as f64;
        if share < LEAST || open > 0 {
            bail!(
                "{open} changes pass without a reason (xtask/src/mutants/reasons.txt); {share:.1} % are \
                 caught, at least {LEAST} % must be"
            );
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let Count { tried, oracle, tests, explained, open } = self.total();
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        let only_bits = self.passed.iter().filter(|passed| passed.other > 0).count();
        let unreached = self.passed.iter().filter(|p| p.cases == 0 && p.tests == 0).count();
        format!(
            "{tried} changes tried: {} caught ({:.1} %; {:.1} % of those without a reason to pass), {oracle} \
             of them by the oracle's cases and {tests} by tests. {} passed: {explained} with a reason, \
             {open} without. Of those that passed, {only_bits} change bits of a case within its tolerance, \
             which only a digest would see, and {unreached} are reached by no check.",
            oracle + tests,
            percent(oracle + tests, tried),
            percent(oracle + tests, tried - explained),
            explained + open,
        )
    }

    fn table(&self) -> String {
        let mut text = String::from(
            "| file | tried | oracle | tests | passed, with a reason | passed |\n\
             | --- | --- | --- | --- | --- | --- |\n",
        );
        for (file, Count { tried, oracle, tests, explained, open }) in &self.files {
            let _ = writeln!(text, "| `{file}` | {tried} | {oracle} | {tests} | {explained} | {open} |");
        }
        text
    }

    /// Writes docs/mutants.md.
    pub(super) fn document(&self, root: &Path, (all, dropped): (usize, usize)) -> Result<()> {
        let tried = self.total().tried;
        if tried < self.asked.max(super::DRAWN) {
            bail!("docs/mutants.md is written from a run of the whole draw: {tried} were tried");
        }
        let date = crate::toolchain::output(std::process::Command::new("date").arg("+%Y-%m-%d"))?;
        let mut text = include_str!("head.md").replace("DATE", date.trim());
        text = text.replace("ALL", &all.to_string()).replace("DROPPED", &dropped.to_string());
        let _ = write!(text, "{}\n\n{}\n## What passed\n\n", self.summary(), self.table());
        text.push_str("| place | change | bits | why |\n| --- | --- | --- | --- |\n");
        for Passed { mutant, cases, other, reason, .. } in &self.passed {
            let change = mutant.name.replace('|', "\\|");
            let bits = if *cases == 0 { "not reached".into() } else { format!("{other} of {cases} cases") };
            let why = reason.unwrap_or("**none**");
            let _ = writeln!(text, "| `{}:{}` | `{change}` | {bits} | {why} |", mutant.file, mutant.line);
        }
        std::fs::write(root.join("docs/mutants.md"), text).context("docs/mutants.md")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<36} {:>6} {:>6} {:>6} {:>9} {:>6}",
            "file", "tried", "oracle", "tests", "explained", "passed"
        )?;
        for (file, Count { tried, oracle, tests, explained, open }) in &self.files {
            writeln!(f, "{file:<36} {tried:>6} {oracle:>6} {tests:>6} {explained:>9} {open:>6}")?;
        }
        for Passed { mutant, cases, other, tests, .. } in self.passed.iter().filter(|p| p.reason.is_none()) {
            let Mutant { file, line, column, name, .. } = mutant;
            writeln!(
                f,
                "passed: core/src/{file}:{line}:{column}: {name} ({other} of {cases} cases differ; {tests} \
                 tests)"
            )?;
        }
        if self.total().tried >= super::DRAWN {
            self.idle.iter().try_for_each(|idle| writeln!(f, "a reason that nothing needs: {idle}"))?;
        }
        f.write_str(&self.summary())
    }
}

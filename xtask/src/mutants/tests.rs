//! Tests as checks: what each comes upon, and whether one fails under a change.

use super::tree::Built;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Programs of tests, the quick ones first, with the folder that they run in.
const PROGRAMS: [(&str, &str); 3] =
    [("lockstep_core", "core"), ("num_sample", "core"), ("all", "conformance")];
/// A test that takes more of a processor checks no change. By the clock, other work would leave tests out.
const LONGEST: Duration = Duration::from_secs(5);
/// Names of tests that took longer, so that they are not started: what a run calls slow is added by hand.
const SLOW: &str = include_str!("slow.txt");
/// Tests against one change take about so long together; the quick ones are run.
const TOGETHER: f64 = 60.0;
/// What a test says when only recorded bits differ: that alone catches nothing.
const RECORDED: &str = "are not the published ones";

/// A test that passes without a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Test {
    /// Index into the programs.
    pub(super) program: usize,
    /// Its name.
    pub(super) name: String,
    /// How long it takes.
    pub(super) seconds: f64,
    /// What it comes upon.
    pub(super) reaches: BTreeSet<u32>,
}

/// Waits until it has taken so much of a processor, or ten times as long by the clock; `None`: it was ended.
/// Returns the processor's time, too.
fn wait(mut child: Child, limit: Duration) -> (Option<bool>, Duration) {
    let (start, mut taken) = (Instant::now(), Duration::ZERO);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status.success()),
            Ok(None) if taken < limit && start.elapsed() < 10 * limit => {
                std::thread::sleep(Duration::from_millis(5));
                taken = busy(child.id()).unwrap_or(taken);
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    (ended, taken)
}

/// What a process has taken of the processors: fields 14 and 15 of its `stat`, in hundredths of a second.
fn busy(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the name, may have spaces.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks: Option<u64> = fields.map(|field| field.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(10 * ticks?))
}

fn command(built: &Built, program: usize, mutant: &str) -> Option<Command> {
    let (name, within) = PROGRAMS[program];
    let mut command = Command::new(built.programs.get(name)?);
    command
        .current_dir(built.folder.join("tree").join(within))
        .env("LOCKSTEP_MUTANT", mutant)
        .stdin(Stdio::null());
    Some(command)
}

/// Every test that passes in time, with what it reaches; kept in the folder for the programs that it was
/// found with.
pub(super) fn tests(built: &Built) -> Result<Vec<Test>> {
    let kept = built.folder.join(format!("tests-{}.json", built.stamp));
    if let Ok(text) = fs::read_to_string(&kept) {
        return serde_json::from_str(&text).with_context(|| kept.display().to_string());
    }
    let mut waiting = Vec::new();
    for program in 0..PROGRAMS.len() {
        let Some(mut command) = command(built, program, "0") else { continue };
        let list = command.args(["--list", "--format", "terse"]).output()?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        waiting
            .extend(list.lines().filter_map(|line| Some((program, line.strip_suffix(": test")?.to_owned()))));
    }
    let gone = |slow: &&str| !waiting.iter().any(|(_, name)| name == slow);
    if let Some(gone) = SLOW.lines().find(gone) {
        bail!("xtask/src/mutants/slow.txt names the test {gone}, which there is not");
    }
    waiting.retain(|(_, name)| !SLOW.lines().any(|slow| slow == name));
    let (all, waiting, found) = (waiting.len(), Mutex::new(waiting), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (waiting, found) = (&waiting, &found);
            let trace = built.folder.join(format!("trace-{worker}"));
            scope.spawn(move || {
                loop {
                    let Some((program, name)) = waiting.lock().expect("no panic").pop() else { break };
                    if let Some(test) = traced(built, &trace, program, &name) {
                        found.lock().expect("no panic").push(test);
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no panic");
    found.sort_by(|a, b| (a.program, a.seconds).partial_cmp(&(b.program, b.seconds)).expect("numbers"));
    println!("mutants: {} of {all} tests pass within {LONGEST:?} and reach a change", found.len());
    fs::write(&kept, serde_json::to_string(&found)?)?;
    Ok(found)
}

fn traced(built: &Built, trace: &PathBuf, program: usize, name: &str) -> Option<Test> {
    let _ = fs::remove_file(trace);
    let mut command = command(built, program, &format!("trace:{}", trace.display()))?;
    command.args(["--exact", name, "--test-threads=1"]).stdout(Stdio::null()).stderr(Stdio::null());
    let (passed, taken) = wait(command.spawn().ok()?, LONGEST);
    if passed != Some(true) {
        println!(
            "mutants: left out: {name} ({})",
            if passed.is_none() { "slow" } else { "fails on the copy" }
        );
        return None;
    }
    let reaches = fs::read_to_string(trace).unwrap_or_default();
    let reaches: BTreeSet<u32> = reaches.lines().filter_map(|line| line.parse().ok()).collect();
    let seconds = taken.as_secs_f64();
    (!reaches.is_empty()).then(|| Test { program, name: name.to_owned(), seconds, reaches })
}

/// The test that fails under the change, or how many did not.
pub(super) fn caught(
    built: &Built,
    tests: &[Test],
    id: u32,
    log: &Path,
) -> Result<std::result::Result<String, usize>> {
    let (mut total, mut batches) = (0.0, BTreeMap::<(usize, bool), (Vec<&str>, f64)>::new());
    for test in tests.iter().filter(|test| test.reaches.contains(&id)) {
        total += test.seconds;
        if total > TOGETHER {
            break;
        }
        let batch = batches.entry((test.program, test.seconds > 0.5)).or_default();
        batch.0.push(&test.name);
        batch.1 += test.seconds;
    }
    let mut passed = 0;
    for ((program, _), (names, seconds)) in batches {
        let Some(mut command) = command(built, program, &id.to_string()) else { continue };
        command.arg("--exact").args(&names).arg("--test-threads=1");
        let out = fs::File::create(log)?;
        command.stderr(Stdio::null()).stdout(out);
        let (ended, _) = wait(command.spawn()?, Duration::from_secs_f64(10.0 + 6.0 * seconds));
        if ended == Some(true) {
            passed += names.len();
            continue;
        }
        let said = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        let by = match (ended, failed(&said)) {
            (None, _) => "no end".to_owned(),
            (_, Some(name)) => name,
            // Stopped in the middle: not even a panic.
            _ if !said.contains("test result") => "aborted".to_owned(),
            _ => {
                passed += names.len();
                continue;
            }
        };
        return Ok(Ok(format!("{}: {by}", PROGRAMS[program].0)));
    }
    Ok(Err(passed))
}

/// The first test that failed for another reason than recorded bits.
fn failed(said: &str) -> Option<String> {
    let sections = said.split("\n---- ").skip(1);
    let failed = sections.filter(|section| !section.contains(RECORDED));
    failed.filter_map(|section| Some(section.split_once(" stdout")?.0.to_owned())).next()
}

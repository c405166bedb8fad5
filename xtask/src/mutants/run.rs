//! Change after change, on two processes: the oracle's cases first, then tests.

use super::tests::{self, Test};
use super::tree::{Built, Mutant};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A worker says every second that it is busy, unless one case takes longer: none does without a change.
const PATIENCE: Duration = Duration::from_secs(12);

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// By the oracle: op, case and numbers.
    Oracle(String),
    /// By a test.
    Test(String),
    /// By nothing: reached by so many cases, other bits in so many of them, and so many tests.
    Survived { cases: usize, other: usize, tests: usize },
}

/// Results of earlier runs by name; of a changed core none.
pub(super) fn results(file: &Path) -> BTreeMap<String, Outcome> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// What a run needs to know.
pub(super) struct Run<'a> {
    /// The programs.
    pub(super) built: &'a Built,
    /// Where results go.
    pub(super) results: PathBuf,
    /// When to stop.
    pub(super) until: Option<Instant>,
}

impl Run<'_> {
    /// What the oracle's cases come upon, found once.
    pub(super) fn trace(&self) -> Result<PathBuf> {
        let file = self.built.folder.join(format!("cases-{}.txt", self.built.stamp));
        if !file.exists() {
            let half = file.with_extension("part");
            let status = Command::new(self.worker()?).arg("trace").arg(&half).status()?;
            if !status.success() {
                bail!("the trace of the oracle's cases failed");
            }
            fs::rename(half, &file)?;
        }
        Ok(file)
    }

    fn worker(&self) -> Result<&PathBuf> {
        self.built.programs.get("mutants").context("the worker was not built")
    }

    /// Tries the changes, and adds each result to the file.
    pub(super) fn all(&self, mutants: &[&Mutant], tests: &[Test]) -> Result<()> {
        let trace = self.trace()?;
        let file = fs::OpenOptions::new().append(true).create(true).open(&self.results)?;
        let (next, file) = (Mutex::new(mutants.iter().enumerate()), Mutex::new(file));
        let work = |number: usize| -> Result<()> {
            let mut worker = Worker::start(self.worker()?, &trace)?;
            let log = self.built.folder.join(format!("log-{number}"));
            loop {
                let Some((at, mutant)) = next.lock().expect("no panic").next() else { break };
                if self.until.is_some_and(|until| Instant::now() > until) {
                    break;
                }
                let outcome = self.one(mutant, tests, &mut worker, &trace, &log)?;
                let line = serde_json::to_string(&(mutant.key(), outcome))? + "\n";
                file.lock().expect("no panic").write_all(line.as_bytes())?;
                if at % 200 == 199 {
                    println!("mutants: {} of {}", at + 1, mutants.len());
                }
            }
            worker.child.kill()?;
            worker.child.wait()?;
            Ok(())
        };
        std::thread::scope(|scope| {
            let work = &work;
            let workers = [0, 1].map(|number| scope.spawn(move || work(number)));
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
        })
    }

    fn one(
        &self,
        mutant: &Mutant,
        tests: &[Test],
        worker: &mut Worker,
        trace: &Path,
        log: &Path,
    ) -> Result<Outcome> {
        let Some(said) = worker.ask(mutant.id)? else {
            *worker = Worker::start(self.worker()?, trace)?;
            return Ok(Outcome::Oracle("no end, or an abort".into()));
        };
        if let Some(by) = said.strip_prefix("caught ") {
            return Ok(Outcome::Oracle(by.chars().take(160).collect()));
        }
        let numbers: Vec<usize> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [cases, other] = numbers[..] else { bail!("the worker said {said:?}") };
        Ok(match tests::caught(self.built, tests, mutant.id, log)? {
            Ok(by) => Outcome::Test(by),
            Err(tests) => Outcome::Survived { cases, other, tests },
        })
    }
}

/// A process with all cases in memory.
struct Worker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    fn start(program: &Path, trace: &Path) -> Result<Worker> {
        let mut child = Command::new(program)
            .arg("run")
            .arg(trace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = (child.stdin.take().context("a pipe")?, child.stdout.take().context("a pipe")?);
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        lines.recv_timeout(4 * PATIENCE).context("the worker does not start")?;
        Ok(Worker { child, input, lines })
    }

    /// `None`: there was no answer, and it was ended.
    fn ask(&mut self, id: u32) -> Result<Option<String>> {
        writeln!(self.input, "{id}")?;
        let answer = loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == "busy" => {}
                other => break other.ok(),
            }
        };
        if answer.is_none() {
            let _ = self.child.kill();
            self.child.wait()?;
        }
        Ok(answer)
    }
}

//! Runs that are killed in flight, and whether the unbroken ones learnt.

use lockstep_trainer::train::{Record, read};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs `lockstep train` into a folder and kills it when its metrics have `lines` lines, or again if it ended
/// before.
pub(crate) fn killed(arguments: &str, out: &Path, lines: usize) {
    let count = || fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default().lines().count();
    for _ in 0..30 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command.arg("train").args(arguments.split_whitespace()).arg("--out").arg(out);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while count() < lines && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if status.code().is_none() {
            return;
        }
        assert!(status.success(), "{arguments}");
        fs::remove_dir_all(out).unwrap();
    }
    panic!("{arguments}: every run ended before it was killed");
}

/// The number of RL steps of a run whose gradient is not 0: without one, nothing that acts through the
/// gradient can be seen to be lost.
pub(crate) fn moved(run: &Path) -> usize {
    let moves = |record: &Record| matches!(record, Record::Rl(step) if step.grad_norm > 0.0);
    read(run).unwrap().iter().filter(|record| moves(record)).count()
}

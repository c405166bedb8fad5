//! A run that is killed at any moment and resumed ends with the bits of an uninterrupted run.
#![cfg(feature = "model")]

mod killed;

use killed::{killed, moved};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SIZES: &str = "--task addition:1 --seed 3 --steps 6 --prompts 4 --group 4 --minibatches 2 --warm-steps \
                     4 --warm-updates 3 --warm-target 0.9 --measure 8 --measure-every 2 --layers 1 \
                     --width 16 --flip-rewards 0.3";

fn lockstep(arguments: &str, folder: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.arg("train").args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    for (flag, path) in folder {
        command.arg(flag).arg(path);
    }
    command
}

fn result(folder: &Path) -> [Vec<u8>; 2] {
    ["checkpoint.safetensors", "metrics.jsonl"].map(|name| fs::read(folder.join(name)).unwrap())
}

/// The rollouts in a folder of dumps.
fn dumped(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = files.map(|file| (file.file_name().into_string().unwrap(), file.path()));
    named.filter(|(name, _)| name.starts_with("rollouts-")).map(|(n, p)| (n, fs::read(p).unwrap())).collect()
}

#[test]
fn killed_and_resumed_runs_end_with_the_same_bits() {
    kill_and_resume(SIZES);
}

#[test]
fn killed_and_resumed_runs_with_a_tool_end_with_the_same_bits() {
    kill_and_resume(&SIZES.replace("addition", "calculator"));
}

fn kill_and_resume(sizes: &str) {
    let root = tempfile::tempdir().unwrap();
    let unbroken = root.path().join("unbroken");
    let start = std::time::Instant::now();
    let dump = root.path().join("dump");
    let first = lockstep(sizes, &[("--out", &unbroken), ("--dump-rollouts", &dump)]).status();
    assert!(first.unwrap().success());
    let whole = start.elapsed();
    let expected = result(&unbroken);
    assert_eq!(String::from_utf8_lossy(&expected[1]).lines().count(), 10);
    assert!(moved(&unbroken) >= 4);
    let rollouts = dumped(&dump);
    assert_eq!(rollouts.len(), 6);

    // A different number of threads gives the same bits.
    let one = root.path().join("one-thread");
    assert!(lockstep(&format!("{sizes} --threads 1"), &[("--out", &one)]).status().unwrap().success());
    assert_eq!(result(&one), expected, "one thread");

    // Killed repeatedly until it completes, with delays that hit every part of the run.
    let mut kills = 0;
    for (round, share) in [7, 13, 23, 37, 61].into_iter().enumerate() {
        let folder = root.path().join(format!("killed-{round}"));
        let dump = root.path().join(format!("dump-{round}"));
        for attempt in 0_u32.. {
            assert!(attempt < 60, "no progress");
            let has_checkpoint = folder.join("checkpoint.safetensors").exists();
            let mut child = if has_checkpoint {
                lockstep("", &[("--resume", &folder), ("--dump-rollouts", &dump)]).spawn().unwrap()
            } else {
                lockstep(sizes, &[("--out", &folder), ("--dump-rollouts", &dump)]).spawn().unwrap()
            };
            // Delays grow with each attempt, so that the test ends on a machine of any speed.
            std::thread::sleep(whole * share / 100 + whole * attempt / 20 + Duration::from_millis(5));
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success());
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        assert_eq!(result(&folder), expected, "round {round}");
        assert_eq!(dumped(&dump), rollouts, "round {round}");
        assert!(folder.join("report.html").exists());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!left.iter().any(|n| n.to_string_lossy().starts_with(".unfinished")), "{left:?}");
    }
    assert!(kills >= 5, "only {kills} runs were killed in flight");
}

#[test]
fn what_a_kill_can_leave_behind_is_cleared() {
    let root = tempfile::tempdir().unwrap();
    let unbroken = root.path().join("unbroken");
    assert!(lockstep(SIZES, &[("--out", &unbroken)]).status().unwrap().success());
    let expected = result(&unbroken);

    // The state after step 3 of the warm start, reached by not asking for more steps; then a kill between
    // line and checkpoint, an incomplete line, and a half-written checkpoint beside the complete one.
    let folder = root.path().join("torn");
    killed(SIZES, &folder, 3);
    let mut metrics = fs::read(folder.join("metrics.jsonl")).unwrap();
    metrics.extend(b"{\"phase\":\"warm\",\"step\":99}\n{\"phase\":\"rl\",\"st");
    fs::write(folder.join("metrics.jsonl"), metrics).unwrap();
    let whole = fs::read(folder.join("checkpoint.safetensors")).unwrap();
    fs::write(folder.join(".unfinished-abc"), &whole[..whole.len() / 2]).unwrap();
    assert!(lockstep("", &[("--resume", &folder)]).status().unwrap().success());
    assert_eq!(result(&folder), expected);
    assert!(!folder.join(".unfinished-abc").exists());
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_after_the_step_in_flight() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    let lines = || fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default().lines().count();
    // More steps than it can complete, so that only Ctrl-C ends it.
    let mut child =
        lockstep(&SIZES.replace("--steps 6", "--steps 100000"), &[("--out", &folder)]).spawn().unwrap();
    while lines() < 6 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let done = lines();
    // The checkpoint covers every line: nothing was cut off, so a resumed run continues from here.
    let mut child = lockstep("", &[("--resume", &folder)]).spawn().unwrap();
    while lines() <= done {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let steps: Vec<u64> = text
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok()?["step"].as_u64())
        .collect();
    let expected: Vec<u64> = (1..=4).chain(1..).take(steps.len()).collect();
    assert_eq!(steps, expected);
}

#[test]
fn what_lies_in_a_folder_is_neither_taken_nor_lost() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        let output = command.args(line.split_whitespace()).current_dir(at).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    fs::write(at.join("sapo"), "a file with the name of a recipe").unwrap();
    assert_eq!(run("explain sapo").0, Some(0));
    let small = "train --task addition:1 --steps 2 --prompts 2 --group 4 --minibatches 1 --warm-steps 1 \
                 --warm-updates 1 --measure 4 --layers 1 --width 8 --flip-rewards 0.5";
    assert_eq!(run(&format!("{small} --dump-rollouts dump --out a")).0, Some(0));
    // Only later steps, and only routing, are somebody's too.
    fs::create_dir(at.join("late")).unwrap();
    fs::copy(at.join("dump/rollouts-000002.safetensors"), at.join("late/routing-000002.safetensors"))
        .unwrap();
    assert_eq!(run(&format!("{small} --seed 2 --out other")).0, Some(0));
    let metrics = at.join("a/metrics.jsonl");
    let damaged = fs::read_to_string(&metrics).unwrap().replacen("\"phase\"", "\"phase", 1);
    fs::write(&metrics, damaged).unwrap();
    for (line, says) in [
        (format!("{small} --dump-rollouts dump --out b"), "rollouts-000001.safetensors exists"),
        (format!("{small} --dump-rollouts late --out b"), "routing-000002.safetensors exists"),
        ("train --resume other --dump-rollouts dump".to_owned(), "run.json is of a run of another"),
        ("train --resume other --dump-rollouts late".to_owned(), "routing-000002.safetensors exists"),
        (format!("{small} --rate 1e30 --report-live --out c"), "the run diverged"),
        ("train --resume a".to_owned(), "metrics.jsonl, line 1"),
    ] {
        let (code, said) = run(&line);
        assert!(code == Some(2) && said.contains(says), "{line}: {said}");
    }
    let page = fs::read_to_string(at.join("c/report.html")).unwrap();
    assert!(!page.contains("http-equiv=\"refresh\"") && !page.contains(" · running"), "it failed");
}

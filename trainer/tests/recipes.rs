//! Every recipe with a name: it trains, or says before the warm start why it cannot; and it scores rollouts that are made for it.
#![cfg(feature = "model")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use lockstep::recipe::names;
use lockstep_trainer::train::{Record, read};

const SIZES: &str = "train --task addition:1 --steps 3 --prompts 4 --keep 4 --group 4 --minibatches 2 --warm-steps 2 --warm-updates 2 \
                     --measure 4 --layers 1 --width 8 --experts 2 --threads 1 --rate 0.003";

/// What is out of reach of this task and model, and the reason.
const REFUSED: &[(&str, &str)] = &[
    ("gae", "no value head"),
    ("ppo_critic", "no value head"),
    ("vapo", "no value head"),
    ("vtrace", "no value head"),
    ("mars", "a single turn"),
    ("mars_paper", "a single turn"),
];

fn lockstep(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_name_trains_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut trained = 0;
    for name in names() {
        let output = lockstep(at, &format!("{SIZES} --recipe {name} --out {name} --dump-rollouts {name}-dump"));
        let message = said(&output);
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| refused == name) {
            assert_eq!(output.status.code(), Some(2), "{name}: {message}");
            assert!(message.contains(why) && message.contains(name), "{name}: {message}");
            assert!(!at.join(name).exists(), "{name} was refused too late");
            continue;
        }
        assert!(output.status.success(), "{name}: {message}");
        let steps: Vec<_> = read(&at.join(name))
            .unwrap()
            .into_iter()
            .filter_map(|record| match record {
                Record::Rl(record) => Some(record),
                Record::Warm(_) => None,
            })
            .collect();
        assert_eq!(steps.len(), 3, "{name}");
        for r in &steps {
            for x in [r.loss, r.grad_norm, r.approx_kl, r.entropy, r.ratio_mean, r.ess, r.rate, r.mismatch_k3] {
                assert!(x.is_finite(), "{name}: {r:?}");
            }
        }
        // What was dumped is scored, and comes to what was logged.
        let output = lockstep(at, &format!("score {name}-dump/rollouts-000003.safetensors --recipe {name} -o scored"));
        assert!(output.status.success(), "{name}: {}", said(&output));
        let summary = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(summary.contains(&format!("{}\n", steps[2].loss)), "{name}: {} in {summary}", steps[2].loss);
        fs::remove_dir_all(at.join(name)).unwrap();
        trained += 1;
    }
    assert!(trained >= 80, "{trained} recipes trained");
}

#[test]
fn every_name_scores_rollouts_that_are_made_for_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in names() {
        for arguments in [
            format!("rollouts --like {name} --sequences 12 --tokens 150 --seed 3 -o made"),
            format!("score made --recipe {name} --strict -o scored"),
        ] {
            let output = lockstep(folder.path(), &arguments);
            assert!(output.status.success(), "{arguments}: {}", said(&output));
            assert!(said(&output).is_empty(), "{arguments}: {}", said(&output));
        }
    }
}

/// What a recipe carries from step to step is in the checkpoint: a run that is resumed ends with the same bits.
#[test]
fn what_is_carried_survives_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["spiral", "rapo_replay", "mssr", "v0_5", "remix_full", "vcpo_full"] {
        let train = format!("{SIZES} --warm-steps 6 --seed 4 --recipe {name}").replace("--warm-steps 2", "");
        assert!(lockstep(at, &format!("{train} --out whole")).status.success(), "{name}");
        let want = fs::read(at.join("whole/checkpoint.safetensors")).unwrap();
        // Stopped after every step: a checkpoint of then is put in the place of the last.
        let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"))
            .args(format!("{train} --out cut").split_whitespace())
            .current_dir(at)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let lines = || fs::read_to_string(at.join("cut/metrics.jsonl")).unwrap_or_default().lines().count();
        while lines() < 8 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let output = lockstep(at, "train --threads 2 --resume cut");
        assert!(output.status.success(), "{name}: {}", said(&output));
        assert!(fs::read(at.join("cut/checkpoint.safetensors")).unwrap() == want, "{name}");
        fs::remove_dir_all(at.join("whole")).unwrap();
        fs::remove_dir_all(at.join("cut")).unwrap();
    }
}

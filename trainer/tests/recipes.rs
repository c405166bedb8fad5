//! Every named recipe either trains or says before the warm start why it cannot, and scores rollouts
//! generated for it.
#![cfg(feature = "model")]

mod killed;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use clap::Parser;
use killed::{killed, moved};
use lockstep::Recipe;
use lockstep::recipe::names;
use lockstep_trainer::task::Kind;
use lockstep_trainer::train::{RlStep, State, TrainArgs, Trainer, suits};

const SIZES: &str = "--steps 3 --prompts 6 --keep 4 --group 5 --minibatches 2 \
                     --warm-target 0.25 --warm-steps 60 --measure 4 --layers 1 --width 16 --experts 2 \
                     --threads 1 --rate 0.003";

fn lockstep(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The arguments of `lockstep train`.
#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    train: TrainArgs,
}

fn trainer(task: &str, recipe: &str) -> anyhow::Result<Trainer> {
    // Without the last step, after which 40,480 games would be read.
    let sizes = if task == "tictactoe" { &SIZES.replace("--steps 3", "--steps 4") } else { SIZES };
    let line = format!("train {sizes} --task {task} --recipe {recipe}");
    Trainer::of(&Line::parse_from(line.split_whitespace()).train)
}

/// The state after the warm start.
fn warm(trainer: &Trainer) -> State {
    let mut warm = State::new(trainer.config());
    while !warm.progress.warm_done {
        trainer.warm_step(&mut warm, drop).unwrap();
    }
    warm
}

/// Checks that at least `percent` of the recipes train on a task, and that these all learn something. Returns
/// those that it refuses. All runs share one warm start, which solves some problems but not others, so that
/// every recipe has something to learn.
fn every_name(task: &str, kind: Kind, percent: usize) -> Vec<&'static str> {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Without a value head, and with one.
    let warm = ["dapo", "gae"].map(|name| warm(&trainer(task, name).unwrap()));
    let (mut refused, mut still) = (Vec::new(), Vec::new());
    for name in names() {
        let suits = suits(&Recipe::named(name).unwrap());
        let trainer = match trainer(task, name) {
            Err(error) => {
                let message = format!("{error:#}");
                let why = suits.as_ref().err().map_or("needs what this task does not provide", |why| why);
                assert!(message.contains(why) && message.contains(name), "{name}: {message}");
                assert!(!suits.is_ok_and(|kinds| kinds.contains(&kind)), "{name}: docs/training.md has it");
                refused.push(*name);
                continue;
            }
            Ok(trainer) => {
                let kinds =
                    suits.unwrap_or_else(|why| panic!("{name} trains, but docs/training.md says: {why}"));
                assert!(kinds.contains(&kind), "{name} trains, but docs/training.md says {kinds:?}");
                trainer
            }
        };
        let mut state = warm[usize::from(trainer.config().model.critic)].clone();
        let mut moved = false;
        for step in 0..3 {
            let RlStep { record: r, rollouts, .. } =
                trainer.rl_step(&mut state, drop).unwrap_or_else(|e| panic!("{name}, step {step}: {e:#}"));
            for x in [r.loss, r.grad_norm, r.approx_kl, r.entropy, r.ratio_mean, r.ess, r.rate, r.mismatch_k3]
            {
                assert!(x.is_finite(), "{name}: {r:?}");
            }
            moved |= r.grad_norm > 0.0;
            // Scoring the dump gives the logged numbers.
            fs::write(at.join("dump"), rollouts.to_safetensors().unwrap()).unwrap();
            if step == 2 {
                let output = lockstep(at, &format!("score dump --recipe {name} -o scored"));
                assert!(output.status.success(), "{name}: {}", said(&output));
                let summary = String::from_utf8_lossy(&output.stdout).into_owned();
                let loss =
                    summary.lines().find_map(|line| line.strip_prefix("loss ")).unwrap().trim().to_owned();
                assert_eq!(loss, r.loss.to_string(), "{name}");
            }
        }
        if !moved {
            still.push(*name);
        }
    }
    let (all, trained) = (names().len(), names().len() - refused.len());
    assert!(100 * trained >= percent * all, "{task}: {trained} of {all} train; refused: {refused:?}");
    assert!(still.is_empty(), "{task}: {still:?} learnt nothing");
    refused
}

#[test]
fn every_name_trains_or_says_why_not() {
    every_name("addition:1", Kind::Arithmetic, 98);
}

#[test]
fn every_name_calls_a_tool_or_says_why_not() {
    let refused = every_name("calculator:1", Kind::Calculator, 95);
    assert!(refused.iter().all(|name| !name.starts_with("mars")), "{refused:?}");
}

#[test]
fn every_name_plays_or_says_why_not() {
    for game in ["kuhn", "tictactoe"] {
        every_name(game, Kind::Game, 80);
    }
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

/// The state that a recipe carries from step to step is in the checkpoint: a resumed run ends with the same
/// bits.
#[test]
fn what_is_carried_survives_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let names = ["spiral", "rapo_replay", "mssr", "v0_5", "remix_full", "vcpo_full", "ppo_critic"];
    let engines = [
        "dapo_full --async april",
        "rapo_replay --async areal --train-time 20 --staleness 2",
        "grpo --async ssp --length-reward 0.25 --flip-rewards 0.3",
        "grpo --async april --rubric 2,1,-1",
        "minirl --async areal --train-time 20 --routing r3",
    ];
    let turns = [
        "spiral --task kuhn",
        "mars --task kuhn",
        "mars --task calculator:1",
        "grpo --task calculator:1 --flip-rewards 0.3 --async areal --train-time 20 --staleness 2",
    ];
    let pools = ["vade", "gdro", "dars"].map(|select| format!("grpo --pool 12 --select {select}"));
    let pools = pools.iter().map(|pool| &**pool);
    let samplers = ["grpo --sampler latr", "dapo_full --sampler arrol", "grpo --sampler scope"];
    for name in names.into_iter().chain(engines).chain(turns).chain(pools).chain(samplers) {
        let task = if name.contains("--task") { "" } else { "--task addition:1 " };
        let train = format!("train {SIZES} {task}--steps 5 --warm-steps 3 --seed 4 --recipe {name}")
            .replace("--steps 3 ", "")
            .replace("--warm-steps 60", "");
        assert!(lockstep(at, &format!("{train} --out whole")).status.success(), "{name}");
        let want = fs::read(at.join("whole/checkpoint.safetensors")).unwrap();
        // Rewards of turns cannot be flipped, and this model solves nothing.
        assert!(name == "mars --task calculator:1" || moved(&at.join("whole")) > 0, "{name}");
        // Killed in the RL phase, then resumed with a different number of threads.
        killed(train.trim_start_matches("train "), &at.join("cut"), 5);
        let output = lockstep(at, "train --threads 2 --resume cut");
        assert!(output.status.success(), "{name}: {}", said(&output));
        assert!(fs::read(at.join("cut/checkpoint.safetensors")).unwrap() == want, "{name}");
        fs::remove_dir_all(at.join("whole")).unwrap();
        fs::remove_dir_all(at.join("cut")).unwrap();
    }
}

/// Whatever the sampler, groups are learnt from: with their own sizes, and as prefix trees.
#[test]
fn every_sampler_trains() {
    let warm = warm(&trainer("addition:1", "grpo").unwrap());
    for recipe in ["grpo", "tempo"] {
        for (sampler, size) in [("latr --look-ahead 3", 5), ("arrol", 2), ("scope", 5)] {
            let trainer = trainer("addition:1", &format!("{recipe} --sampler {sampler}")).unwrap();
            let mut state = warm.clone();
            let mut moved = 0.0;
            for _ in 0..3 {
                let RlStep { record, rollouts, .. } = trainer.rl_step(&mut state, drop).unwrap();
                assert!(record.loss.is_finite() && record.ratio_mean.is_finite(), "{recipe} {sampler}");
                assert!(record.sampler.unwrap().tokens > 0);
                moved += record.grad_norm;
                let ends = rollouts.cu_groups.unwrap();
                assert!(
                    ends.windows(2).all(|pair| pair[1] - pair[0] == size),
                    "{recipe} {sampler}: {ends:?}"
                );
            }
            assert!(moved > 0.0, "{recipe} {sampler} learnt nothing");
        }
    }
}

/// An engine that only waits and is waited for samples what a run without one samples, bit for bit.
#[test]
fn the_synchronous_schedule_changes_nothing() {
    let run = |task: &str, engine: &str| {
        let line = format!("train {SIZES} --task {task} --recipe dapo_full {engine}");
        let trainer = Trainer::of(&Line::parse_from(line.split_whitespace()).train).unwrap();
        let mut state = State::new(trainer.config());
        state.reference = Some(state.weights.clone());
        let rollouts: Vec<_> = (0..3).map(|_| trainer.rl_step(&mut state, drop).unwrap().rollouts).collect();
        (rollouts, state.weights, state.adam)
    };
    for task in ["addition:1", "calculator:1"] {
        let without = run(task, "");
        assert!(without == run(task, "--async sync --tail 2"), "{task}");
        let queued = run(task, "--async ssp --staleness 0 --tail 2");
        assert!(without == queued, "{task}: a queue without slack waits for each batch");
    }
}

/// The engine is compared with the trainer, not with itself, whichever of them is the old policy.
#[test]
fn the_mismatch_does_not_depend_on_the_old_policy() {
    let mismatch = |old: &str| {
        let trainer = trainer("addition:1", &format!("grpo --async sync --old {old}")).unwrap();
        let mut state = State::new(trainer.config());
        state.reference = Some(state.weights.clone());
        let r = trainer.rl_step(&mut state, drop).unwrap().record;
        [r.mismatch_k1, r.mismatch_k3, r.mismatch_min, r.mismatch_max, r.mismatch_std]
    };
    let found = mismatch("engine");
    assert_eq!(found, mismatch("trainer"));
    assert!(found[1] > 0.0 && found[2] < found[3], "{found:?}");
}

/// Whether there is a critic is decided after the choices: they do what they do in a file.
#[test]
fn choices_do_what_they_do_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let made = |recipe: &str, choices: Option<&str>| {
        let line = format!("train {SIZES} --task addition:1 --recipe {recipe}");
        let mut args = Line::parse_from(line.split_whitespace()).train;
        args.choices = choices.map(str::to_owned);
        let trainer = Trainer::of(&args).map_err(|error| format!("{error:#}"))?;
        let config = trainer.config();
        Ok::<_, String>((config.recipe_toml.clone(), config.model.critic))
    };
    for (recipe, choices, critic) in [
        ("dapo", "advantage.over_time = { kind = \"gae\", gamma = 1.0, lambda = 0.95 }", Some(true)),
        ("gae", "value = { cliprange_value = 0.2 }", Some(true)),
        ("gae", "advantage.over_time = \"none\"", Some(false)),
        ("dapo", "gate.clip_ratio_high = 0.3", Some(false)),
        ("dapo", "gate = { kind = \"ppo_clip\", clip_ratio_high = 0.5 }", Some(false)),
        ("dapo", "ratio.guard = \"none\"", Some(false)),
        ("dr_grpo", "advantage.kind = \"rloo\"", Some(false)),
        // A critic without returns.
        ("dapo", "value = { cliprange_value = 0.5 }", None),
        ("dapo", "duties = [\"train_critic\"]", None),
    ] {
        fs::write(&file, format!("extends = \"{recipe}\"\n{choices}\n")).unwrap();
        let found = made(recipe, Some(choices));
        assert_eq!(found, made(file.to_str().unwrap(), None), "{recipe}, {choices}");
        match found {
            Ok((_, found)) => assert_eq!(Some(found), critic, "{recipe}, {choices}"),
            Err(error) => assert!(critic.is_none() && error.contains("`credit.returns`"), "{error}"),
        }
    }
}

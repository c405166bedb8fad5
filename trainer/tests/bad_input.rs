//! Bad input of every kind: exit code 2, a message that names what is wrong and where, no panic, no file left
//! behind.
#![cfg(feature = "model")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use lockstep::RolloutsBuf;
use lockstep_trainer::config::Config;
use lockstep_trainer::train::State;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// Runs the binary in `folder`.
fn lockstep(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(line.split_whitespace()).current_dir(folder).output().unwrap()
}

/// Runs the binary in `folder`, checks that it refuses, and returns its message.
fn refused(folder: &Path, line: &str) -> String {
    let output = lockstep(folder, line);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{line}: {message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn rollouts() -> RolloutsBuf {
    RolloutsBuf {
        cu_seqlens: Some(vec![0, 2, 4]),
        cu_groups: Some(vec![0, 2]),
        rewards: Some(vec![1.0, 0.0]),
        logp: Some(vec![-1.0; 4]),
        logp_old: Some(vec![-1.1; 4]),
        ..RolloutsBuf::default()
    }
}

/// A column that must be present, to be modified.
fn of<T>(column: &mut Option<Vec<T>>) -> &mut Vec<T> {
    column.as_mut().unwrap()
}

#[test]
fn bad_arguments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("bad.jsonl"), "{\"prompt\":\"1\",\"answer\":\"1\"}\n{\"prompt\":\"2\",\"answer\":2}\n")
        .unwrap();
    let line = |i: u32| format!("{{\"prompt\": \"{i}\", \"answer\": \"{i}\"}}\n");
    fs::write(at.join("good.jsonl"), (0..9).map(line).collect::<String>()).unwrap();
    fs::write(at.join("bad.toml"), "[gate]\nkind = \"sapo\"\nclip_ratio_lo = 0.2\n").unwrap();
    fs::write(at.join("given.toml"), "[ratio]\nlevel = \"given\"\n").unwrap();
    fs::write(at.join("file"), "").unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    let before = names(at);
    for (line, expected) in [
        ("train --task sorting", &["unknown task 'sorting'"][..]),
        ("train --task kuhn:3", &["unknown task 'kuhn:3'", "jsonl:PATH, kuhn or tictactoe"]),
        ("train --task calculator:7", &["task 'calculator:7'", "7 digits: expected 1 to 6"]),
        ("train --task calculator:two", &["task 'calculator:two'", "'two' is not a number of digits"]),
        (
            "train --task calculator:1 --recipe ui_s1",
            &["ui_s1", "this task judges only the answer of a response"],
        ),
        (
            "train --task calculator:1 --measure-blame",
            &["--measure-blame with --task calculator:1", "expected addition or multiplication"],
        ),
        ("train --task kuhn --prompts 5", &["--prompts is 5", "even"]),
        ("train --task kuhn --async sync", &["--async with --task kuhn"]),
        ("train --task kuhn --recipe mssr", &["mssr", "`tracked_value`", "result of a game"]),
        ("train --task jsonl:none.jsonl", &["none.jsonl"]),
        ("train --task jsonl:bad.jsonl", &["bad.jsonl", "line 2", "integer `2`"]),
        ("train --recipe grpoo", &["grpoo"]),
        ("train --device tpu", &["tpu", "cpu, cuda or rocm"]),
        ("train --device cpu:sse9", &["sse9", "plain, avx2, avx512, neon"]),
        ("train --device cuda:one", &["cuda:one", "number"]),
        ("train --device cuda:4096", &["CUDA"]),
        ("verify --backend cpu,tpu", &["tpu", "cpu, cuda or rocm"]),
        ("verify --streams 1000", &["--streams is 1000: expected 1 to 256"]),
        ("verify --streams 0", &["--streams is 0: expected 1 to 256"]),
        ("train --recipe none.toml", &["none.toml"]),
        ("train --recipe bad.toml", &["bad.toml", "clip_ratio_lo"]),
        ("train --out file/run", &["file/run"]),
        ("train --out /proc/run", &["/proc/run"]),
        ("train --dump-rollouts file/dump --out /proc/run", &["file/dump"]),
        ("train --resume empty", &["empty/checkpoint.safetensors"]),
        ("train --resume none", &["none/checkpoint.safetensors"]),
        ("train --group 0", &["--group"]),
        ("train --keep 0", &["--keep"]),
        ("train --group 1", &["groups of 1"]),
        ("train --width 9999999", &["--width is 9999999"]),
        ("train --width 30", &["--width is 30"]),
        ("train --minibatches 65", &["--minibatches is 65"]),
        ("train --steps many", &["--steps"]),
        ("train --rate nan", &["--rate"]),
        ("train --rate 1e40", &["--rate"]),
        ("train --flip-rewards 1.5", &["--flip-rewards is 1.5: expected 0 to 1"]),
        ("train --flip-rewards nan", &["--flip-rewards is NaN: expected 0 to 1"]),
        (
            "train --flip-rewards 0.4 --recipe mars",
            &["--flip-rewards is 0.4", "mars reads no reward of a response"],
        ),
        ("train --length-reward 2", &["--length-reward is 2", "expected 0 to 1"]),
        ("train --rubric 1,2", &["--rubric has 2 numbers: expected 3"]),
        ("train --rubric 0,0,-1", &["--rubric is [0.0, 0.0, -1.0]", "one of them above 0"]),
        ("train --rubric 1,nan,0", &["--rubric is [1.0, NaN, 0.0]", "finite points"]),
        ("train --rubric 2,1,-1 --task kuhn", &["--rubric with --task kuhn"]),
        ("train --rubric 2,1,-1 --recipe psr", &["psr expects the rewards 0 and 1"]),
        ("train --rubric 2,1,-1 --recipe remax", &["remax subtracts a baseline", "`greedy_response`"]),
        ("train --rubric 2,1,-1 --recipe v0_5", &["v0_5 subtracts", "`prior_value`"]),
        (
            "train --length-reward 0.25 --recipe mssr",
            &["--length-reward is 0.25", "mssr subtracts a baseline", "`tracked_value`"],
        ),
        ("train --rubric 2,1,-1 --length-reward 1", &["--length-reward with --rubric"]),
        ("train --length-reward 1 --task kuhn", &["--length-reward with --task kuhn"]),
        (
            "train --length-reward 0.25 --recipe psr",
            &["--length-reward is 0.25", "psr expects the rewards 0 and 1"],
        ),
        ("train --precision fp8 --rollout-precision bf16", &["--precision", "--rollout-precision"]),
        ("train --warm-target 1e40", &["--warm-target"]),
        ("train --warm-steps 0", &["--warm-steps is 0: expected at least 1"]),
        ("study list --quick", &["study list", "no option but --markdown"]),
        ("train --experts 4 --top-k 5", &["--experts is 4", "expected at least 5"]),
        ("train --top-k 0", &["--top-k is 0"]),
        ("train --routing r4", &["'r4'", "none, r2, r3"]),
        (
            "train --routing r3 --experts 1 --top-k 1",
            &["--routing r3 with --experts 1", "at least 2 experts"],
        ),
        ("train --balance 0.1", &["--balance is 0.1", "no --routing"]),
        ("train --balance inf --routing none", &["--balance is inf"]),
        ("train --rollout-precision fp4", &["'fp4'", "f32, bf16-weights, bf16, fp8"]),
        ("train --train-precision e5m2", &["'e5m2'", "f32, bf16-weights, bf16, fp8"]),
        ("train --async later", &["'later'", "sync, april, areal, ssp"]),
        ("train --staleness 2", &["--staleness needs --async"]),
        ("train --async areal --over-provision 2", &["--over-provision is 2", "april"]),
        ("train --async april --over-provision 0.5", &["--over-provision is 0.5", "1 to 16"]),
        ("train --async sync --tail nan", &["--tail is NaN"]),
        ("train --async sync --train-time inf", &["--train-time is inf"]),
        ("train --task addition:3-1", &["addition:3-1", "3 to 1 digits"]),
        ("train --select vade", &["--select is vade", "no --pool"]),
        ("train --select best --pool 200", &["'best'", "uniform, vade, dots, gdro, dars"]),
        ("train --pool 127", &["--pool is 127", "at least the 128 prompts of a step (--prompts)"]),
        ("train --pool 200 --task addition:1", &["--pool is 200", "different training prompts"]),
        ("train --pool 200 --async sync", &["--async with --pool"]),
        ("train --pool 200 --select dars --group 1", &["--select dars with --group 1", "at least 2"]),
        (
            "train --pool 200 --select gdro --recipe mc_grpo",
            &["--select gdro with mc_grpo", "`pivot_response`"],
        ),
        (
            "train --pool 200 --select vade --recipe dapo_full",
            &["--select vade with dapo_full", "`dynamic_sampling`", "expected uniform"],
        ),
        ("train --pool 200 --select gdro --recipe pass_at_k --group 4", &["groups of 2 and 8"]),
        ("train --sampler beam", &["'beam'", "plain, latr, arrol, scope"]),
        ("train --look-ahead 5", &["--look-ahead needs --sampler latr"]),
        ("train --sampler scope --fall-behind 0.5", &["--fall-behind needs --sampler latr"]),
        ("train --sampler latr --look-ahead 0", &["--look-ahead is 0: expected at least 1"]),
        ("train --sampler latr --fall-behind 1.5", &["--fall-behind is 1.5: expected above 0"]),
        ("train --sampler arrol --group 2", &["--sampler arrol with --group 2", "at least 3"]),
        ("train --sampler latr --task kuhn", &["--sampler latr with --task kuhn", "in turns"]),
        (
            "train --sampler scope --task jsonl:good.jsonl",
            &["--sampler scope with --task jsonl:good.jsonl", "expected addition or multiplication"],
        ),
        ("train --sampler latr --task calculator:1", &["latr with --task calculator:1", "without a tool"]),
        ("train --sampler latr --async sync", &["--async with --sampler latr"]),
        ("train --sampler latr --routing r3", &["--routing with --sampler latr"]),
        (
            "train --sampler arrol --pool 200 --select vade",
            &["--select vade with --sampler arrol", "expected uniform"],
        ),
        ("train --sampler scope --flip-rewards 0.1", &["--flip-rewards with --sampler scope"]),
        ("train --sampler arrol --recipe mc_grpo", &["--sampler arrol with mc_grpo", "`pivot_response`"]),
        ("train --sampler arrol --recipe pass_at_k --group 4", &["groups of 2"]),
        ("train --choices gate.clip_ratio_hihg=\"none\"", &["--choices", "clip_ratio_hihg"]),
        ("train --rate -1", &["--rate is -1"]),
        ("verify --seed 18446744073709551615 --random 2", &["--seed is 18446744073709551615"]),
        ("train --choices gate.kind=\"pp\"", &["pp"]),
        ("train --choices gate.clip_ratio_high=", &["--choices"]),
        ("train --choices extends=\"sapo\"", &["--choices", "extends", "--recipe"]),
        ("study R3 --out /proc/run", &["/proc/run"]),
        ("fly", &["fly"]),
        (
            "train --recipe dppo_topk_tv",
            &["column `divergence` (for gate): the trainer has only the KL over the whole"],
        ),
        (
            "train --recipe mars --task jsonl:good.jsonl",
            &["column `cu_turns` (for advantage.over_time): this task judges only the answer"],
        ),
        ("train --recipe given.toml", &["column `log_ratio` (for ratio): only a caller"]),
        (
            "train --recipe fapo --task jsonl:good.jsonl",
            &["column `flawed` (for reward.shaping): this task judges only the answer"],
        ),
        (
            "train --recipe rapo_replay --routing r3",
            &["duty `replay_successes`: a stored response has no routing"],
        ),
        ("explain dapo_ful", &["dapo_full"]),
        ("explain none.toml", &["none.toml"]),
        ("rollouts --like dapo --sequences 0 -o out", &["sequences"]),
        ("rollouts --like dapo --tokens 3 -o out", &["tokens"]),
        ("rollouts --like dapo -o /dev/null", &["it is a device"]),
        ("list --names --columns", &["--columns"]),
    ] {
        let message = refused(at, line);
        for part in expected {
            assert!(message.contains(part), "{line}: {message}");
        }
        assert_eq!(names(at), before, "{line} left something behind");
    }
}

#[test]
fn resume_refuses_another_configuration_and_a_broken_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let sizes = "train --task addition:1 --steps 0 --warm-steps 1 --warm-updates 1 --measure 4 --layers 1 \
                 --width 8 --out run";
    assert!(lockstep(at, sizes).status.success());
    assert!(refused(at, "train --resume run --seed 9").contains("seed: 1 / 9"));
    assert!(refused(at, "train --resume run --recipe sapo").contains("recipe"));
    assert!(refused(at, "train --resume run --routing r3").contains("routing.mode: not set / \"r3\""));
    assert!(refused(at, "train --out run").contains("--resume run"));
    let whole = fs::read(at.join("run/checkpoint.safetensors")).unwrap();
    fs::write(at.join("run/checkpoint.safetensors"), &whole[..whole.len() - 1]).unwrap();
    assert!(refused(at, "train --resume run").contains("safetensors"));
    fs::write(at.join("run/checkpoint.safetensors"), rollouts().to_safetensors().unwrap()).unwrap();
    assert!(refused(at, "train --resume run").contains("configuration"));
    fs::write(at.join("run/checkpoint.safetensors"), &whole).unwrap();
    fs::write(at.join("run/metrics.jsonl"), "").unwrap();
    assert!(refused(at, "train --resume run").contains("metrics.jsonl"));
}

#[test]
fn resume_refuses_values_that_no_run_begins_with() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let config = Config::new("addition:1", "grpo").unwrap();
    let bytes = |change: Change| {
        let (mut edited, state) = (config.clone(), State::new(&config));
        change(&mut edited);
        state.to_bytes(&edited).unwrap()
    };
    type Change = fn(&mut Config);
    let cases: [(Change, &str); 5] = [
        (|c| c.model.heads = 0, "model.heads is 0: expected at least 1"),
        (|c| c.warm.batch = 0, "warm.batch is 0: expected at least 1"),
        (|c| c.task = "multiplication:2".to_owned(), "the task 'multiplication:2' needs"),
        (|c| c.task = "addition:2".to_owned(), "the task 'addition:2' needs"),
        (|c| c.task = "kuhn".to_owned(), "the task 'kuhn' needs"),
    ];
    for (change, expected) in cases {
        fs::write(at.join("checkpoint.safetensors"), bytes(change)).unwrap();
        let message = refused(at, "train --resume .");
        assert!(message.contains("cannot resume") && message.contains(expected), "{message}");
    }
}

#[test]
fn score_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let good = rollouts().to_safetensors().unwrap();
    fs::write(at.join("good"), &good).unwrap();
    fs::write(at.join("cut"), &good[..good.len() - 3]).unwrap();
    fs::write(at.join("text"), "these are no tensors").unwrap();
    type Change = fn(&mut RolloutsBuf);
    let cases: [(&str, Change, &str); 10] = [
        ("positive", |r| of(&mut r.logp)[3] = 0.5, "`logp`[3] is 0.5"),
        ("nan", |r| of(&mut r.logp_old)[1] = f32::NAN, "`logp_old`[1] is NaN"),
        ("infinite", |r| of(&mut r.rewards)[1] = f32::INFINITY, "`rewards`[1]"),
        ("decreasing", |r| r.cu_seqlens = Some(vec![0, 4, 2]), "cu_seqlens"),
        ("late", |r| of(&mut r.cu_seqlens)[0] = 1, "`cu_seqlens`[0]"),
        ("empty-row", |r| of(&mut r.cu_seqlens)[1] = 0, "cu_seqlens"),
        ("short", |r| of(&mut r.logp).truncate(3), "logp"),
        ("single", |r| r.cu_groups = Some(vec![0, 1, 2]), "group"),
        ("no-rewards", |r| r.rewards = None, "missing columns: rewards (for advantage)"),
        (
            "no-logp",
            |r| (r.logp, r.logp_old) = (None, None),
            "missing columns: logp (for ratio), logp_old (for ratio)",
        ),
    ];
    for (name, change, _) in cases {
        let mut changed = rollouts();
        change(&mut changed);
        fs::write(at.join(name), changed.to_safetensors().unwrap()).unwrap();
    }
    let before = names(at);
    let refuse = |file: &str, recipe: &str, output: &str, expected: &str| {
        let message = refused(at, &format!("score {file} --recipe {recipe} -o {output}"));
        assert!(message.contains(expected), "{file}: {message}");
        assert_eq!(names(at), before, "{file} left something behind");
    };
    refuse("none", "grpo", "out", "none");
    refuse("cut", "grpo", "out", "cut: rollouts file: not a complete safetensors file");
    refuse("text", "grpo", "out", "text: rollouts file: not a complete safetensors file");
    refuse("good", "grpoo", "out", "grpoo");
    refuse("good", "grpo", "none/out", "none/out");
    refuse("good", "grpo", "/dev/null", "it is a device");
    refuse("good", "minirl", "out", "missing columns: logp_rollout (for gate)");
    for (name, _, expected) in cases {
        refuse(name, "grpo", "out", expected);
    }
    // Tensors that are not columns, and columns that nothing reads.
    let file = SafeTensors::deserialize(&good).unwrap();
    let mut tensors = file.tensors();
    tensors.push(("logprob".into(), TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap()));
    fs::write(at.join("extra"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    let message = refused(at, "score extra --recipe grpo -o out");
    assert!(message.contains("`logprob` is not a column: expected one of cu_seqlens"), "{message}");
    let more = RolloutsBuf { tokens: Some(vec![1; 4]), ..rollouts() };
    fs::write(at.join("extra"), more.to_safetensors().unwrap()).unwrap();
    assert!(
        refused(at, "score extra --recipe psr --allow-extra --strict -o out")
            .contains("does not use the columns tokens")
    );
}

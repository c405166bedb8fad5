//! `score` reads what `train --dump-rollouts` writes, and arrives at the numbers that the run logged.
#![cfg(feature = "model")]

use std::path::Path;
use std::process::Command;

use lockstep_trainer::tensors::Tensors;
use safetensors::{Dtype, SafeTensors};

/// Runs the binary and returns its stdout and stderr.
fn lockstep(folder: &Path, arguments: &str) -> [String; 2] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    let output = command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{arguments}: {err}");
    [out, err]
}

/// The number of values in a flat tensor.
fn length(bytes: &[u8], name: &str) -> usize {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let view = file.tensor(name).unwrap();
    assert_eq!((view.dtype(), view.shape().len()), (Dtype::F32, 1), "{name}");
    view.shape()[0]
}

#[test]
fn scored_dumps_agree_with_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // So easy that even chance earns a reward now and then: without one there is no gradient, and every ratio
    // is 1.
    let problem = |(i, c)| format!("{{\"prompt\": \"{c}\", \"answer\": \"{}\"}}\n", ["x", "y"][i % 2]);
    std::fs::write(at.join("easy.jsonl"), "abcdefgh".chars().enumerate().map(problem).collect::<String>())
        .unwrap();
    lockstep(
        at,
        "train --task jsonl:easy.jsonl --warm-target 0.05 --steps 2 --prompts 4 --group 4 --minibatches 2 \
         --warm-steps 40 --warm-updates 2 --measure 4 --layers 1 --width 16 --rate 0.003 --recipe dapo --out \
         run --dump-rollouts dump",
    );
    lockstep(at, "score dump/rollouts-000002.safetensors --recipe dapo -o out.safetensors");
    let bytes = std::fs::read(at.join("out.safetensors")).unwrap();
    let scored = Tensors::parse(&bytes).unwrap();
    let note: serde_json::Value = serde_json::from_str(scored.note().unwrap()).unwrap();
    let log = std::fs::read_to_string(at.join("run/metrics.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    for (ours, theirs) in [
        ("loss", "loss"),
        ("ratio_min", "ratio_min"),
        ("ratio_max", "ratio_max"),
        ("ratio_std", "ratio_std"),
        ("approx_kl", "approx_kl"),
        ("neg_mean_logp", "entropy"),
        ("mismatch_k3", "mismatch_k3"),
    ] {
        assert_eq!(note["metrics"][ours], line[theirs], "{ours}");
    }
    // Whole groups of 4, at least one per minibatch.
    let sequences = length(&bytes, "advantage");
    assert!(sequences >= 8 && sequences.is_multiple_of(4), "{sequences}");
    assert_eq!(length(&bytes, "coef"), length(&bytes, "token_loss"));
    // The policy changed between the rollouts and the second update.
    assert!(line["ratio_std"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_a_recipe_returns_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let score = |name: &str| {
        lockstep(at, &format!("rollouts --like {name} --sequences 8 --tokens 80 -o made"));
        lockstep(at, &format!("score made --recipe {name} -o scored"));
        std::fs::read(at.join("scored")).unwrap()
    };
    let has = |bytes: &[u8], names: &[&str], others: &[&str]| {
        let file = Tensors::parse(bytes).unwrap();
        names.iter().for_each(|name| assert!(file.has(name), "no {name}"));
        others.iter().for_each(|name| assert!(!file.has(name), "{name}"));
    };
    let bytes = score("ppo_critic");
    has(
        &bytes,
        &["returns", "dloss_dentropy", "dloss_dvalue", "metrics.entropy", "metrics.value_loss"],
        &["weights"],
    );
    let bytes = score("verl_tis_token");
    has(&bytes, &["weights", "loss_mask", "metrics.correction_ess", "metrics.mismatch_k3"], &["returns"]);
    let bytes = score("spiral");
    has(&bytes, &["state.role_values", "loss_mask"], &["weights"]);
    // One advantage per response, or one per token.
    assert_eq!([&bytes, &score("tempo")].map(|bytes| length(bytes, "advantage")), [8, 80]);
    assert!(score("dapo") == score("dapo"), "the same file has the same result");
}

#[test]
fn what_a_recipe_does_not_use_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    lockstep(folder.path(), "rollouts --like nemo_kl --sequences 8 --tokens 80 -o made");
    let [_, warnings] = lockstep(folder.path(), "score made --recipe dapo -o scored");
    assert!(warnings.starts_with("warning: ") && warnings.contains("logp_ref"), "{warnings}");
    let [_, warnings] = lockstep(folder.path(), "score made --recipe nemo_kl -o scored");
    assert!(warnings.is_empty(), "{warnings}");
}

#[test]
fn names_columns_and_recipes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let [names, _] = lockstep(folder.path(), "list --names");
    assert!(names.lines().eq(lockstep::recipe::names().iter().copied()));
    let [columns, _] = lockstep(folder.path(), "list --columns");
    assert!(lockstep::Column::ALL.iter().all(|column| columns.contains(&format!("| `{}` |", column.name()))));
    let [said, _] = lockstep(folder.path(), "explain minirl");
    assert!(said.contains("logp_rollout") && said.contains("gate"), "{said}");
    let [toml, _] = lockstep(folder.path(), "explain minirl --toml");
    std::fs::write(folder.path().join("mine.toml"), toml).unwrap();
    assert!(lockstep(folder.path(), "explain mine.toml")[0] == said);
}

//! What `train --dump-rollouts` writes, `score` reads, and it comes to the numbers that the run logged.
#![cfg(feature = "model")]

use std::path::Path;
use std::process::Command;

use lockstep_trainer::tensors::Tensors;

fn lockstep(folder: &Path, arguments: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    let output = command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn scored_dumps_agree_with_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // So easy that even chance is rewarded now and then: without a reward there is no gradient, and no ratio but 1.
    let problem = |(i, c)| format!("{{\"prompt\": \"{c}\", \"answer\": \"{}\"}}\n", ["x", "y"][i % 2]);
    std::fs::write(at.join("easy.jsonl"), "abcdefgh".chars().enumerate().map(problem).collect::<String>())
        .unwrap();
    lockstep(
        at,
        "train --task jsonl:easy.jsonl --warm-target 0.05 --steps 2 --prompts 4 --group 4 --minibatches 2 --warm-steps 40 --warm-updates 2 \
         --measure 4 --layers 1 --width 16 --rate 0.003 --recipe dapo --out run --dump-rollouts dump",
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
    // Whole groups of 4, one a minibatch at least.
    let sequences = scored.floats("advantage").unwrap().len();
    assert!(sequences >= 8 && sequences.is_multiple_of(4), "{sequences}");
    assert_eq!(scored.floats("coef").unwrap().len(), scored.floats("token_loss").unwrap().len());
    // The policy moved between the rollouts and the second update.
    assert!(line["ratio_std"].as_f64().unwrap() > 0.0);
}

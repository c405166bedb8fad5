//! The copied golden files of the covered ops, and what the reader refuses.

use lockstep_conformance::golden::{GoldenError, verify_dir};
use std::path::{Path, PathBuf};

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/verl")
}

#[test]
fn verl_agrees() {
    let report = verify_dir(&committed()).unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
    // Every file with the number of its cases and of the expected arrays that are compared.
    let covered: Vec<(&str, usize, usize)> =
        report.files.iter().map(|f| (f.op.as_str(), f.cases, f.arrays.len())).collect();
    let expected = [
        ("advantage_gae", 18, 2),
        ("advantage_gpg", 6, 1),
        ("advantage_grpo", 12, 1),
        ("advantage_grpo_passk", 5, 1),
        ("advantage_opo", 6, 1),
        ("advantage_reinforce_plus_plus", 12, 2),
        ("advantage_reinforce_plus_plus_baseline", 6, 1),
        ("advantage_rloo", 6, 1),
        ("kl", 24, 2),
        ("policy_loss_cispo", 24, 5),
        ("policy_loss_dppo_kl", 12, 5),
        ("policy_loss_dppo_tv", 12, 5),
        ("policy_loss_gmpo", 12, 5),
        ("policy_loss_gpg", 12, 2),
        ("policy_loss_gspo", 48, 5),
        ("policy_loss_kl_cov", 12, 3),
        ("policy_loss_ppo_clip", 48, 5),
        ("policy_loss_sapo", 24, 5),
        ("rollout_correction_is", 48, 17),
        ("rollout_correction_reject", 60, 1),
        ("value_loss", 6, 3),
    ];
    assert_eq!(covered, expected);
}

/// A directory with the KL file after `edit`; removed when dropped.
struct Edited(PathBuf);

impl Edited {
    fn new(name: &str, file: &str, edit: impl Fn(String) -> String) -> Edited {
        let dir = std::env::temp_dir().join(format!("lockstep-golden-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let text = std::fs::read_to_string(committed().join(file)).unwrap();
        let edited = edit(text.clone());
        assert_ne!(text, edited, "the edit did nothing");
        std::fs::write(dir.join(file), edited).unwrap();
        Edited(dir)
    }
}

impl Drop for Edited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn error_after(name: &str, edit: impl Fn(String) -> String) -> String {
    let dir = Edited::new(name, "kl.json", edit);
    verify_dir(&dir.0).unwrap_err().to_string()
}

fn report_after(name: &str, file: &str, edit: impl Fn(String) -> String) -> String {
    let dir = Edited::new(name, file, edit);
    let report = verify_dir(&dir.0).unwrap();
    assert!(!report.passed());
    report.to_string()
}

#[test]
fn malformed_files_name_file_and_case() {
    let truncated = error_after("truncated", |text| text[..text.len() / 2].into());
    assert!(truncated.starts_with("kl.json: ") && truncated.contains("line 1 column"), "{truncated}");
    let unknown = error_after("unknown", |text| text.replacen("\"logp_ref\"", "\"logp_reference\"", 1));
    assert!(unknown.starts_with("kl.json, case 0: unknown field `logp_reference`"), "{unknown}");
    let top = error_after("top", |text| text.replacen("\"seed\"", "\"sead\"", 1));
    assert!(top.contains("unknown field `sead`"), "{top}");
    let mistyped =
        error_after("mistyped", |text| text.replacen("\"cu_seqlens\": [0", "\"cu_seqlens\": [0.5", 1));
    assert!(mistyped.starts_with("kl.json, case 0: ") && mistyped.contains("0.5"), "{mistyped}");
    let none = error_after("none", |text| {
        format!("{}[]}}", text.split_once("\"cases\": ").unwrap().0.to_owned() + "\"cases\": ")
    });
    assert_eq!(none, "kl.json: `cases` is empty");
}

#[test]
fn missing_directories_and_empty_ones_are_errors() {
    assert!(matches!(verify_dir(Path::new("/no/such/dir")), Err(GoldenError::Io { .. })));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert!(matches!(verify_dir(&source), Err(GoldenError::NoFiles { .. })));
}

#[test]
fn disagreement_fails_and_names_the_case() {
    let wrong = report_after("sign", "kl.json", |text| {
        text.replacen("\"dkl_dlogp\": [1.0", "\"dkl_dlogp\": [-1.0", 1)
    });
    assert!(
        wrong.contains("FAIL  kl.json") && wrong.contains("case 0: `dkl_dlogp` differs by 2.0e0"),
        "{wrong}"
    );
    let offsets = report_after("offsets", "kl.json", |text| {
        text.replacen("\"cu_seqlens\": [0", "\"cu_seqlens\": [1", 1)
    });
    assert!(offsets.contains("case 0: `cu_seqlens`[0] is 1"), "{offsets}");
    let config = report_after("config", "kl.json", |text| text.replacen("\"estimator\"", "\"estimater\"", 1));
    assert!(config.contains("config `estimator` is missing"), "{config}");
    let metric =
        report_after("metric", "policy_loss_sapo.json", |text| text.replacen("\"ppo_kl\"", "\"ppo_lk\"", 1));
    assert!(metric.contains("expected metric `ppo_lk` is not known"), "{metric}");
    let inexact = report_after("inexact", "kl.json", |text| {
        text.replacen("\"logp_new\": [-", "\"logp_new\": [-0.1, -", 1)
    });
    assert!(inexact.contains("`logp_new`[0] is -0.1: not exactly"), "{inexact}");
}

#[test]
fn other_settings_of_the_same_ops_run() {
    // Aliases, absent settings and the straight-through suffix: the op is built, not the case.
    for (from, to) in [("\"k1\"", "\"kl\""), ("\"k2\"", "\"mse\""), ("\"k3\"", "\"low_var_kl\"")] {
        let dir = Edited::new("alias", "kl.json", |text| text.replace(from, to));
        assert!(verify_dir(&dir.0).unwrap().passed(), "{from} as {to}");
    }
    let dir = Edited::new("k2plus", "kl.json", |text| text.replace("\"k2\"", "\"k2+\""));
    assert!(verify_dir(&dir.0).unwrap().passed(), "k2+ has k2's own gradient");
    let absent = Edited::new("absent", "policy_loss_ppo_clip.json", |text| {
        text.replace("\"clip_ratio_low\": 0.2", "\"clip_ratio_low\": null")
            .replace("\"clip_ratio_c\": 3.0, ", "")
    });
    assert!(verify_dir(&absent.0).unwrap().passed(), "clip_ratio_low falls back to clip_ratio, c to 3");
    let default = Edited::new("default", "policy_loss_sapo.json", |text| {
        text.replace("\"tau_pos\": 1.0, \"tau_neg\": 1.05, ", "")
            .replace("\"aggregation\": \"seq-mean-token-mean\", ", "")
    });
    assert!(verify_dir(&default.0).unwrap().passed(), "tau 1.0 and 1.05, seq-mean-token-mean");
}

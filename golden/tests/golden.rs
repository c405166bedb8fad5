//! Every committed case, and what the reader refuses.

use flate2::read::GzDecoder;
use lockstep::Device;
use lockstep_golden::{FileReport, GoldenError, GoldenReport, sources};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// On one device for all tests.
fn verify_dir(dir: &Path) -> Result<GoldenReport, GoldenError> {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    lockstep_golden::verify_dir(DEVICE.get_or_init(Device::cpu), dir)
}

fn report() -> &'static GoldenReport {
    static REPORT: OnceLock<GoldenReport> = OnceLock::new();
    REPORT.get_or_init(|| verify_dir(&committed()).unwrap())
}

/// Every op of every table has a file, every file has a table, and everything a case is for was compared.
#[test]
fn every_source_agrees() {
    let report = report();
    println!("{report}");
    assert!(report.passed(), "{report}");
    let of = |name: &str| -> Vec<&FileReport> {
        report.files.iter().filter(|file| file.source == Some(name)).collect()
    };
    for (name, mut table) in sources() {
        let mut covered: Vec<&str> = of(name).iter().map(|file| file.op.as_str()).collect();
        covered.sort_unstable();
        table.sort_unstable();
        assert_eq!(covered, table, "{name}");
    }
    for file in report.files.iter().filter(|file| file.agreed > 0) {
        let wanted: &[&str] = match file.op.as_str() {
            op if op.starts_with("policy_loss_") => &["loss", "dloss_dlogp"],
            op if op.starts_with("advantage") => {
                &["advantages", "seq_advantages", "normalized", "steps", "games"]
            }
            op if op.starts_with("router") => &["weights", "dense_weights"],
            "kl" => &["kl", "dkl_dlogp"],
            "value_loss" => &["loss", "dloss_dvalue"],
            _ => &[],
        };
        let compared = |name: &&str| file.arrays.iter().any(|array| array.name == *name);
        let all = file.op.starts_with("policy_loss_") || ["kl", "value_loss"].contains(&file.op.as_str());
        let ok =
            if all { wanted.iter().all(compared) } else { wanted.is_empty() || wanted.iter().any(compared) };
        assert!(ok && !file.arrays.is_empty(), "{}: {wanted:?}", file.file);
    }
}

/// Counts what does not agree: these numbers may only fall.
#[test]
fn what_does_not_agree_is_counted() {
    let sum = |number: fn(&FileReport) -> usize| report().files.iter().map(number).sum::<usize>();
    assert_eq!((report().files.len(), sum(|file| file.cases)), (199, 4595));
    assert_eq!((sum(FileReport::excepted), sum(FileReport::missed)), (37, 0), "{}", report());
}

/// A preset named after a framework has cases from that framework's code.
#[test]
fn every_preset_of_a_framework_has_a_case() {
    let list = report().list();
    for framework in ["verl", "trl", "openrlhf", "slime", "areal", "nemo", "roll", "mlperf"] {
        let of = |name: &&&str| name.split('_').next() == Some(framework);
        let mut names = lockstep::recipe::names().iter().filter(of).peekable();
        assert!(names.peek().is_some(), "{framework}");
        for name in names {
            assert!(list.lines().any(|line| line.split(',').next() == Some(name)), "{name}");
        }
    }
}

#[test]
fn the_documents_are_up_to_date() {
    let write = "run: cargo run --release -p lockstep-golden --example golden -- --write";
    assert!(include_str!("../../docs/evidence.md") == report().evidence(), "{write}");
    assert!(include_str!("../../catalogue/src/evidence.csv") == report().list(), "{write}");
}

/// A committed file, unpacked.
fn unpacked(file: &str) -> String {
    let packed = std::fs::File::open(committed().join(format!("{file}.gz"))).unwrap();
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text
}

/// A folder with one edited file; removed when dropped.
struct Edited(PathBuf);

impl Edited {
    fn new(name: &str, file: &str, edit: impl Fn(String) -> String) -> Edited {
        let dir = std::env::temp_dir().join(format!("lockstep-golden-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let text = unpacked(file);
        let edited = edit(text.clone());
        assert_ne!(text, edited, "the edit did nothing");
        std::fs::write(dir.join(Path::new(file).file_name().unwrap()), edited).unwrap();
        Edited(dir)
    }
}

impl Drop for Edited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn error_after(name: &str, edit: impl Fn(String) -> String) -> String {
    verify_dir(&Edited::new(name, "verl/kl.json", edit).0).unwrap_err().to_string()
}

/// The report of a file that must fail.
fn failing(name: &str, file: &str, edit: impl Fn(String) -> String) -> String {
    let report = verify_dir(&Edited::new(name, file, edit).0).unwrap();
    assert!(!report.passed(), "{report}");
    report.to_string()
}

/// The same after replacing the first occurrence.
fn after(name: &str, file: &str, from: &str, to: &str) -> String {
    failing(name, file, |text| text.replacen(from, to, 1))
}

#[test]
fn files_of_another_form_are_errors() {
    let truncated = error_after("truncated", |text| text[..text.len() / 2].into());
    assert!(truncated.starts_with("kl.json: ") && truncated.contains("line "), "{truncated}");
    let top = error_after("top", |text| text.replacen("\"seed\"", "\"sead\"", 1));
    assert!(top.contains("unknown field `sead`"), "{top}");
    let case = error_after("case", |text| text.replacen("\"expected\"", "\"expects\"", 1));
    assert!(case.contains("unknown field `expects`"), "{case}");
    let none =
        error_after("none", |text| format!("{}\"cases\":[]}}", text.split_once("\"cases\":").unwrap().0));
    assert_eq!(none, "kl.json: `cases` is empty");
    let later =
        error_after("later", |text| text.replacen("\"cu_seqlens\":[", "\"cu_seqlens\":\"=3\",\"was\":[", 1));
    assert!(later.contains("case 0: input `cu_seqlens` is \"=3\": no earlier case has it"), "{later}");
    assert!(matches!(verify_dir(Path::new("/no/such/dir")), Err(GoldenError::Io { .. })));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert!(matches!(verify_dir(&source), Err(GoldenError::NoFiles { .. })));
}

#[test]
fn files_at_any_depth_are_read() {
    let dir = Edited::new("deep", "verl/kl.json", |text| text.replace("\"k2\"", "\"k2+\""));
    let deep = dir.0.join("a/b/c");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::copy(dir.0.join("kl.json"), deep.join("kl.json")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&dir.0, deep.join("circle")).unwrap();
    let report = verify_dir(&dir.0).unwrap();
    let names: Vec<&str> = report.files.iter().map(|file| file.file.as_str()).collect();
    assert_eq!(names, ["a/b/c/kl.json", "kl.json"]);
}

#[test]
fn what_no_table_knows_fails() {
    for (name, file, from, to, reason) in [
        (
            "op",
            "verl/kl.json",
            "\"op\":\"kl\"",
            "\"op\":\"klm\"",
            "op klm of \"verl 0.9.1 in float64\" is in no table",
        ),
        ("files", "verl/kl.json", "\"op\":\"kl\"", "\"op\":\"klm\"", "FAIL: 0 of 1 files covered"),
        (
            "source",
            "verl/kl.json",
            ":\"verl",
            ":\"another",
            "op kl of \"another 0.9.1 in float64\" is in no table",
        ),
        ("setting", "verl/kl.json", "\"estimator\"", "\"estimater\"", "config `estimator` is missing"),
        (
            "more",
            "trl/policy_loss_sapo.json",
            "\"beta\":",
            "\"new\":1,\"beta\":",
            "config `new` is not known",
        ),
        ("loss", "trl/policy_loss_sapo.json", "\"sapo\"", "\"sopa\"", "config `loss_type` is \"sopa\""),
        ("input", "verl/kl.json", "\"logp_ref\":", "\"logp_r\":", "case 0: input `logp_r` is not known"),
        ("key", "verl/kl.json", "\"kl\":[", "\"k\":[],\"kl\":[", "case 0: expected `k` is not known"),
        (
            "metric",
            "verl/policy_loss_sapo.json",
            "\"ppo_kl\"",
            "\"ppo_lk\"",
            "case 0: expected `metrics.ppo_lk` is not known",
        ),
    ] {
        let report = failing(name, file, |text| text.replace(from, to));
        assert!(report.contains(reason), "{report}");
    }
}

/// The first case's expected values without `key`.
fn without(text: &str, key: &str) -> String {
    let (before, rest) = text.split_once("\"expected\":{").unwrap();
    let at = rest.find(&format!("\"{key}\":")).unwrap();
    let value = &rest[at + key.len() + 3..];
    let end = if value.starts_with('[') { value.find(']').unwrap() + 1 } else { value.find(',').unwrap() };
    let left = format!("{}{}", &rest[..at], value[end..].trim_start_matches(','));
    format!("{before}\"expected\":{{{}", left.replacen(",}", "}", 1))
}

#[test]
fn what_is_missing_fails() {
    for (file, key) in [
        ("verl/policy_loss_gspo.json", "loss"),
        ("verl/advantage_gae.json", "returns"),
        ("trl/policy_loss_entropy_bonus.json", "dloss_dentropy"),
        ("trl/advantage_rloo.json", "advantages"),
    ] {
        let report = failing("absent", file, |text| without(&text, key));
        assert!(report.contains(&format!("case 0: expected `{key}` is missing")), "{report}");
    }
    let none = failing("none-expected", "verl/kl.json", |text| without(&without(&text, "kl"), "dkl_dlogp"));
    assert!(none.contains("case 0: expected `kl` is missing"), "{none}");
    // Everything is present, but there is no token to compare.
    let empty = failing("empty", "verl/kl.json", |text| {
        let case = "{\"config\":{\"estimator\":\"k1\"},\"inputs\":{\"cu_seqlens\":[0,0],\"cu_groups\":[0,1],\
            \"logp_new\":[],\"logp_ref\":[]},\"expected\":{\"kl\":[],\"dkl_dlogp\":[]}}";
        format!("{}\"cases\":[{case}]}}", text.split_once("\"cases\":").unwrap().0)
    });
    assert!(empty.contains("case 0: nothing was compared"), "{empty}");
}

#[test]
fn one_wrong_number_fails() {
    let sign = after("sign", "verl/kl.json", "\"dkl_dlogp\":[1", "\"dkl_dlogp\":[-1");
    assert!(
        sign.contains("FAIL  kl.json") && sign.contains("case 0: `dkl_dlogp` differs by 2.0e0"),
        "{sign}"
    );
    // A small element beside large ones: its error is far below the tolerance relative to the largest, but a
    // thousandth of the element itself.
    let small = failing("small", "trl/policy_loss_grpo_vllm_is_mask.json", |text| {
        let (before, rest) = text.split_once("\"batch\":\"extreme\"").unwrap();
        let (inputs, rest) = rest.split_once("\"dloss_dlogp\":[").unwrap();
        let (list, rest) = rest.split_once(']').unwrap();
        let mut values: Vec<f64> = list.split(',').map(|x| x.parse().unwrap()).collect();
        let largest = values.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let small = values.iter().position(|x| *x != 0.0 && x.abs() < 1e-6 * largest);
        values[small.unwrap()] *= 1.001;
        let list: Vec<String> = values.iter().map(|x| format!("{x:e}")).collect();
        format!("{before}\"batch\":\"extreme\"{inputs}\"dloss_dlogp\":[{}]{rest}", list.join(","))
    });
    assert!(
        small.contains("`dloss_dlogp` differs by ") && small.contains("times what is allowed"),
        "{small}"
    );
    assert!(small.contains("29 of  30 cases"), "{small}");
    for (name, from, to, reason) in [
        ("offsets", "\"cu_seqlens\":[0", "\"cu_seqlens\":[1", "case 0: `cu_seqlens`[0] is 1"),
        ("inexact", "\"logp_new\":[", "\"logp_new\":[-0.1,", "input `logp_new`[0] is -0.1: not exactly"),
        ("whole", "\"cu_seqlens\":[0", "\"cu_seqlens\":[0.5", "`cu_seqlens` is not a list of whole numbers"),
    ] {
        let report = after(name, "verl/kl.json", from, to);
        assert!(report.contains(reason), "{report}");
    }
}

#[test]
fn other_settings_of_the_same_ops_run() {
    // Aliases, absent settings and the straight-through suffix: the op is constructed, not the case.
    for (from, to) in [("\"k1\"", "\"kl\""), ("\"k2\"", "\"mse\""), ("\"k3\"", "\"low_var_kl\"")] {
        let dir = Edited::new("alias", "verl/kl.json", |text| text.replace(from, to));
        assert!(verify_dir(&dir.0).unwrap().passed(), "{from} as {to}");
    }
    let dir = Edited::new("k2plus", "verl/kl.json", |text| text.replace("\"k2\"", "\"k2+\""));
    assert!(verify_dir(&dir.0).unwrap().passed(), "k2+ has k2's own gradient");
    let absent = Edited::new("absent-low", "verl/policy_loss_ppo_clip.json", |text| {
        text.replace("\"clip_ratio_low\":0.2", "\"clip_ratio_low\":null").replace("\"clip_ratio_c\":3,", "")
    });
    assert!(verify_dir(&absent.0).unwrap().passed(), "clip_ratio_low falls back to clip_ratio, c to 3");
    let default = Edited::new("default", "verl/policy_loss_sapo.json", |text| {
        text.replace("\"tau_pos\":1,\"tau_neg\":1.05,", "")
            .replace("\"aggregation\":\"seq-mean-token-mean\",", "")
    });
    assert!(verify_dir(&default.0).unwrap().passed(), "tau 1.0 and 1.05, seq-mean-token-mean");
}

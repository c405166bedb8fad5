//! Studies: a stopped one goes on to the same numbers, and nothing is judged that was not run.
#![cfg(feature = "model")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;

use lockstep_trainer::report::{study_html, study_markdown};
use lockstep_trainer::study::{Definitions, Study, Verdict, list, perform, summarise};
use serde_json::Value;

const TINY: &str = r#"
[protocol]
seeds = 3
samples = 2
[protocol.train]
task = "addition:1"
layers = 1
width = 8
experts = 2
top-k = 1
warm-steps = 1
warm-updates = 1
steps = 2
prompts = 4
keep = 4
group = 4
minibatches = 2
measure = 4
measure-every = 1
[quick]
seeds = 2
samples = 1
train = {}
[[experiment]]
id = "T"
claim = "SAPO & a large rate < anything"
source = "here"
arms = [
  { name = "GRPO", set = { recipe = "grpo" } },
  { name = "SAPO", set = { recipe = "sapo", rate = 1e-2 } },
]
metrics = ["pass@1", "pass@2", "entropy", "idle share"]
compare = [
  { a = "SAPO", b = "GRPO", metric = "entropy", expect = "higher" },
  { a = "SAPO", b = "GRPO", metric = "idle share", expect = "higher" },
]
"#;

fn study(text: &str, folder: &Path, threads: usize, seeds: Option<u64>) -> anyhow::Result<Study> {
    let plans = Definitions::parse(text)?.plan("all", false, seeds)?;
    let runs = perform(&plans, folder, Some(threads), &AtomicBool::new(false))?;
    summarise(&plans, &runs.unwrap(), false, "test")
}

/// The study as it is written, without what no two runs agree on.
fn bytes(study: &Study) -> String {
    let mut value = serde_json::to_value(study).unwrap();
    for findings in value["experiments"].as_array_mut().unwrap() {
        assert!(findings["seconds"].as_f64().unwrap() > 0.0);
        findings["seconds"] = Value::Null;
    }
    value.to_string()
}

fn stored(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder.join("T")).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_stopped_study_goes_on_to_the_same_numbers() {
    let root = tempfile::tempdir().unwrap();
    let [whole, broken] = ["whole", "broken"].map(|name| root.path().join(name));
    let expected = study(TINY, &whole, 1, None).unwrap();
    let runs = stored(&whole);
    assert_eq!(runs.len(), 6);

    // Two threads; then one run is lost, another one half written.
    assert_eq!(bytes(&study(TINY, &broken, 2, None).unwrap()), bytes(&expected));
    let before = stored(&broken);
    fs::remove_file(&before[1].0).unwrap();
    fs::write(broken.join("T/.unfinished-x"), b"{").unwrap();
    let stopped = Definitions::parse(TINY).unwrap().plan("T", false, None).unwrap();
    assert!(perform(&stopped, &broken, Some(1), &AtomicBool::new(true)).unwrap().is_none());
    assert_eq!(stored(&broken).len(), 5, "a stopped run is not stored, unfinished files are gone");
    assert_eq!(bytes(&study(TINY, &broken, 2, None).unwrap()), bytes(&expected));
    // The finished runs were not run again: even their seconds are the old ones.
    let after = stored(&broken);
    assert!((0..6).filter(|i| *i != 1).all(|i| before[i] == after[i]) && after.len() == 6);

    // Both arms begin with the same warm start and learn differently.
    let [one, other] = [&expected.experiments[0].arms[0], &expected.experiments[0].arms[1]];
    assert_eq!(one.metrics[0].curve[0], other.metrics[0].curve[0]);
    assert_ne!(one.metrics[2].values, other.metrics[2].values);
    assert_eq!(one.metrics[0].curve.len(), 3, "the warm start and two steps");

    // A stored run of another configuration is never taken for this one.
    for (from, to, name) in
        [("rate = 1e-2", "rate = 2e-2", "rl.rate"), ("samples = 2", "samples = 3", "samples")]
    {
        let error = format!("{:#}", study(&TINY.replace(from, to), &whole, 1, None).unwrap_err());
        assert!(error.contains(name) && error.contains("another --out"), "{error}");
    }
    fs::write(&runs[0].0, b"{").unwrap();
    let error = format!("{:#}", study(TINY, &whole, 1, None).unwrap_err());
    assert!(error.contains("GRPO-seed1.json") && error.contains("delete it"), "{error}");
}

#[test]
fn only_what_was_measured_on_three_seeds_is_judged() {
    let root = tempfile::tempdir().unwrap();
    let verdicts = |study: &Study| -> Vec<Verdict> {
        study.experiments[0].comparisons.iter().map(|one| one.verdict.clone()).collect()
    };
    let none = |why: &str| Verdict::None(why.to_owned());
    let few = study(TINY, root.path(), 2, Some(2)).unwrap();
    assert_eq!(verdicts(&few), [none("fewer than 3 seeds"), none("not measured")]);
    assert_eq!(few.family, 0);
    // The runs of the first two seeds are taken over.
    let three = study(TINY, root.path(), 2, None).unwrap();
    assert_eq!(three.family, 1);
    let judgement = &three.experiments[0].comparisons[0];
    let (p, adjusted) = judgement.adjusted.unwrap();
    let shown = adjusted.low.unwrap() > 0.0;
    assert_eq!((judgement.verdict == Verdict::Shown, p <= 0.05 && adjusted.mean > 0.0), (shown, shown));
    assert_eq!(judgement.interval.unwrap(), adjusted, "one hypothesis: no correction");
    // The reports show everything, with the claim's characters escaped.
    let page = study_html(&three).unwrap();
    let texts =
        ["SAPO &amp; a large rate &lt; anything", "no verdict: not measured", "</svg>", "fraction solved"];
    for text in texts {
        assert!(page.contains(text), "{text}");
    }
    let page = study_markdown(&Definitions::parse(TINY).unwrap(), Some(&three)).unwrap();
    assert!(page.contains("| T | entropy: SAPO > GRPO |"), "{page}");
    let again: Study = serde_json::from_slice(&serde_json::to_vec(&three).unwrap()).unwrap();
    assert_eq!(again, three);
}

#[test]
fn a_run_that_fails_is_reported() {
    for (broken, message) in
        [("recipe = \"dppo_topk_tv\"", "does not provide"), ("recipe = \"sapo\", rate = 1e30", "finite")]
    {
        let root = tempfile::tempdir().unwrap();
        let text = TINY.replace("recipe = \"sapo\", rate = 1e-2", broken);
        let study = study(&text, root.path(), 2, None).unwrap();
        let [sound, failed] = [&study.experiments[0].arms[0], &study.experiments[0].arms[1]];
        assert!(sound.failures.is_empty() && sound.metrics[0].summary.is_some());
        assert_eq!((failed.failures.len(), failed.collapsed), (3, None));
        assert!(failed.failures[2].contains("seed 3") && failed.failures[2].contains(message), "{failed:?}");
        assert_eq!(study.experiments[0].comparisons[0].verdict, Verdict::None("a run failed".to_owned()));
        assert!(study_html(&study).unwrap().contains(message));
    }
}

fn lockstep(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(arguments.split_whitespace()).current_dir(folder).output().unwrap()
}

#[test]
fn the_command_line_lists_refuses_and_runs() {
    let root = tempfile::tempdir().unwrap();
    let listed = lockstep(root.path(), "study list");
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.status.success() && text.contains("S1 ") && text.contains("needs: "), "{text}");
    for (arguments, expected) in [
        ("study S99", "'S99': expected list, all or one of rate, S1"),
        ("study S13", "S13 cannot run yet: it needs a task"),
        ("study S1 --markdown", "--markdown needs list"),
        ("study S1 --seeds 0", "0 is not in 1..=1000"),
    ] {
        let output = lockstep(root.path(), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(error.contains(expected), "{arguments}: {error}");
    }
    let output = lockstep(root.path(), "study s7 --quick --seeds 1 --out here");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("no verdict: fewer than 3 seeds") && said.contains("no evidence"), "{said}");
    for file in ["study.json", "study.md", "study.html", "S7/GAE-seed1.json"] {
        assert!(root.path().join("here").join(file).exists(), "{file}");
    }
    // The folder's report keeps what it had.
    assert!(lockstep(root.path(), "study rate --quick --seeds 2 --out here").status.success());
    let study: Study =
        serde_json::from_slice(&fs::read(root.path().join("here/study.json")).unwrap()).unwrap();
    let found: Vec<_> = study.experiments.iter().map(|one| (&*one.id, one.seeds)).collect();
    assert_eq!(found, [("rate", 2), ("S7", 1)]);
}

/// Entropy is positive: a metric is judged by itself.
#[test]
fn a_metric_is_compared_with_zero() {
    let root = tempfile::tempdir().unwrap();
    let text = TINY.replace("b = \"GRPO\", metric = \"entropy\"", "b = \"0\", metric = \"entropy\"");
    let study = study(&text, root.path(), 2, None).unwrap();
    let (one, sapo) = (&study.experiments[0].comparisons[0], &study.experiments[0].arms[1]);
    let entropy: Vec<f64> = sapo.metrics[2].values.iter().copied().flatten().collect();
    assert_eq!((&*one.comparison.b, &one.differences), ("0", &entropy));
    assert_eq!(one.verdict, Verdict::Shown);
}

/// docs/study.md is what the program writes: without results, or with those of `study.json` beside it.
#[test]
fn the_docs_are_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let definitions = Definitions::built_in().unwrap();
    let expected = match fs::read(docs.join("study.json")) {
        Ok(bytes) => study_markdown(&definitions, Some(&serde_json::from_slice(&bytes).unwrap())),
        Err(_) => list(&definitions, true),
    };
    let page = fs::read_to_string(docs.join("study.md")).unwrap();
    assert!(page == expected.unwrap(), "run: lockstep study list --markdown > docs/study.md");
}

//! Every worked vector of docs/maths/vectors.md and every row of docs/maths/disagreements.md has a test whose
//! name contains its number; this test searches for the names.

use std::path::{Path, PathBuf};

/// Entries of docs/maths/vectors.md: the section, and a word of the test's name, which is empty if the
/// section is a single vector.
const WORKED: &[(&str, &[&str])] = &[
    ("8_1", &["sapo", "ppo", "minirl", "gspo", "gmpo"]),
    ("8_2", &["kl"]),
    ("8_3", &[""]),
    ("8_4", &["prefixes_and_sequences", "min_pro", "proximal", "effective_sample_size", "vcpo", "remix"]),
    ("8_5", &[""]),
    ("8_6", &["_grpo", "dr_grpo", "rloo", "opo", "mc_grpo", "gae", "vtrace", "pass_at_k", "grpovi"]),
    ("8_6", &["ui_s1", "overlong", "mssr"]),
    ("8_7", &["dars", "square_root_law", "areal_capacity"]),
];

const ROWS: std::ops::RangeInclusive<u32> = 1..=25;

/// Names of all functions under `folder` marked `#[test]`.
fn tests(folder: &Path, into: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            tests(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("#[test]").skip(1) {
                let name = part.lines().find_map(|line| line.trim().strip_prefix("fn "));
                into.extend(name.and_then(|name| name.split('(').next()).map(str::to_owned));
            }
        }
    }
}

/// Whether `name` contains `number`, and not just as the start of a longer number.
fn carries(name: &str, number: &str) -> bool {
    name.match_indices(number).any(|(at, _)| {
        let (before, after) = (name[..at].chars().last(), name[at + number.len()..].chars().next());
        let part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        !part(before) && !part(after)
    })
}

#[test]
fn every_worked_vector_and_every_disagreement_has_a_test() {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names = Vec::new();
    let folders = "conformance/tests ops/tests lockstep/tests core/src schedule/src ops/src lockstep/src";
    folders.split(' ').for_each(|folder| tests(&root.join(folder), &mut names));
    assert!(names.len() > 300, "only {} tests: are the folders right?", names.len());
    let mut without = Vec::new();
    for (section, word) in WORKED.iter().flat_map(|(section, words)| words.iter().map(move |w| (section, w)))
    {
        if !names.iter().any(|name| carries(name, section) && name.contains(word)) {
            without.push(format!("{section} {word}"));
        }
    }
    let rows = ROWS.map(|row| format!("row_10_{row}"));
    without.extend(rows.filter(|row| !names.iter().any(|name| carries(name, row))));
    assert_eq!(without, Vec::<String>::new(), "no test carries these numbers");
}

#[test]
fn a_number_is_no_part_of_a_longer_one() {
    assert!(carries("row_10_1_ddof", "row_10_1") && carries("a_row_10_1", "row_10_1"));
    assert!(!carries("row_10_12", "row_10_1") && !carries("worked_18_1", "8_1"));
}

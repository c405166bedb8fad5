//! A task read from a JSON Lines file with one object per line: `{"prompt": ..., "answer": ...}`, with an
//! optional `"solution"`, the worked response for the warm start. It must end in `#ANSWER`; without it the
//! answer itself is the solution.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{ANSWER_MARK, Problem, hash};

/// Maximum length of a prompt or a solution, in characters: the model is small and attends to all of it.
const MAX_CHARS: usize = 512;
/// Maximum number of distinct characters in a file.
const MAX_ALPHABET: usize = 512;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    prompt: String,
    answer: String,
    solution: Option<String>,
}

/// Parses the problems of a JSONL text. Errors name the line.
pub fn parse_jsonl(text: &[u8]) -> Result<Vec<Problem>> {
    let mut seen = BTreeMap::new();
    let mut problems = Vec::new();
    for (index, raw) in text.split(|&b| b == b'\n').enumerate() {
        if raw.trim_ascii().is_empty() {
            continue;
        }
        let number = index + 1;
        let problem = parse_line(raw).with_context(|| format!("line {number}"))?;
        if let Some(first) = seen.insert(problem.prompt.clone(), number) {
            bail!("line {number}: repeats the prompt of line {first}: {:?}", problem.prompt);
        }
        problems.push(problem);
    }
    ensure!(
        problems.len() >= 2,
        "{} problems: expected at least 2, one to train on and one held out",
        problems.len()
    );
    Ok(problems)
}

fn parse_line(raw: &[u8]) -> Result<Problem> {
    let text = std::str::from_utf8(raw).context("not UTF-8")?;
    // serde_json counts lines from the start of its input, so its "line 1" would mislead here; only the
    // column is useful.
    let line: Line = serde_json::from_str(text).map_err(|e| {
        let message = e.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        anyhow::anyhow!("column {}: {message}", e.column())
    })?;
    ensure!(!line.prompt.is_empty(), "the prompt is empty");
    ensure!(!line.answer.trim().is_empty(), "the answer is empty");
    ensure!(
        line.answer.trim() == line.answer,
        "the answer {:?} begins or ends with white space",
        line.answer
    );
    ensure!(
        !line.answer.contains(ANSWER_MARK),
        "the answer contains '{ANSWER_MARK}', which marks a final answer"
    );
    let solution = line.solution.unwrap_or_else(|| line.answer.clone());
    for (what, text) in [("prompt", &line.prompt), ("solution", &solution)] {
        let chars = text.chars().count();
        ensure!(chars <= MAX_CHARS, "the {what} has {chars} characters, more than {MAX_CHARS}");
    }
    let problem = Problem { prompt: line.prompt, solution, answer: line.answer };
    ensure!(problem.reward(&problem.solution) == 1.0, "the solution does not end in '#{}'", problem.answer);
    Ok(problem)
}

/// The problems of a file, split by a hash of the prompt.
pub struct JsonlTask {
    training: Vec<Problem>,
    held_out: Vec<Problem>,
    fingerprint: String,
}

impl JsonlTask {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes =
            std::fs::read(path).with_context(|| format!("cannot read task file {}", path.display()))?;
        Self::new(&bytes).with_context(|| path.display().to_string())
    }

    /// Parses a JSONL text. One problem in eight is held out (at least one, at most 1000): those with the
    /// smallest hashes.
    pub fn new(text: &[u8]) -> Result<Self> {
        let mut problems = parse_jsonl(text)?;
        problems.sort_by_key(|p| (hash(&p.prompt), p.prompt.clone()));
        let n = (problems.len() / 8).clamp(1, 1000);
        let training = problems.split_off(n);
        let task = Self { training, held_out: problems, fingerprint: sha2_hex(text) };
        let alphabet = task.alphabet().len();
        ensure!(alphabet <= MAX_ALPHABET, "{alphabet} different characters, more than {MAX_ALPHABET}");
        Ok(task)
    }

    fn all(&self) -> impl Iterator<Item = &Problem> {
        self.training.iter().chain(&self.held_out)
    }

    /// See [`super::Task::training`].
    pub fn training(&self, below: &mut dyn FnMut(u64) -> u64) -> Problem {
        self.training[below(self.training.len() as u64) as usize].clone()
    }

    /// See [`super::Task::held_out`].
    pub fn held_out(&self, n: usize) -> Vec<Problem> {
        self.held_out.iter().take(n).cloned().collect()
    }

    /// See [`super::Task::alphabet`].
    pub fn alphabet(&self) -> Vec<char> {
        let chars: BTreeSet<char> =
            self.all().flat_map(|p| p.prompt.chars().chain(p.solution.chars())).collect();
        chars.into_iter().collect()
    }

    /// See [`super::Task::longest`].
    pub fn longest(&self) -> (usize, usize) {
        let longest = |f: fn(&Problem) -> &str| self.all().map(|p| f(p).chars().count()).max().unwrap_or(0);
        (longest(|p| &p.prompt), longest(|p| &p.solution))
    }

    /// See [`super::Task::fingerprint`].
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }
}

fn sha2_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse_jsonl(text.as_bytes()).map_err(|e| format!("{e:#}")).unwrap_err()
    }

    #[test]
    fn errors_name_the_line() {
        let good = r#"{"prompt": "1+1=", "answer": "2"}"#;
        for (bad, what) in [
            (r#"{"prompt": "2+2=", "answer": 4}"#, "invalid type"),
            (r#"{"prompt": "2+2="}"#, "missing field `answer`"),
            (r#"{"prompt": "2+2=", "answer": "4", "asnwer": "4"}"#, "unknown field `asnwer`"),
            (r#"{"prompt": "2+2=", "answer": "4""#, "EOF"),
            (r#"{"prompt": "", "answer": "4"}"#, "prompt is empty"),
            (r#"{"prompt": "2+2=", "answer": " "}"#, "answer is empty"),
            (r##"{"prompt": "2+2=", "answer": "#4"}"##, "contains '#'"),
            (r#"{"prompt": "2+2=", "answer": "4", "solution": "2+2=4"}"#, "does not end in '#4'"),
            (good, "repeats the prompt of line 1"),
        ] {
            let message = error(&format!("{good}\n\n{bad}\n"));
            assert!(message.starts_with("line 3: ") && message.contains(what), "{message}");
        }
        assert!(error("").contains("0 problems"));
        assert!(parse_jsonl(b"{\"prompt\": \"\xff\"}").is_err());
    }

    #[test]
    fn the_split_is_disjoint_and_complete() {
        let text: String =
            (0..50).map(|i| format!("{{\"prompt\": \"{i}+1=\", \"answer\": \"{}\"}}\n", i + 1)).collect();
        let task = JsonlTask::new(text.as_bytes()).unwrap();
        assert_eq!((task.held_out.len(), task.training.len()), (6, 44));
        assert!(!super::super::share_a_prompt(&task.training, &task.held_out));
        assert_eq!(task.longest(), (5, 2));
        assert_eq!(task.alphabet().into_iter().collect::<String>(), "+0123456789=");
    }
}

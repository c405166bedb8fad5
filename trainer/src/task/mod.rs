//! Verifiable tasks: problems with a prompt, a worked solution for the warm start, and a final answer that
//! can be checked.

mod arithmetic;
mod calculator;
mod game;
mod jsonl;
mod tictactoe;

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub use arithmetic::{Arithmetic, Operation};
pub use game::Game;
pub use jsonl::{JsonlTask, parse_jsonl};

/// The character before the final answer in a response.
pub const ANSWER_MARK: char = '#';

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// What the model reads.
    pub prompt: String,
    /// A worked response that ends with the answer, or the moves of a game; used only by the warm start.
    pub solution: String,
    /// The final answer; of a game, what was dealt.
    pub answer: String,
}

impl Problem {
    /// The verifier: 1 if the response's final answer is right, otherwise 0. The final answer is the text
    /// after the last `#`, or the whole response if it has none.
    pub fn reward(&self, response: &str) -> f32 {
        let said = response.rsplit(ANSWER_MARK).next().unwrap_or(response);
        f32::from(u8::from(said.trim() == self.answer))
    }

    /// The final answer of a response that marks one with `#`.
    pub fn marked_answer(response: &str) -> Option<&str> {
        response.rsplit_once(ANSWER_MARK).map(|(_, answer)| answer.trim())
    }

    /// The working of a response: all of it up to the first `#`.
    pub fn working(response: &str) -> &str {
        response.split(ANSWER_MARK).next().unwrap_or(response)
    }
}

/// A source of problems, with a fixed split into a training part and a held-out part that share no prompt.
pub enum Task {
    /// Arithmetic, worked column by column or with a calculator.
    Arithmetic(Arithmetic),
    /// Problems read from a file.
    Jsonl(JsonlTask),
    /// A game of the policy against itself. It has no held-out part: every game can be played.
    Game(Game),
}

/// What a task can give to a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The worked solution is the only correct one, step by step between spaces, and so can be used to judge
    /// a response's working.
    Arithmetic,
    /// Only the answer can be judged.
    Jsonl,
    /// Only the answer can be judged, and a response has several turns, between which a tool answers.
    Calculator,
    /// A game: several turns, two roles, rewards on both sides of 0.
    Game,
}

impl Task {
    /// Finds a task by its command-line name: `addition[:DIGITS]`, `multiplication[:DIGITS]`,
    /// `calculator[:DIGITS]`, `jsonl:PATH`, `kuhn` or `tictactoe`. DIGITS may be a range, `1-3`.
    pub fn named(name: &str) -> Result<Self> {
        if let Some(game) = Game::named(name) {
            return Ok(Self::Game(game));
        }
        let (kind, rest) = name.split_once(':').map_or((name, None), |(kind, rest)| (kind, Some(rest)));
        let operation = match (kind, rest) {
            ("jsonl", Some(path)) if !path.is_empty() => {
                return Ok(Self::Jsonl(JsonlTask::open(Path::new(path))?));
            }
            ("addition", _) => Operation::Addition,
            ("multiplication", _) => Operation::Multiplication,
            ("calculator", _) => Operation::Calculator,
            _ => bail!(
                "unknown task '{name}': expected addition[:DIGITS], multiplication[:DIGITS], \
                 calculator[:DIGITS], jsonl:PATH, kuhn or tictactoe, with DIGITS as in 2 or 1-3"
            ),
        };
        let number = |text: &str| -> Result<u32> {
            text.parse().with_context(|| format!("task '{name}': '{text}' is not a number of digits"))
        };
        let digits = match rest.map(|text| text.split_once('-').unwrap_or((text, text))) {
            None => [arithmetic::DEFAULT_DIGITS; 2],
            Some((least, most)) => [number(least)?, number(most)?],
        };
        Ok(Self::Arithmetic(Arithmetic::new(operation, digits).with_context(|| format!("task '{name}'"))?))
    }

    /// A training problem, determined by the random numbers that `below(n)` (a number in `0..n`) returns.
    pub fn training(&self, below: &mut dyn FnMut(u64) -> u64) -> Problem {
        match self {
            Self::Arithmetic(task) => task.training(below),
            Self::Jsonl(task) => task.training(below),
            Self::Game(game) => {
                let role = below(2) as usize;
                let [first, second] = game.deal(below);
                if role == 0 { first } else { second }
            }
        }
    }

    /// At most `n` distinct held-out problems, always the same ones.
    pub fn held_out(&self, n: usize) -> Vec<Problem> {
        match self {
            Self::Arithmetic(task) => task.held_out(n),
            Self::Jsonl(task) => task.held_out(n),
            Self::Game(_) => Vec::new(),
        }
    }

    /// Every character that a prompt or a solution may contain.
    pub fn alphabet(&self) -> Vec<char> {
        match self {
            Self::Arithmetic(task) => task.alphabet(),
            Self::Jsonl(task) => task.alphabet(),
            Self::Game(game) => game.alphabet(),
        }
    }

    /// The longest prompt and the longest response, in characters.
    pub fn longest(&self) -> (usize, usize) {
        match self {
            Self::Arithmetic(task) => task.longest(),
            Self::Jsonl(task) => task.longest(),
            Self::Game(game) => game.longest(),
        }
    }

    /// The reward of a response.
    pub fn reward(&self, problem: &Problem, response: &str) -> f32 {
        match self {
            Self::Game(game) => game.reward(problem, response),
            _ => problem.reward(response),
        }
    }

    /// What it can give to a recipe.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Arithmetic(task) if task.has_calculator() => Kind::Calculator,
            Self::Arithmetic(_) => Kind::Arithmetic,
            Self::Jsonl(_) => Kind::Jsonl,
            Self::Game(_) => Kind::Game,
        }
    }

    /// Which tokens of a response the policy chose, where a response has several turns; the others are
    /// observations, `loss_mask` 0.
    pub fn own(&self, problem: &Problem, response: &str, tokens: usize) -> Option<Vec<bool>> {
        match self {
            Self::Game(game) => Some(game.own(Game::role(&problem.prompt), response, tokens).collect()),
            Self::Arithmetic(task) if task.has_calculator() => Some(calculator::own(response, tokens)),
            _ => None,
        }
    }

    /// The next character after a prompt and a part of a response if the environment writes it. Only a task
    /// with a tool asks for the text: this is called for every token.
    pub fn told(&self, text: impl FnOnce() -> String) -> Option<char> {
        if self.kind() == Kind::Calculator { calculator::told(&text()) } else { None }
    }

    /// Number of calls that a response makes, if there is a tool.
    pub fn calls(&self, response: impl FnOnce() -> String) -> Option<usize> {
        (self.kind() == Kind::Calculator).then(|| calculator::calls(&response()))
    }

    /// The game, if it is one.
    pub fn game(&self) -> Option<Game> {
        if let Self::Game(game) = self { Some(*game) } else { None }
    }

    /// A fingerprint of the task's content; a resumed run must see the same problems.
    pub fn fingerprint(&self) -> String {
        match self {
            Self::Jsonl(task) => task.fingerprint(),
            _ => String::new(),
        }
    }
}

/// FNV-1a with a final mix. It decides which side of the split a prompt is on, so it must never change.
fn hash(text: &str) -> u64 {
    let mut h =
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    h ^= h >> 32;
    h = h.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ h >> 29
}

/// Whether two lists of problems share a prompt.
pub fn share_a_prompt(a: &[Problem], b: &[Problem]) -> bool {
    let prompts: HashSet<&str> = a.iter().map(|p| p.prompt.as_str()).collect();
    b.iter().any(|p| prompts.contains(p.prompt.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_reads_the_final_answer() {
        let problem = Problem { prompt: "1+2=".into(), solution: "1+2=3#3".into(), answer: "3".into() };
        assert_eq!(problem.reward("1+2=3#3"), 1.0);
        assert_eq!(problem.reward("nonsense#3"), 1.0);
        assert_eq!(problem.reward("3"), 1.0);
        assert_eq!(problem.reward("1+2=3"), 0.0);
        assert_eq!(problem.reward("1+2=3#4"), 0.0);
        assert_eq!(problem.reward("3#"), 0.0);
        assert_eq!(problem.reward(""), 0.0);
    }

    #[test]
    fn unknown_tasks_are_named() {
        for bad in [
            "sorting",
            "jsonl",
            "jsonl:",
            "addition:x",
            "addition:0",
            "addition:99",
            "addition:3-1",
            "addition:1-",
            "calculator:0",
            "calculator:7",
            "calculator:1-7",
            "kuhn:3",
        ] {
            let error = Task::named(bad).err().map(|e| format!("{e:#}")).unwrap_or_default();
            assert!(error.contains(bad), "{bad}: {error}");
        }
    }
}

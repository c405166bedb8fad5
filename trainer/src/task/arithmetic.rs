//! Multi-digit arithmetic, with the answer after a `#`. Sums and products are worked column by column, from
//! the last digit to the first: `347+285=` is answered by `7+5=12 4+8+1=13 3+2+1=6 #632`, and `347*6=` by
//! `7*6=42 4*6+4=28 3*6+2=20 #2082`. With a calculator ([`super::calculator`]) two numbers are multiplied and
//! a third one is added: `34*57+21=` is answered by `[34*57]1938 [1938+21]1959 #1959`.

use anyhow::{Result, ensure};

use super::{Problem, calculator, hash};

/// Digits of the long operands if the task's name does not give them.
pub(super) const DEFAULT_DIGITS: u32 = 3;

/// One problem in this many is held out.
const HELD_OUT_SHARE: u64 = 8;

/// What is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds two numbers with the same number of digits.
    Addition,
    /// Multiplies a long number by one digit, digit by digit.
    Multiplication,
    /// Multiplies two numbers and adds a third one, all with the same number of digits, with a calculator.
    Calculator,
}

impl Operation {
    /// The number of digits in a problem whose numbers have `digits` digits.
    fn width(self, digits: u32) -> u32 {
        match self {
            Self::Addition => 2 * digits,
            Self::Multiplication => digits + 1,
            Self::Calculator => 3 * digits,
        }
    }
}

/// An arithmetic task: an operation and the number of digits, of `least` to `most` with equal probability.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    operation: Operation,
    least: u32,
    most: u32,
}

impl Arithmetic {
    /// Creates a task with numbers of 1 to 9 digits, with a calculator 1 to 6, so that a u64 can count all
    /// problems of one width.
    pub fn new(operation: Operation, [least, most]: [u32; 2]) -> Result<Self> {
        let largest = if operation == Operation::Calculator { 6 } else { 9 };
        for digits in [least, most] {
            ensure!((1..=largest).contains(&digits), "{digits} digits: expected 1 to {largest}");
        }
        ensure!(least <= most, "{least} to {most} digits: expected the smaller number first");
        Ok(Self { operation, least, most })
    }

    fn draw(&self, digits: u32, below: &mut dyn FnMut(u64) -> u64) -> Problem {
        let span = 10_u64.pow(digits);
        let a = below(span);
        match self.operation {
            Operation::Addition => Self::addition(digits, a, below(span)),
            Operation::Multiplication => Self::multiplication(digits, a, below(10)),
            Operation::Calculator => Self::calculation(digits, a, below(span), below(span)),
        }
    }

    fn addition(digits: u32, a: u64, b: u64) -> Problem {
        let solution = Self::work(digits, a, |x, place| {
            let y = b / 10_u64.pow(place) % 10;
            (format!("{x}+{y}"), x + y)
        });
        Self::problem(format!("{a:0w$}+{b:0w$}=", w = digits as usize), solution, a + b)
    }

    fn multiplication(digits: u32, a: u64, b: u64) -> Problem {
        let solution = Self::work(digits, a, |x, _| (format!("{x}*{b}"), x * b));
        Self::problem(format!("{a:0w$}*{b}=", w = digits as usize), solution, a * b)
    }

    fn calculation(digits: u32, a: u64, b: u64, c: u64) -> Problem {
        let w = digits as usize;
        let calls = [format!("[{a:0w$}*{b:0w$}]"), format!("[{}+{c:0w$}]", a * b)];
        let working = calls.iter().map(|call| call.clone() + &calculator::answer(call)).collect();
        Self::problem(format!("{a:0w$}*{b:0w$}+{c:0w$}="), working, a * b + c)
    }

    /// One step of working for every digit of `a`: what `term` makes of the digit and its place, as text and
    /// as a number, plus the carry.
    fn work(digits: u32, a: u64, term: impl Fn(u64, u32) -> (String, u64)) -> String {
        let mut carry = 0;
        let step = |place| {
            let (text, value) = term(a / 10_u64.pow(place) % 10, place);
            let text = if carry > 0 { format!("{text}+{carry}") } else { text };
            let value = value + carry;
            carry = value / 10;
            format!("{text}={value} ")
        };
        (0..digits).map(step).collect()
    }

    fn problem(prompt: String, working: String, answer: u64) -> Problem {
        let answer = answer.to_string();
        Problem { prompt, solution: format!("{working}#{answer}"), answer }
    }

    fn is_held_out(problem: &Problem) -> bool {
        hash(&problem.prompt).is_multiple_of(HELD_OUT_SHARE)
    }

    /// See [`super::Task::training`].
    pub fn training(&self, below: &mut dyn FnMut(u64) -> u64) -> Problem {
        loop {
            // Nothing is drawn where there is no choice.
            let widths = u64::from(self.most - self.least + 1);
            let digits = self.least + if widths > 1 { below(widths) as u32 } else { 0 };
            let problem = self.draw(digits, below);
            if !Self::is_held_out(&problem) {
                return problem;
            }
        }
    }

    /// See [`super::Task::held_out`]: one problem of every number of digits in turn, while there are any.
    pub fn held_out(&self, n: usize) -> Vec<Problem> {
        let each: Vec<Vec<Problem>> =
            (self.least..=self.most).map(|digits| self.held_out_of(digits, n)).collect();
        let ranks = 0..each.iter().map(Vec::len).max().unwrap_or(0);
        ranks.flat_map(|rank| each.iter().filter_map(move |one| one.get(rank))).take(n).cloned().collect()
    }

    /// Held-out problems of one number of digits, enumerated in a fixed scattered order.
    fn held_out_of(&self, digits: u32, n: usize) -> Vec<Problem> {
        let space = 10_u64.pow(self.operation.width(digits));
        // Odd and not a multiple of 5, hence coprime to the size of the space: every problem is visited once.
        let stride = (0x9e37_79b9_7f4a_7c13 % space) | 1;
        let stride = if stride.is_multiple_of(5) { stride + 2 } else { stride };
        let mut at = 0;
        let mut problems = Vec::new();
        for _ in 0..space {
            at = (u128::from(at) + u128::from(stride)).rem_euclid(u128::from(space)) as u64;
            let mut rest = at;
            let problem = self.draw(digits, &mut |n| {
                let digit = rest % n;
                rest /= n;
                digit
            });
            if Self::is_held_out(&problem) {
                problems.push(problem);
                if problems.len() == n {
                    break;
                }
            }
        }
        problems
    }

    /// See [`super::Task::alphabet`].
    pub fn alphabet(&self) -> Vec<char> {
        let more = match self.operation {
            Operation::Addition => "",
            Operation::Multiplication => "*",
            Operation::Calculator => calculator::ALPHABET,
        };
        " #+=0123456789".chars().chain(more.chars()).collect()
    }

    /// See [`super::Task::longest`]. With a calculator there is room for one more call than is needed.
    pub fn longest(&self) -> (usize, usize) {
        let nines = 10_u64.pow(self.most) - 1;
        let (longest, more) = match self.operation {
            Operation::Addition => (Self::addition(self.most, nines, nines), 0),
            Operation::Multiplication => (Self::multiplication(self.most, nines, 9), 0),
            Operation::Calculator => {
                let longest = Self::calculation(self.most, nines, nines, nines);
                let more = longest.solution.split_inclusive(' ').map(str::len).max().unwrap_or(0);
                (longest, more)
            }
        };
        (longest.prompt.len(), longest.solution.len() + more)
    }

    /// Whether its problems are solved with a calculator.
    pub fn has_calculator(&self) -> bool {
        self.operation == Operation::Calculator
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Task, share_a_prompt};
    use super::*;

    #[test]
    fn hand_worked_sums_and_products() {
        let worked = |p: Problem| [p.prompt, p.solution, p.answer];
        for (found, expected) in [
            (Arithmetic::addition(3, 347, 285), ["347+285=", "7+5=12 4+8+1=13 3+2+1=6 #632", "632"]),
            (Arithmetic::multiplication(3, 347, 6), ["347*6=", "7*6=42 4*6+4=28 3*6+2=20 #2082", "2082"]),
            (Arithmetic::calculation(2, 34, 57, 6), ["34*57+06=", "[34*57]1938 [1938+06]1944 #1944", "1944"]),
        ] {
            assert_eq!(worked(found), expected);
        }
        assert_eq!(Arithmetic::addition(3, 7, 5).prompt, "007+005=");
    }

    #[test]
    fn the_smallest_and_the_largest_spaces_have_both_sides() {
        for name in [
            "addition:1",
            "multiplication:1",
            "calculator:1",
            "addition:9",
            "multiplication:9",
            "calculator:6",
        ] {
            let task = Task::named(name).unwrap();
            let held_out = task.held_out(5);
            assert_eq!(held_out.len(), 5, "{name}");
            let mut state = 0_u64;
            let mut below = |n| {
                state += 7;
                state % n
            };
            assert!(!share_a_prompt(&held_out, &[task.training(&mut below)]), "{name}");
        }
    }

    #[test]
    fn the_two_sides_share_nothing_and_never_change() {
        for name in
            ["addition:2", "addition", "multiplication", "calculator", "addition:1-3", "calculator:1-2"]
        {
            let task = Task::named(name).unwrap();
            let held_out = task.held_out(200);
            assert_eq!(held_out.len(), 200);
            assert_eq!(held_out, task.held_out(200));
            let mut prompts: Vec<_> = held_out.iter().map(|p| &p.prompt).collect();
            prompts.sort();
            prompts.dedup();
            assert_eq!(prompts.len(), 200);
            let mut state = 1_u64;
            let training: Vec<_> = (0..2000)
                .map(|_| {
                    task.training(&mut |n| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (state >> 33) % n
                    })
                })
                .collect();
            assert!(!share_a_prompt(&held_out, &training));
            let (prompt, solution) = task.longest();
            for p in held_out.iter().chain(&training) {
                assert_eq!(p.reward(&p.solution), 1.0);
                assert!(p.prompt.len() <= prompt && p.solution.len() <= solution);
                assert!(p.prompt.chars().chain(p.solution.chars()).all(|c| task.alphabet().contains(&c)));
            }
        }
    }

    /// Of the 100 sums of one digit some 12 are held out: with them gone, the other widths take turns.
    #[test]
    fn a_range_has_every_number_of_digits() {
        let task = Task::named("addition:1-3").unwrap();
        let digits = |problem: &Problem| problem.prompt.find('+').unwrap();
        let held_out = task.held_out(200);
        assert_eq!(held_out[..6].iter().map(digits).collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3]);
        assert_eq!(held_out[198..].iter().map(digits).collect::<Vec<_>>(), [2, 3]);
        let alone = |name: &str| Task::named(name).unwrap().held_out(1);
        assert_eq!(held_out[..3], ["addition:1", "addition:2", "addition:3"].map(alone).concat());
        // The first draw is the width, the next two the numbers.
        let mut draws = [1, 47, 28].into_iter();
        assert_eq!(task.training(&mut |_| draws.next().unwrap()).prompt, "47+28=");
        assert_eq!(task.longest(), Task::named("addition:3").unwrap().longest());
    }
}

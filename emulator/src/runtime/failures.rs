//! Requested failures, and call counts per function.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

/// A call that is to fail: `function@nth:code`, counted from 1; `nth+` means this call and every later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The vendor's function.
    pub function: String,
    /// Which call of it, counted from the request.
    pub nth: u64,
    /// Whether every later call fails too.
    pub for_good: bool,
    /// The code that it returns.
    pub code: i32,
}

impl FromStr for Failure {
    type Err = String;

    fn from_str(text: &str) -> Result<Failure, String> {
        let expected = || format!("`{text}`: expected function@nth:code");
        let (function, rest) = text.split_once('@').ok_or_else(expected)?;
        let (nth, code) = rest.split_once(':').ok_or_else(expected)?;
        let (nth, for_good) = match nth.trim().strip_suffix('+') {
            Some(nth) => (nth, true),
            None => (nth.trim(), false),
        };
        let nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or_else(expected)?;
        let code = code.trim().parse().map_err(|_| expected())?;
        Ok(Failure { function: function.trim().to_owned(), nth, for_good, code })
    }
}

/// Requested failures, and what was called.
#[derive(Debug, Default)]
pub(super) struct Failures {
    waiting: Vec<Failure>,
    calls: BTreeMap<&'static str, u64>,
    /// The last calls, in order, with what was launched.
    log: VecDeque<String>,
}

/// Number of calls that the log keeps.
const LOGGED: usize = 16_384;

impl Failures {
    pub(super) fn add(&mut self, failure: Failure) {
        self.waiting.push(failure);
    }

    /// Counts a call, and returns the code with which it fails, if requested.
    pub(super) fn call(&mut self, function: &'static str) -> Option<i32> {
        *self.calls.entry(function).or_default() += 1;
        if self.log.len() == LOGGED {
            self.log.pop_front();
        }
        self.log.push_back(function.to_owned());
        let mut code = None;
        self.waiting.retain_mut(|failure| {
            if failure.function != function || code.is_some() {
                return true;
            }
            if failure.nth > 1 {
                failure.nth -= 1;
                return true;
            }
            code = Some(failure.code);
            failure.for_good
        });
        code
    }

    /// Adds a detail to the last call in the log.
    pub(super) fn note(&mut self, what: &str) {
        if let Some(last) = self.log.back_mut() {
            *last += what;
        }
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.iter().cloned().collect()
    }

    pub(super) fn calls(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_once_and_all_fail_always() {
        let mut failures = Failures::default();
        failures.add("a@2:700".parse().unwrap());
        failures.add("b@2+:-3".parse().unwrap());
        let codes = ["a", "a", "a", "b", "b", "b", "c"].map(|function| failures.call(function));
        assert_eq!(codes, [None, Some(700), None, None, Some(-3), Some(-3), None]);
        assert_eq!((failures.calls("a"), failures.calls("d")), (3, 0));
    }

    #[test]
    fn what_is_misspelt_is_refused() {
        for text in ["", "a", "a@1", "a@0:1", "a@x:1", "a@+:1", "a@1:x", "a:1"] {
            assert!(text.parse::<Failure>().is_err(), "{text}");
        }
    }
}

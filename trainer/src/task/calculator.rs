//! A calculator that a response may call: `[34*57]` or `[1938+21]`. At the end of a call, `]`, the
//! environment writes the result and a space, or `!` if there is none; then it is the policy's turn again.
//! What it writes follows from the text so far, so nothing else has to be kept of a response.

use std::iter::{from_fn, repeat_n};

/// What a call and its result are written with, beside digits and the space.
pub(super) const ALPHABET: &str = "*+[]!";

/// The end of a call.
const END: char = ']';

/// What the environment writes after a call that has no result.
const FAILED: &str = "!";

/// Calls of a response that can have a result: one more than a problem needs.
const CALLS: usize = 3;

/// What the environment writes after a text that ends with a call.
pub(super) fn answer(text: &str) -> String {
    compute(text).map_or(FAILED.to_owned(), |result| format!("{result} "))
}

/// The sum or the product of two numbers below 2^64.
fn compute(text: &str) -> Option<u128> {
    let (_, call) = text.strip_suffix(END)?.rsplit_once('[')?;
    let (a, b) = call.split_once(['+', '*'])?;
    // `parse` would accept a sign.
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+')).map(u128::from);
    let (a, b) = (number(a)?, number(b)?);
    Some(if call.contains('*') { a * b } else { a + b })
}

/// The turns of a text that end with a call: what the policy wrote, and what the environment writes after it,
/// of which the text may have a part only.
fn turns(text: &str) -> impl Iterator<Item = (&str, String)> {
    let (mut rest, mut calls) = (text, 0);
    from_fn(move || {
        let (own, after) = rest.split_at(rest.find(END)? + END.len_utf8());
        calls += 1;
        let told = if calls <= CALLS { answer(own) } else { FAILED.to_owned() };
        rest = after.get(told.len()..).unwrap_or_default();
        Some((own, told))
    })
}

/// The next character after a text if the environment writes it.
pub(super) fn told(text: &str) -> Option<char> {
    let mut at = 0;
    turns(text).find_map(|(own, told)| {
        let next = told.chars().nth(text.len() - at - own.len());
        at += own.len() + told.len();
        next
    })
}

/// Which of a response's tokens the policy wrote, the end token included.
pub(super) fn own(response: &str, tokens: usize) -> Vec<bool> {
    let told = turns(response);
    let turn = |(own, told): (&str, String)| repeat_n(true, own.len()).chain(repeat_n(false, told.len()));
    let mut own: Vec<bool> = told.flat_map(turn).collect();
    own.resize(tokens, true);
    own
}

/// Number of calls in a response.
pub(super) fn calls(response: &str) -> usize {
    response.matches(END).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_exact_and_bad_calls_have_none() {
        for (call, result) in [
            ("34*57=[34*57]", "1938 "),
            ("[1938+021]", "1959 "),
            ("[[0+0]", "0 "),
            ("[18446744073709551615*18446744073709551615]", "340282366920938463426481119284349108225 "),
            ("[18446744073709551616+1]", "!"),
            ("34*57]", "!"),
            ("[]", "!"),
            ("[34]", "!"),
            ("[34*]", "!"),
            ("[+7]", "!"),
            ("[3++7]", "!"),
            ("[3*+7]", "!"),
            ("[3+7*2]", "!"),
            ("[3+7+2]", "!"),
            ("[3 +7]", "!"),
            ("[#3+7]", "!"),
        ] {
            assert_eq!(answer(call), result, "{call}");
        }
    }

    /// The environment writes every result character by character, whatever was written before.
    #[test]
    fn the_environment_has_its_turn_after_each_call() {
        for (text, next) in [
            ("34*57+21=", None),
            ("34*57+21=[34*57", None),
            ("34*57+21=[34*57]", Some('1')),
            ("34*57+21=[34*57]19", Some('3')),
            ("34*57+21=[34*57]1938", Some(' ')),
            ("34*57+21=[34*57]1938 ", None),
            ("34*57+21=[34*57]1938 [1938]", Some('!')),
            ("34*57+21=[34*57]1938 [1938]!", None),
            ("]!]!]!", None),
            // The fourth call.
            ("]!]!]![1+1]", Some('!')),
            ("]!]!]![1+1]!", None),
        ] {
            assert_eq!(told(text), next, "{text}");
        }
    }

    #[test]
    fn results_are_not_the_policys() {
        let own = |response, tokens| {
            own(response, tokens).into_iter().map(|own| if own { 'x' } else { '.' }).collect::<String>()
        };
        assert_eq!(own("[3*5]15 ]!#1", 13), "xxxxx...x.xxx");
        // Cut off within a result, and before it.
        assert_eq!(own("[3*5]1", 6), "xxxxx.");
        assert_eq!(own("[3*5]", 5), "xxxxx");
        assert_eq!(own("#1", 3), "xxx");
        assert_eq!(calls("[3*5]15 ]!#1"), 2);
    }
}

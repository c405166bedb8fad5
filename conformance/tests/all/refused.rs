//! What is refused, and in which words.

use std::fmt::Display;

/// Panics unless the result is an error with this message, in which `…` stands for any text.
#[track_caller]
pub(crate) fn refused<T, E: Display>(result: Result<T, E>, says: &str) {
    let message = result.err().map(|error| error.to_string());
    assert!(message.as_deref().is_some_and(|message| is(message, says)), "{message:?}, not {says}");
}

fn is(message: &str, says: &str) -> bool {
    let Some((start, rest)) = says.split_once('…') else { return message == says };
    let Some(message) = message.strip_prefix(start) else { return false };
    message.char_indices().any(|(at, _)| is(&message[at..], rest)) || is("", rest)
}

#[test]
fn an_ellipsis_is_any_text_and_nothing_else_is() {
    let message = "`logp`[1] is NaN: expected a number";
    for says in [message, "`logp`[1]…", "…expected a number", "…[1]…NaN…", "`logp`[1] is NaN…: expected…"]
    {
        assert!(is(message, says), "{says}");
    }
    for says in ["", "`logp`[1]", "[1]…", "…NaN", "…NaN…[1]…", "`logp`[2]…number"] {
        assert!(!is(message, says), "{says}");
    }
}

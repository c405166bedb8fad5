//! What is wrong with a PTX text.

/// A text that is no PTX, or PTX that the emulator does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, at `{token}`: {what}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// The token at which reading stopped.
    pub token: String,
    /// What was expected, or what is wrong with it.
    pub what: String,
}

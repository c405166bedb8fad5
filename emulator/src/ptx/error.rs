//! Errors in a PTX text.

/// A text that is not PTX, or PTX that the emulator does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, at `{token}`: {what}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// The token at which reading stopped.
    pub token: String,
    /// What was expected, or what is wrong with the token.
    pub what: String,
}

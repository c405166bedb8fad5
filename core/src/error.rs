//! Errors about arguments: name, position, expected value and actual value.

use core::fmt;

/// A rejected argument. Every variant names the argument; the position is an index into that argument.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An argument that must not be empty is empty.
    Empty {
        /// Name of the argument.
        argument: &'static str,
        /// What it should contain.
        expected: &'static str,
    },
    /// An array has the wrong length.
    Length {
        /// Name of the argument.
        argument: &'static str,
        /// Expected length.
        expected: usize,
        /// Where the expected length comes from.
        because: &'static str,
        /// Actual length.
        got: usize,
    },
    /// Offsets must start at 0.
    FirstOffset {
        /// Name of the argument.
        argument: &'static str,
        /// The first entry.
        got: u32,
    },
    /// Offsets must never decrease.
    Decreasing {
        /// Name of the argument.
        argument: &'static str,
        /// Index of the entry that is smaller than its predecessor.
        index: usize,
        /// The predecessor.
        before: u32,
        /// The entry.
        got: u32,
    },
    /// Offsets must end at the number of elements they partition.
    LastOffset {
        /// Name of the argument.
        argument: &'static str,
        /// Index of the last entry.
        index: usize,
        /// The number of elements.
        expected: usize,
        /// What the elements are.
        of: &'static str,
        /// The last entry.
        got: u32,
    },
    /// A sequence or group without members, where none is allowed.
    EmptyRow {
        /// Name of the offsets.
        argument: &'static str,
        /// Index of the empty row.
        index: usize,
        /// What a row is: `sequence` or `group`.
        row: &'static str,
    },
    /// A value outside its domain.
    Value {
        /// Name of the argument.
        argument: &'static str,
        /// Index of the value; `None` for a scalar argument.
        index: Option<usize>,
        /// The domain.
        expected: &'static str,
        /// The value.
        got: f64,
    },
    /// Arguments that cannot be used together, or a required one that is missing.
    Combination {
        /// Name of the argument.
        argument: &'static str,
        /// What would be accepted.
        expected: &'static str,
    },
    /// The inputs were valid but a result is not finite.
    NotFinite {
        /// Name of the result.
        result: &'static str,
        /// Index into the result.
        index: usize,
        /// What to change.
        hint: &'static str,
    },
}

impl Error {
    /// Name of the argument, or of the result that is not finite.
    pub fn argument(&self) -> &'static str {
        let mut error = *self;
        core::mem::take(error.argument_mut())
    }

    /// The same name, to be replaced by the one that the caller knows.
    pub fn argument_mut(&mut self) -> &mut &'static str {
        match self {
            Error::Empty { argument, .. }
            | Error::Length { argument, .. }
            | Error::FirstOffset { argument, .. }
            | Error::Decreasing { argument, .. }
            | Error::LastOffset { argument, .. }
            | Error::EmptyRow { argument, .. }
            | Error::Value { argument, .. }
            | Error::Combination { argument, .. } => argument,
            Error::NotFinite { result, .. } => result,
        }
    }

    /// Index of the offending entry, if the argument is an array.
    pub fn index(&self) -> Option<usize> {
        match *self {
            Error::FirstOffset { .. } => Some(0),
            Error::Decreasing { index, .. }
            | Error::LastOffset { index, .. }
            | Error::EmptyRow { index, .. }
            | Error::NotFinite { index, .. } => Some(index),
            Error::Value { index, .. } => index,
            Error::Empty { .. } | Error::Length { .. } | Error::Combination { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Empty { argument, expected } => write!(f, "`{argument}` is empty: expected {expected}"),
            Error::Length { argument, expected, because, got } => {
                write!(f, "`{argument}` has {got} entries: expected {expected} ({because})")
            }
            Error::FirstOffset { argument, got } => {
                write!(f, "`{argument}`[0] is {got}: offsets must start at 0")
            }
            Error::Decreasing { argument, index, before, got } => {
                write!(f, "`{argument}`[{index}] is {got}: expected at least {before}, the entry before it")
            }
            Error::LastOffset { argument, index, expected, of, got } => {
                write!(
                    f,
                    "`{argument}`[{index}] is {got}: the last offset must be {expected}, the number of {of}"
                )
            }
            Error::EmptyRow { argument, index, row } => {
                write!(f, "`{argument}` gives {row} {index} no members: expected at least one")
            }
            Error::Value { argument, index: Some(i), expected, got } => {
                write!(f, "`{argument}`[{i}] is {got}: expected {expected}")
            }
            Error::Value { argument, index: None, expected, got } => {
                write!(f, "`{argument}` is {got}: expected {expected}")
            }
            Error::Combination { argument, expected } => write!(f, "`{argument}`: {expected}"),
            Error::NotFinite { result, index, hint } => {
                write!(f, "`{result}`[{index}] is not finite: {hint}")
            }
        }
    }
}

impl core::error::Error for Error {}

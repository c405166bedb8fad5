//! The names of columns in the errors of ops.

use crate::Error;
use lockstep_core::Error as Argument;

/// An op's name for token rewards, and their column.
pub(super) const TOKEN_REWARDS: (&str, &str) = ("token rewards", "token_rewards");

pub(super) trait Naming {
    /// Replaces the name of an op's argument in the error by that of the column that was passed for it, the
    /// only name that the caller of a recipe knows. Each pair is an argument and its column.
    fn naming(self, names: &[(&str, &'static str)]) -> Self;
}

impl<T> Naming for Result<T, Error> {
    fn naming(self, names: &[(&str, &'static str)]) -> Self {
        self.map_err(|mut error| {
            if let Error::Argument(inner) = &mut error
                && !matches!(inner, Argument::NotFinite { .. })
                && let Some((_, column)) = names.iter().find(|(own, _)| *own == inner.argument())
            {
                *inner.argument_mut() = column;
            }
            error
        })
    }
}

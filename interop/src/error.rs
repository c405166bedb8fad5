//! The errors with which a call is refused.

/// A refused call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Lockstep refused a column, the credit, the recipe or the device.
    #[error(transparent)]
    Lockstep(#[from] lockstep::Error),
    /// A tensor or piece of memory that the call does not accept.
    #[error("{argument}: expected {expected}, got {got}")]
    Argument {
        /// Its name.
        argument: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// An error from candle.
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// An error from burn: a tensor could not be read.
    #[cfg(feature = "burn")]
    #[error("burn: {0}")]
    Burn(String),
}

impl Error {
    pub(crate) fn argument(
        argument: &'static str,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Error {
        Error::Argument { argument, expected: expected.into(), got: got.into() }
    }
}

//! Every way in which a call can be refused.

/// A refused call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A column, the credit, the recipe or the device: what Lockstep says.
    #[error(transparent)]
    Lockstep(#[from] lockstep::Error),
    /// A tensor or a piece of memory that is not what the call takes.
    #[error("{argument}: expected {expected}, got {got}")]
    Argument {
        /// Its name.
        argument: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// What candle says.
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// What burn says: a tensor could not be read.
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

//! The errors that a call can return.

/// An error of a call. Outputs are unspecified if a call returns one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A wrong argument: its name, the position and what was expected.
    #[error(transparent)]
    Argument(#[from] lockstep_core::Error),
    /// A wrong routing trace: the token, layer and entry, and what was expected.
    #[error(transparent)]
    Trace(#[from] lockstep_core::routing::TraceFault),
    /// A file that does not hold a valid routing trace: the tensor or the field, and what was expected.
    #[error("routing trace file: {0}")]
    TraceFile(String),
    /// A file that does not hold valid rollouts: the tensor, the entry, and what was expected.
    #[error("rollouts file: {0}")]
    File(String),
    /// The machine does not have the requested CPU level.
    #[error(transparent)]
    Device(#[from] lockstep_cpu::Unavailable),
    /// A GPU is missing, with the reason, or a driver call failed, with the vendor's error code and name.
    #[error(transparent)]
    Gpu(#[from] lockstep_gpu::Error),
    /// The name is not that of a device, or the device is missing.
    #[error("no device `{asked}`: {because}")]
    NoSuchDevice {
        /// The requested name.
        asked: String,
        /// The reason.
        because: String,
    },
    /// A recipe that cannot be parsed or that needs something unsupported.
    #[error("recipe: {0}")]
    Recipe(String),
    /// A plan that cannot be made, or that was given arguments it cannot run on.
    #[error("plan: {0}")]
    Plan(String),
    /// A call lacks columns that its recipe reads.
    #[error("recipe `{recipe}`: missing columns: {missing}")]
    Columns {
        /// Name of the recipe.
        recipe: String,
        /// The missing columns, each with the stage that reads it.
        missing: String,
    },
}

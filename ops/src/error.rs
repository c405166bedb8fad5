//! Every way in which a call can be refused.

/// A refused call. Nothing was computed that the caller should use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is wrong: its name, the position, what was expected.
    #[error(transparent)]
    Argument(#[from] lockstep_core::Error),
    /// A routing trace is wrong: the token, layer and entry, what was expected.
    #[error(transparent)]
    Trace(#[from] lockstep_core::routing::TraceFault),
    /// A file that holds no routing trace: the tensor or the field, what was expected.
    #[error("routing trace file: {0}")]
    TraceFile(String),
    /// A file that holds no rollouts: the tensor, the entry, what was expected.
    #[error("rollouts file: {0}")]
    File(String),
    /// The CPU level asked for is not there.
    #[error(transparent)]
    Device(#[from] lockstep_cpu::Unavailable),
    /// A GPU: why it is not there, or what failed, with the vendor's code and name.
    #[error(transparent)]
    Gpu(#[from] lockstep_gpu::Error),
    /// A device that has no such name, or is not there.
    #[error("no device `{asked}`: {because}")]
    NoSuchDevice {
        /// The name asked for.
        asked: String,
        /// Why there is none.
        because: String,
    },
    /// A recipe that cannot be read or that asks for what is not supported.
    #[error("recipe: {0}")]
    Recipe(String),
    /// A plan that cannot be made, or that was given what it cannot take.
    #[error("plan: {0}")]
    Plan(String),
    /// A call without columns that its recipe reads.
    #[error("recipe `{recipe}`: missing columns: {missing}")]
    Columns {
        /// Name of the recipe.
        recipe: String,
        /// The columns, each with the stage that wants it.
        missing: String,
    },
}

//! Machine code: words to instructions and instructions to LLVM's text.

pub mod compare;
pub mod decode;
mod dpp;
pub mod inst;
pub mod op;
pub mod operand;
mod sdwa;
pub mod text;
mod vector;

/// Why words are not an instruction for the emulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// gfx942 has no such instruction.
    #[error("no instruction: {0}")]
    Invalid(String),
    /// gfx942 has it, or may have it; the emulator does not.
    #[error("{0}")]
    Unsupported(String),
}

fn invalid<T>(why: String) -> Result<T, Refusal> {
    Err(Refusal::Invalid(why))
}

fn unsupported<T>(why: String) -> Result<T, Refusal> {
    Err(Refusal::Unsupported(why))
}

//! gfx942 (AMD Instinct MI300, CDNA3): runs the machine code of a code object, wave by wave.
//!
//! ```text
//! object, metadata, descriptor   the file: kernels, their arguments, a wave's initial state
//! code                           words to instructions, and to LLVM's text
//! run                            registers, operations, memory, a grid of waves
//! ```

pub mod code;
pub mod descriptor;
pub mod metadata;
pub mod object;
pub mod run;

pub use run::Approximation;
pub use run::launch::Module;

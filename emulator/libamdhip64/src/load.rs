//! Loads a code object as a runnable program.

use lockstep_emulator::gfx942::{Approximation, Module};
use lockstep_emulator::launch::Program;
use lockstep_emulator::runtime::Settings;
use std::sync::Arc;

/// Reads a code object. The error is the reason; HIP has no log to put it in.
pub(crate) fn program(image: &[u8], settings: &Settings) -> Result<Arc<dyn Program>, String> {
    let module = Module::load(image).map_err(|error| error.to_string())?;
    let approximation = settings.approximate.map_or(Approximation::Rounded, Approximation::Perturbed);
    Ok(Arc::new(module.with_approximation(approximation)))
}

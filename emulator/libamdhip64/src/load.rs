//! From the bytes of a code object to something that runs.

use lockstep_emulated_abi::stub;
use lockstep_emulator::launch::Program;
use std::sync::Arc;

/// Reads a code object. An error is why not; HIP has no log to put it in.
pub(crate) fn program(image: &[u8]) -> Result<Arc<dyn Program>, String> {
    // WIRE: gfx942::Module::load(image).map(|module| Arc::new(module) as _).map_err(|error| error.to_string())
    stub::program(image)
}

//! From the bytes of a code object to something that runs.

use lockstep_emulator::gfx942::Module;
use lockstep_emulator::launch::Program;
use std::sync::Arc;

/// Reads a code object. An error is why not; HIP has no log to put it in.
pub(crate) fn program(image: &[u8]) -> Result<Arc<dyn Program>, String> {
    let object = Module::load(image).map_err(|error| error.to_string())?;
    Ok(Arc::new(object))
}

//! From the text of a module to something that runs.

use lockstep_emulated_abi::stub;
use lockstep_emulator::launch::Program;
use std::sync::Arc;

/// Reads PTX, without its NUL. An error is what the compiler's log would say.
pub(crate) fn program(image: &[u8]) -> Result<Arc<dyn Program>, String> {
    let _text = std::str::from_utf8(image).map_err(|error| format!("not a text: {error}"))?;
    // WIRE: ptx::Module::parse(_text).map(|module| Arc::new(module) as _).map_err(|error| error.to_string())
    stub::program(image)
}

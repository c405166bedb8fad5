//! Loads a module's text as a runnable program.

use lockstep_emulator::launch::Program;
use lockstep_emulator::ptx::Module;
use lockstep_emulator::runtime::Settings;
use std::sync::Arc;

/// Reads PTX, without its NUL. The error is what the compiler's log would say. The implemented instructions
/// are exact, so `approximate` changes nothing.
pub(crate) fn program(image: &[u8], _settings: &Settings) -> Result<Arc<dyn Program>, String> {
    let text = std::str::from_utf8(image).map_err(|error| format!("not a text: {error}"))?;
    let module = Module::parse(text).map_err(|error| error.to_string())?;
    Ok(Arc::new(module))
}

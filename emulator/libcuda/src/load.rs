//! From the text of a module to something that runs.

use lockstep_emulator::launch::Program;
use lockstep_emulator::ptx::Module;
use lockstep_emulator::runtime::Settings;
use std::sync::Arc;

/// Reads PTX, without its NUL. An error is what the compiler's log would say. The instructions that are
/// implemented are exact: `approximate` changes nothing.
pub(crate) fn program(image: &[u8], _settings: &Settings) -> Result<Arc<dyn Program>, String> {
    let text = std::str::from_utf8(image).map_err(|error| format!("not a text: {error}"))?;
    let module = Module::parse(text).map_err(|error| error.to_string())?;
    Ok(Arc::new(module))
}

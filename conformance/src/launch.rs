//! Runs a case: launches once, and returns the outputs by name.

use crate::backend::Backend;
use crate::cases::Case;
use crate::output::Output;
use crate::outputs::{Outputs, Space};

/// Runs a case and returns every output.
pub fn run(backend: &dyn Backend, case: &Case) -> Result<Vec<Output>, String> {
    let space = Space::new();
    let mut out = Outputs::of(&case.data, &space);
    let launched = case.params.run(backend, &case.data, &mut out);
    launched.map_err(|error| format!("{} {}: {error}", case.op(), case.label))?;
    Ok(out.take())
}

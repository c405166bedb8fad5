//! Output on stdout.

use std::io::{ErrorKind, Result as IoResult, Write};

use anyhow::{Context, Result};

/// Writes text to stdout.
///
/// Errors: those of [`printed`].
pub fn print(text: &str) -> Result<()> {
    printed(std::io::stdout().write_all(text.as_bytes()))
}

/// Completes a write to stdout.
///
/// Errors: it failed, as on a full disk. A reader that went away (`| head`) is none.
pub fn printed(written: IoResult<()>) -> Result<()> {
    match written.and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

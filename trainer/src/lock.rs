//! A lock that gives one process exclusive use of a run folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::atomic;

/// The lock file's name in a run's folder. The file stays when the run ends: a process that removed it could
/// remove another process's lock.
const FILE: &str = ".lock";

/// Exclusive write access to a folder, held until the value is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Locks the folder.
    ///
    /// Errors: another process holds the lock (the message gives its id), or the folder cannot be written to.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        atomic::check(&path)?;
        let cannot = || format!("cannot lock {}", path.display());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // On some systems a locked file cannot be read.
                let _ = file.read_to_string(&mut holder);
                let holder = if holder.is_empty() { "unknown" } else { holder.trim_end() };
                bail!("{} is in use by another process (id {holder})", folder.display());
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let note = |mut file: &File| file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        note(&file).with_context(cannot)?;
        Ok(Self { _file: file })
    }
}

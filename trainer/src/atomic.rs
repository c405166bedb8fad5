//! Atomic file writes: a file is either there in full or not there at all.

use std::fs::{self, File, FileType};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Name prefix of unfinished files, by which a later run finds and removes those that a killed run left
/// behind.
const PREFIX: &str = ".unfinished-";

/// Writes `bytes` to a temporary file beside `path`, flushes it to disk and renames it: anyone who opens
/// `path`, even after a power cut, sees either the old content or the new, never a partial file.
///
/// Errors: those of [`check`], and a folder that cannot be written to.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    check(path)?;
    let folder = folder_of(path);
    let attempt = || -> std::io::Result<()> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        // The rename itself must reach the disk too.
        File::open(folder)?.sync_all()
    };
    attempt().with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that a file may be written at `path`.
///
/// Errors: `path` exists and is not a regular file; a rename would replace it, and opening it could block.
pub fn check(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let kind = found.file_type();
    ensure!(
        kind.is_file(),
        "cannot write {}: it is {}: expected a regular file or no file",
        path.display(),
        name(kind)
    );
    Ok(())
}

/// Checks that a file written at `path` replaces none of the inputs, by whatever path they were given.
pub fn check_apart(path: &Path, inputs: &[&Path]) -> Result<()> {
    let same =
        |input: &&Path| matches!((path.canonicalize(), input.canonicalize()), (Ok(a), Ok(b)) if a == b);
    ensure!(
        !inputs.iter().any(same),
        "cannot write {}: it is also the input: expected another file",
        path.display()
    );
    Ok(())
}

fn name(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else {
        "a device"
    }
}

/// Removes the unfinished files that a killed run left in `folder`.
pub fn clear_unfinished(folder: &Path) -> Result<()> {
    let clear = || -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    clear().with_context(|| format!("cannot clear unfinished files in {}", folder.display()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("a"), b"1").unwrap();
        write(&folder.path().join("a"), b"2").unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"2");
        // A folder cannot be replaced by a file.
        fs::create_dir_all(folder.path().join("b/c")).unwrap();
        assert!(write(&folder.path().join("b"), b"3").unwrap_err().to_string().contains("it is a folder"));
        fs::write(folder.path().join(".unfinished-x"), b"half").unwrap();
        clear_unfinished(folder.path()).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
    }
}

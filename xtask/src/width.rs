//! `cargo xtask width`: no line of Rust is longer than 110 characters. rustfmt does not wrap strings,
//! comments or the bodies of macros.

use crate::toolchain::output;
use crate::{Fault, none};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// `max_width` of rustfmt.toml.
const MOST: usize = 110;

/// A folder of generated files.
const GENERATED: &str = "kernels/artifacts/";

/// Runs the command: checks the `.rs` files that git tracks.
pub fn run(root: &Path) -> Result<()> {
    let listed = output(Command::new("git").current_dir(root).args(["ls-files", "-z", "--", "*.rs"]))?;
    let files: Vec<&str> =
        listed.split_terminator('\0').filter(|file| !file.starts_with(GENERATED)).collect();
    if files.is_empty() {
        bail!("git tracks no Rust file in {}", root.display());
    }
    let mut faults = Vec::new();
    for file in &files {
        let path = root.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        faults.extend(long_lines(file, &text));
    }
    none(format!("lines of more than {MOST} characters"), &faults)?;
    println!("width: at most {MOST} characters in every line of {} files", files.len());
    Ok(())
}

/// The lines of a file that are too long.
fn long_lines(file: &str, text: &str) -> Vec<Fault> {
    let long = |line: &str| line.chars().count() > MOST && !is_one_address(line);
    let lines = text.lines().zip(1..).filter(|(line, _)| long(line));
    lines.map(|(line, at)| Fault::new(file, at, format!("{} characters", line.chars().count()))).collect()
}

/// Whether a line holds nothing but a URL or a path, which cannot be broken.
fn is_one_address(line: &str) -> bool {
    let word = line.trim_start_matches([' ', '/', '!']).trim_end();
    word.contains('/') && !word.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_found_wherever_it_is() {
        let most = "x".repeat(MOST);
        let comment = format!("    /// {}", "long ".repeat(22));
        let text = format!("{most}\n{most}y\n{comment}\nlet short = 1;\n    \"{most}\",\n");
        let found: Vec<_> =
            long_lines("core/src/lib.rs", &text).into_iter().map(|fault| fault.line).collect();
        assert_eq!(found, [2, 3, 5]);
        assert_eq!(long_lines("a.rs", &text)[0].to_string(), "a.rs, line 2: 111 characters");
    }

    #[test]
    fn characters_count_and_not_bytes() {
        assert_eq!(long_lines("a.rs", &"Σ".repeat(MOST)), []);
        assert_eq!(long_lines("a.rs", &"Σ".repeat(MOST + 1)).len(), 1);
    }

    #[test]
    fn an_address_alone_may_be_longer() {
        let url = format!("https://example.org/{}", "a/".repeat(60));
        for line in [format!("//! {url}"), format!("    // <{url}>"), format!("    \"{url}\",")] {
            assert_eq!(long_lines("a.rs", &line), [], "{line}");
        }
        assert_eq!(long_lines("a.rs", &format!("/// See {url}")).len(), 1);
    }
}

//! Compresses the PTX that `src/artifacts.rs` embeds. Each entry point is compressed on its own, because each
//! is loaded on its own: that costs 2.5 % of the size, and a launch inflates what it needs and nothing else.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;

const PTX: &str = "artifacts/lockstep.ptx";

/// What LLVM writes in front of an entry point, and then its name. Nothing in the PTX is outside of an entry
/// point but the header.
const START: &str = "\t// .globl\t";

/// Level 9 takes twice the time and saves 0.6 %.
const LEVEL: u8 = 6;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    // GPU code embeds no artifact: the artifacts are made of it.
    if ["nvptx64", "amdgpu"].contains(&&std::env::var("CARGO_CFG_TARGET_ARCH")?[..]) {
        return Ok(());
    }
    println!("cargo::rerun-if-changed={PTX}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let ptx = std::fs::read_to_string(PTX).map_err(|error| format!("{PTX}: {error}"))?;

    let starts: Vec<usize> = ptx.match_indices(START).map(|(at, _)| at).chain([ptx.len()]).collect();
    let mut index = String::new();
    writeln!(index, "({:?}, &[", &ptx[..starts[0]])?;
    for part in starts.windows(2).map(|ends| &ptx[ends[0]..ends[1]]) {
        let name = part[START.len()..].lines().next().unwrap_or_default();
        let file = format!("{name}.zlib");
        std::fs::write(out.join(&file), miniz_oxide::deflate::compress_to_vec_zlib(part.as_bytes(), LEVEL))?;
        writeln!(index, "    ({name:?}, include_bytes!({file:?})),")?;
    }
    index.push_str("])\n");
    Ok(std::fs::write(out.join("ptx.rs"), index)?)
}

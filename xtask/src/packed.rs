//! `lockstep.ptx.zst`: the PTX as programs embed it, compressed with zstd, entry points of an op together.
//! They have most of their text in common, and a program loads only those of the ops that it launches.
//!
//! The file is an index in text, with a line `entry offset length` for each entry point in the order of the
//! PTX, an empty line, the PTX's header, a zero byte, and the frames, to which the offsets refer.

use anyhow::{Context, Result, bail};
use lockstep_core::op::OPS;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What LLVM writes in front of an entry point, and then its name. Nothing in the PTX is outside of an entry
/// point but the header.
const START: &str = "\t// .globl\t";

/// Of zstd: the best without more memory than usual.
const LEVEL: i32 = 19;

/// Packs a PTX text. Errors: an entry point that no op of the table has.
pub fn pack(ptx: &str) -> Result<Vec<u8>> {
    let mut parts = ptx.split(START);
    let header = parts.next().context("no header")?;
    // The entry points of the text, by op.
    let (mut names, mut ops) = (Vec::new(), BTreeMap::<&str, String>::new());
    for part in parts {
        let name = part.lines().next().unwrap_or_default();
        let of = OPS.iter().find(|op| op.all_entries().any(|entry| entry == name));
        let Some(op) = of else { bail!("{name} is not in the table of ops") };
        names.push((name, op.name));
        let text = ops.entry(op.name).or_default();
        text.push_str(START);
        text.push_str(part);
    }
    let (mut frames, mut places) = (Vec::new(), BTreeMap::new());
    for (op, text) in ops {
        let mut encoder = zstd::bulk::Compressor::new(LEVEL)?;
        encoder.include_checksum(true)?;
        let frame = encoder.compress(text.as_bytes())?;
        places.insert(op, (frames.len(), frame.len()));
        frames.extend(frame);
    }
    let mut index = String::new();
    for (name, op) in names {
        let (offset, length) = places[op];
        writeln!(index, "{name} {offset} {length}")?;
    }
    Ok([index.as_bytes(), b"\n", header.as_bytes(), b"\0", &frames].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_of_an_op_are_together() -> Result<()> {
        let part = |name: &str| format!("{START}{name}\n.visible .entry {name}(\n)\n{{\n\tret;\n}}\n");
        let text = ["header\n\n", &part("kl_k3"), &part("gae"), &part("kl_k3_block")].concat();
        let packed = pack(&text)?;
        let end = packed.iter().position(|byte| *byte == 0).context("a zero byte")?;
        let (index, header) = std::str::from_utf8(&packed[..end])?.split_once("\n\n").context("an index")?;
        assert_eq!(header, "header\n\n");
        let lines: Vec<Vec<&str>> = index.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), ["kl_k3", "gae", "kl_k3_block"]);
        assert!(lines[0][1..] == lines[2][1..] && lines[0][1..] != lines[1][1..]);
        let (offset, length): (usize, usize) = (lines[0][1].parse()?, lines[0][2].parse()?);
        let frame = &packed[end + 1 + offset..][..length];
        assert_eq!(
            zstd::bulk::decompress(frame, 1 << 20)?,
            (part("kl_k3") + &part("kl_k3_block")).as_bytes()
        );
        assert!(pack(&part("no_such_entry")).is_err());
        Ok(())
    }
}

//! Reads an HSA code object: its kernels, the resources they use, and the float mode they start in.

use crate::Fault;
use anyhow::{Context, Result, ensure};
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, NoteIterator};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What the object states about a kernel: its metadata note (resources) and its descriptor (mode).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Kernel {
    /// Vector registers, including accumulation registers.
    #[serde(rename = ".vgpr_count")]
    pub vgprs: u32,
    /// Accumulation registers among them.
    #[serde(rename = ".agpr_count")]
    pub agprs: u32,
    /// Scalar registers, including VCC and those that the hardware reserves.
    #[serde(rename = ".sgpr_count")]
    pub sgprs: u32,
    /// Vector registers spilled to memory.
    #[serde(rename = ".vgpr_spill_count")]
    pub vgpr_spills: u32,
    /// Scalar registers spilled to vector registers.
    #[serde(rename = ".sgpr_spill_count")]
    pub sgpr_spills: u32,
    /// Private memory per lane, in bytes.
    #[serde(rename = ".private_segment_fixed_size")]
    pub scratch: u32,
    /// Shared memory per workgroup, in bytes.
    #[serde(rename = ".group_segment_fixed_size")]
    pub lds: u32,
    /// Bytes of arguments that the kernel reads.
    #[serde(rename = ".kernarg_segment_size")]
    pub kernarg: u32,
    /// Lanes per wave.
    #[serde(rename = ".wavefront_size")]
    pub wavefront: u32,
    /// The float mode it starts in.
    #[serde(skip)]
    pub mode: Mode,
}

/// The float mode that a kernel starts in (`COMPUTE_PGM_RSRC1` of its descriptor).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Rounding of binary32; 0 = to nearest, ties to even.
    pub round_32: u32,
    /// Rounding of binary16 and binary64.
    pub round_16_64: u32,
    /// Denormals of binary32; 3 = kept, as operands and as results.
    pub denormals_32: u32,
    /// Denormals of binary16 and binary64.
    pub denormals_16_64: u32,
    /// Instructions with `clamp` turn NaN into 0. The listing's check allows no such instruction.
    pub dx10_clamp: bool,
    /// Minimum and maximum quiet signalling NaNs and ignore quiet ones, as in IEEE-754.
    pub ieee: bool,
    /// Binary16 overflows to the largest number instead of ∞.
    pub fp16_overflow: bool,
}

#[derive(Deserialize)]
struct Notes {
    #[serde(rename = "amdhsa.target")]
    target: String,
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Note>,
}

#[derive(Deserialize)]
struct Note {
    #[serde(rename = ".name")]
    name: String,
    #[serde(rename = ".symbol")]
    symbol: String,
    #[serde(flatten)]
    kernel: Kernel,
}

/// `NT_AMDGPU_METADATA`.
const METADATA: u32 = 32;

/// The kernels of a code object, by name.
pub fn kernels(object: &[u8]) -> Result<BTreeMap<String, Kernel>> {
    let file = ElfFile64::<LittleEndian>::parse(object).context("not a code object")?;
    let notes = file.section_by_name(".note").context("no notes")?;
    let notes: Notes =
        rmp_serde::from_slice(metadata(notes.data()?)?).context("metadata that cannot be read")?;
    ensure!(notes.target == "amdgcn-amd-amdhsa--gfx942", "the code object is for {}", notes.target);
    let descriptors = file.section_by_name(".rodata").context("no kernel descriptors")?;
    let mut kernels = BTreeMap::new();
    for Note { name, symbol: wanted, mut kernel } in notes.kernels {
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(&wanted));
        let symbol = symbol.with_context(|| format!("no descriptor {wanted}"))?;
        let at = usize::try_from(symbol.address() - descriptors.address())?;
        let descriptor = descriptors.data()?.get(at..at + 64).context("a descriptor that ends early")?;
        ensure!(symbol.address() != 0, "{wanted} is not defined");
        kernel.scratch = kernel.scratch.max(word(descriptor, 4));
        kernel.lds = kernel.lds.max(word(descriptor, 0));
        kernel.mode = Mode::of(word(descriptor, 48));
        kernels.insert(name, kernel);
    }
    Ok(kernels)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The message of the metadata note in a section of notes.
fn metadata(notes: &[u8]) -> Result<&[u8]> {
    for note in NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, 4, notes)? {
        let note = note?;
        if note.n_type(LittleEndian) == METADATA && note.name() == b"AMDGPU" {
            return Ok(note.desc());
        }
    }
    anyhow::bail!("no AMDGPU metadata")
}

impl Mode {
    /// The mode that kernels must start in.
    pub const WANTED: Mode = Mode {
        round_32: 0,
        round_16_64: 0,
        denormals_32: 3,
        denormals_16_64: 3,
        dx10_clamp: true,
        ieee: true,
        fp16_overflow: false,
    };

    /// Decodes `COMPUTE_PGM_RSRC1`.
    pub fn of(rsrc1: u32) -> Mode {
        let bits = |from: u32| rsrc1 >> from & 3;
        let bit = |at: u32| rsrc1 >> at & 1 == 1;
        Mode {
            round_32: bits(12),
            round_16_64: bits(14),
            denormals_32: bits(16),
            denormals_16_64: bits(18),
            dx10_clamp: bit(21),
            ieee: bit(23),
            fp16_overflow: bit(26),
        }
    }
}

/// Kernels that start in another mode or are compiled for another wave size.
pub fn check(kernels: &BTreeMap<String, Kernel>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, kernel) in kernels {
        if kernel.mode != Mode::WANTED {
            faults.push(Fault::new(name, 0, format!("starts in {:?}", kernel.mode)));
        }
        if kernel.wavefront != 64 {
            faults.push(Fault::new(name, 0, format!("is for waves of {}", kernel.wavefront)));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(rsrc1: u32, wavefront: u32) -> BTreeMap<String, Kernel> {
        let mode = Mode::of(rsrc1);
        let kernel = Kernel {
            vgprs: 29,
            agprs: 0,
            sgprs: 50,
            vgpr_spills: 0,
            sgpr_spills: 0,
            scratch: 0,
            lds: 0,
            kernarg: 712,
            wavefront,
            mode,
        };
        BTreeMap::from([("hot".to_owned(), kernel)])
    }

    #[test]
    fn catches_every_other_mode() {
        const GOOD: u32 = 0x00af_0000 | 3;
        assert_eq!(check(&kernel(GOOD, 64)), []);
        // Rounding, flushed denormals (each for both fields), IEEE mode off, clamp, binary16 overflow.
        for bit in [12, 13, 14, 15, 16, 17, 18, 19, 21, 23, 26] {
            assert_eq!(check(&kernel(GOOD ^ 1 << bit, 64)).len(), 1, "bit {bit}");
        }
        assert_eq!(check(&kernel(GOOD, 32)).len(), 1);
    }

    #[test]
    fn broken_objects_are_errors() {
        for bytes in [&b""[..], b"\x7fELF", &[0; 64]] {
            assert!(kernels(bytes).is_err());
        }
        assert!(metadata(&[7, 0, 0, 0, 255, 0, 0, 0, 32, 0, 0, 0]).is_err());
    }
}

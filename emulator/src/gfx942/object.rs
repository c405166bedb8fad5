//! A code object: an ELF file with kernels, a descriptor for each, and metadata.

use super::descriptor::Descriptor;
use super::metadata::{self, Argument, Note};
use crate::gfx942::code::decode::decode;
use crate::gfx942::code::inst::{Inst, NOWHERE, Src};
use crate::gfx942::code::op::{Form, Op, Ty};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::collections::BTreeMap;

/// Why a file cannot be loaded as a code object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("code object: {0}")]
pub struct LoadError(pub String);

impl LoadError {
    pub(super) fn new(why: impl Into<String>) -> LoadError {
        LoadError(why.into())
    }
}

/// A kernel, decoded.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its instructions.
    pub code: Vec<Inst>,
    /// The offset of each instruction, in bytes.
    pub offsets: Vec<u32>,
    /// Why instructions cannot be run, by index.
    pub refused: BTreeMap<usize, String>,
    /// Arguments, including hidden ones.
    pub arguments: Vec<Argument>,
    /// Bytes of the argument segment.
    pub kernarg: u32,
    /// Maximum number of threads per workgroup.
    pub max_threads: u32,
    /// Its initial state, or why it cannot be started.
    pub descriptor: Result<Descriptor, String>,
}

/// Maximum number of code bytes of a kernel: more means a broken file.
const MAX_CODE: u64 = 1 << 26;

/// Loads the kernels of a file, in the order of its metadata.
pub(super) fn load(bytes: &[u8]) -> Result<Vec<Kernel>, LoadError> {
    let wrong = |why: &str| LoadError::new(why);
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(bytes)
        .map_err(|error| LoadError::new(format!("not ELF: {error}")))?;
    let notes = file.section_by_name(".note").ok_or_else(|| wrong("no notes"))?;
    let notes = metadata::read(notes.data().map_err(|_| wrong("notes beyond the file"))?)?;
    let mut symbols = BTreeMap::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if let Ok(name) = symbol.name() {
            symbols.insert(name.to_owned(), (symbol.address(), symbol.size()));
        }
    }
    let read = |address: u64, size: u64| {
        file.sections().find_map(|section| {
            let start = address.checked_sub(section.address()).filter(|_| section.address() != 0)?;
            let data = section.data().ok()?;
            data.get(usize::try_from(start).ok()?..usize::try_from(start.checked_add(size)?).ok()?)
        })
    };
    let mut kernels = Vec::new();
    for note in notes {
        let missing = |what: &str| LoadError::new(format!("{what} of `{}`", note.name));
        let &(at, _) = symbols.get(&note.symbol).ok_or_else(|| missing("no descriptor"))?;
        let descriptor = read(at, 64).ok_or_else(|| missing("no bytes of the descriptor"))?;
        let entry = at.wrapping_add(Descriptor::entry(descriptor).cast_unsigned());
        let &(start, size) = symbols.get(&note.name).ok_or_else(|| missing("no code"))?;
        if start != entry || size > MAX_CODE || size == 0 {
            return Err(missing("the descriptor and the symbol do not agree on the code"));
        }
        let code = read(start, size).ok_or_else(|| missing("no bytes of the code"))?;
        kernels.push(kernel(note, descriptor, code));
    }
    Ok(kernels)
}

fn kernel(note: Note, descriptor: &[u8], code: &[u8]) -> Kernel {
    let words: Vec<u32> =
        code.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let descriptor = match (note.wavefront, note.dynamic_stack) {
        (64, false) => Descriptor::read(descriptor),
        (64, true) => Err("a dynamic stack".to_owned()),
        (lanes, _) => Err(format!("waves of {lanes}")),
    };
    let mut kernel = Kernel {
        name: note.name,
        code: Vec::new(),
        offsets: Vec::new(),
        refused: BTreeMap::new(),
        arguments: note.arguments,
        kernarg: note.kernarg,
        max_threads: note.max_threads,
        descriptor,
    };
    kernel.decode(&words);
    kernel
}

impl Kernel {
    pub(super) fn from_words(name: &str, words: &[u32], arguments: u32) -> Kernel {
        let argument = |at: u32| Argument { offset: 8 * at, size: 8, kind: "by_value".to_owned() };
        let descriptor = Descriptor {
            vgprs: 128,
            sgprs: 102,
            kernarg: true,
            workgroup: [true, true, false],
            workitem: 0,
            dx10_clamp: true,
            ieee: true,
        };
        let mut kernel = Kernel {
            name: name.to_owned(),
            code: Vec::new(),
            offsets: Vec::new(),
            refused: BTreeMap::new(),
            arguments: (0..arguments).map(argument).collect(),
            kernarg: 8 * arguments,
            max_threads: 1024,
            descriptor: Ok(descriptor),
        };
        kernel.decode(words);
        kernel
    }

    /// Decodes all instructions, then resolves the targets of jumps.
    fn decode(&mut self, words: &[u32]) {
        let mut at = 0;
        while at < words.len() {
            let inst = decode(&words[at..]).unwrap_or_else(|why| {
                self.refused.insert(self.code.len(), why.to_string());
                Inst::new(Op::Refused, 4)
            });
            self.code.push(inst);
            self.offsets.push(at as u32 * 4);
            at += usize::from(inst.size / 4);
        }
        for number in 0..self.code.len() {
            let inst = self.code[number];
            if inst.jumps() {
                let to = i64::from(self.offsets[number]) + 4 + 4 * i64::from(inst.imm);
                let found = u32::try_from(to).ok().and_then(|to| self.offsets.binary_search(&to).ok());
                self.code[number].target = found.map_or(NOWHERE, |found| found as u32);
            }
            if let Ok(descriptor) = &self.descriptor
                && let Some(why) = beyond(&inst, descriptor)
            {
                self.refused.insert(number, why);
            }
        }
    }
}

/// Returns a register that the kernel was not allotted, or a modifier that is not implemented.
fn beyond(inst: &Inst, descriptor: &Descriptor) -> Option<String> {
    let spec = inst.spec();
    let mut used = Vec::new();
    for (at, ty) in spec.src.into_iter().enumerate() {
        used.push((inst.src[at], ty.width()));
    }
    if matches!(inst.form, Form::Global) {
        used = vec![
            (inst.src[0], if inst.src[1] == Src::None { 2 } else { 1 }),
            (inst.src[1], 2),
            (inst.src[2], inst.words()),
        ];
    }
    let width = if matches!(inst.form, Form::Global | Form::Smem) { inst.words() } else { spec.dst.width() };
    if spec.dst != Ty::N || matches!(inst.form, Form::Smem | Form::Global) && !inst.stores() {
        used.push((if inst.scalar_dst() { Src::S(inst.dst) } else { Src::V(inst.dst) }, width));
    }
    if inst.has_sdst() {
        used.push((Src::S(inst.sdst), 2));
    }
    for (operand, width) in used {
        match operand {
            Src::V(first) if u32::from(first) + u32::from(width) > descriptor.vgprs => {
                return Some(format!("v{first} and up, of {} vector registers", descriptor.vgprs));
            }
            Src::S(first) if first < 102 && u32::from(first) + u32::from(width) > descriptor.sgprs => {
                return Some(format!("s{first} and up, of {} scalar registers", descriptor.sgprs));
            }
            _ => {}
        }
    }
    (inst.omod != 0).then(|| "an output multiplier".to_owned())
}

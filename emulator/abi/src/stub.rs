//! A program that is none: stands in until the interpreters are there. Not for conformance: it knows two entry points by heart and
//! refuses the others.

use lockstep_emulator::counts::Counts;
use lockstep_emulator::fault::{Fault, FaultKind, Instruction, Place};
use lockstep_emulator::launch::{Grid, Parameter, Program};
use lockstep_emulator::memory::Memory;
use std::sync::Arc;

/// Names of a module's entry points: after `.entry ` in PTX, before `.kd` in a code object.
pub fn program(image: &[u8]) -> Result<Arc<dyn Program>, String> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut names: Vec<String> = Vec::new();
    if image.starts_with(b"\x7fELF") {
        for at in positions(image, b".kd\0") {
            let length = image[..at].iter().rev().take_while(|byte| is_name(byte)).count();
            names.push(String::from_utf8_lossy(&image[at - length..at]).into_owned());
        }
    } else {
        for at in positions(image, b".entry ") {
            let rest = &image[at + 7..];
            let length = rest.iter().take_while(|byte| is_name(byte)).count();
            names.push(String::from_utf8_lossy(&rest[..length]).into_owned());
        }
    }
    names.sort();
    names.dedup();
    if names.is_empty() { Err("line 1: no entry point".to_owned()) } else { Ok(Arc::new(Stub(names))) }
}

fn positions<'a>(image: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    image.windows(text.len()).enumerate().filter(move |(_, window)| *window == text).map(|(at, _)| at)
}

struct Stub(Vec<String>);

const POINTERS: usize = 24;
const WORDS: usize = 64;

impl Program for Stub {
    fn entries(&self) -> Vec<String> {
        self.0.clone()
    }

    fn parameters(&self, entry: &str) -> Option<Vec<Parameter>> {
        self.0.iter().find(|name| *name == entry)?;
        let wide = (0..(POINTERS + WORDS) as u32).map(|i| Parameter { offset: 8 + 8 * i, size: 8 });
        Some(std::iter::once(Parameter { offset: 0, size: 4 }).chain(wide).collect())
    }

    fn launch(
        &self,
        entry: &str,
        _grid: Grid,
        params: &[u8],
        memory: &mut Memory,
    ) -> Result<Counts, Box<Fault>> {
        let wide =
            |i: usize| u64::from_le_bytes(params[8 + 8 * i..16 + 8 * i].try_into().expect("eight bytes"));
        memory.launch(1);
        let run = match entry {
            "row_scan" => row_scan(memory, wide),
            "check_offsets" => check_offsets(memory, wide),
            _ => Err(FaultKind::Unimplemented(format!("entry point {entry}: no interpreter is wired"))),
        };
        run.map_err(|kind| Box::new(kind.at(entry, Place::default(), Instruction::default())))?;
        Ok(Counts { instructions: 1, lane_instructions: 32, ..Counts::default() })
    }
}

fn check_offsets(memory: &mut Memory, wide: impl Fn(usize) -> u64) -> Result<(), FaultKind> {
    const BLOCK: u64 = 4096;
    let [offsets, to, length, elements] = [0, 1, POINTERS, POINTERS + 1].map(&wide);
    let mut view = memory.team(0);
    for row in 0..length.div_ceil(BLOCK) {
        let mut fault = u32::MAX;
        for i in row * BLOCK..((row + 1) * BLOCK).min(length) {
            let offset = u32::from_le_bytes(view.load(offsets + 4 * i)?);
            let before = if i == 0 { 0 } else { u32::from_le_bytes(view.load(offsets + 4 * i - 4)?) };
            let ends = i + 1 < length || u64::from(offset) == elements;
            if fault == u32::MAX && (offset < before || i == 0 && offset != 0 || !ends) {
                fault = i as u32;
            }
        }
        view.store(to + 4 * row, fault.to_le_bytes())?;
    }
    Ok(())
}

fn row_scan(memory: &mut Memory, wide: impl Fn(usize) -> u64) -> Result<(), FaultKind> {
    let [offsets, _, values, scanned] = [0, 1, 2, 3].map(&wide);
    let rows = wide(POINTERS) - 1;
    let mut view = memory.team(0);
    for row in 0..rows {
        let start = u32::from_le_bytes(view.load(offsets + 4 * row)?);
        let end = u32::from_le_bytes(view.load(offsets + 4 * row + 4)?);
        let mut sum = 0.0;
        for i in u64::from(start)..u64::from(end) {
            sum += f32::from_le_bytes(view.load(values + 4 * i)?);
            view.store(scanned + 4 * i, sum.to_le_bytes())?;
        }
    }
    Ok(())
}

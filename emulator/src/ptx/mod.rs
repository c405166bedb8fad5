//! PTX: parsed once, then run warp by warp.
//!
//! ```text
//! lex, parse, body     text to statements, with lines; malformed text is a ParseError
//! scope, lower         names to slots, statements to steps; an unimplemented instruction is a faulting step
//! run/registers        values and written lanes of each slot
//! run/compute          int, float, convert: what an instruction computes, by the PTX ISA
//! run/memory           loads and stores of global and shared memory, checked by `Memory`
//! run/exchange         shuffles and votes
//! run/flow, launch     divergence and reconvergence of lanes; warps, barriers, blocks
//! ```

mod body;
mod entry;
mod error;
mod lex;
mod lower;
mod op;
mod parse;
mod run;
mod scope;
mod types;

pub use error::ParseError;

use crate::counts::Counts;
use crate::fault::{Fault, FaultKind, Instruction, Place};
use crate::launch::{Grid, MAX_INSTRUCTIONS, Parameter, Program};
use crate::memory::Memory;
use entry::Entry;
use op::Op;

/// A module of PTX.
#[derive(Clone, Debug)]
pub struct Module {
    text: String,
    entries: Vec<Entry>,
    limit: u64,
}

/// An instruction that faults when a warp reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unimplemented {
    /// Entry point.
    pub entry: String,
    /// Its position and text.
    pub instruction: Instruction,
}

impl Module {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        Ok(Module { entries: parse::module(text)?, text: text.to_owned(), limit: MAX_INSTRUCTIONS })
    }

    /// Sets another limit on the instructions that a warp may execute.
    pub fn with_limit(self, limit: u64) -> Module {
        Module { limit, ..self }
    }

    /// Returns all unimplemented instructions.
    pub fn unimplemented(&self) -> Vec<Unimplemented> {
        let mut found = Vec::new();
        for entry in &self.entries {
            let at = entry.steps.iter().enumerate().filter(|(_, step)| step.op == Op::Unimplemented);
            found.extend(at.map(|(pc, _)| Unimplemented {
                entry: entry.name.clone(),
                instruction: entry.instruction(&self.text, pc as u32),
            }));
        }
        found
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

impl Program for Module {
    fn entries(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.name.clone()).collect()
    }

    fn parameters(&self, entry: &str) -> Option<Vec<Parameter>> {
        Some(self.entry(entry)?.params.iter().map(|param| param.place).collect())
    }

    fn launch(
        &self,
        entry: &str,
        grid: Grid,
        params: &[u8],
        memory: &mut Memory,
    ) -> Result<Counts, Box<Fault>> {
        let Some(found) = self.entry(entry) else {
            let kind = FaultKind::Launch("the module has no such entry point".into());
            return Err(Box::new(kind.at(entry, Place::default(), Instruction::default())));
        };
        run::launch::launch(&self.text, found, grid, params, memory, self.limit)
    }
}

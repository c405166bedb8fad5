//! An entry point, ready to run.

use super::op::Step;
use crate::fault::Instruction;
use crate::launch::Parameter;
use std::ops::Range;

/// Special registers, in the order of their slots, which precede all others.
pub(crate) const SPECIAL: [&str; 18] = [
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
];

/// An entry point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Names, alignments and offsets of its parameters.
    pub(crate) params: Vec<Param>,
    /// Bytes of all parameters.
    pub(crate) param_bytes: u32,
    /// Threads per block that it requires (`.reqntid`), and the maximum (`.maxntid`).
    pub(crate) required: Option<[u32; 3]>,
    pub(crate) most: Option<[u32; 3]>,
    /// Addresses of the variables in shared memory, increasing.
    pub(crate) shared: Vec<Range<u32>>,
    /// Whether the warps of a block wait for each other.
    pub(crate) barrier: bool,
    pub(crate) steps: Vec<Step>,
    /// Position of each step in the text.
    pub(crate) places: Vec<Span>,
    /// Slots of operands of variable number.
    pub(crate) lists: Vec<u32>,
    /// Targets of `brx.idx`.
    pub(crate) tables: Vec<Vec<u32>>,
    /// Messages for what is not implemented.
    pub(crate) messages: Vec<String>,
    /// Numbers of slots for registers and predicates.
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    /// Slots of constants, with their values.
    pub(crate) constants: Vec<(u32, u64)>,
    pub(crate) predicate_constants: Vec<(u32, bool)>,
    pub(crate) names: Vec<Declared>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) place: Parameter,
}

/// Position of an instruction: its line, and its first and last byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) line: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Registers that one declaration creates.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) predicate: bool,
    pub(crate) first: u32,
    /// 9 for `%r<9>`. None: one register with exactly this name.
    pub(crate) count: Option<u32>,
}

impl Entry {
    /// Returns the name of a register.
    pub(crate) fn register(&self, slot: u32, predicate: bool) -> String {
        let found = self.names.iter().find(|declared| {
            declared.predicate == predicate
                && (declared.first..declared.first + declared.count.unwrap_or(1)).contains(&slot)
        });
        match found {
            Some(Declared { name, first, count: Some(_), .. }) => format!("{name}{}", slot - first),
            Some(Declared { name, .. }) => name.clone(),
            None => format!("slot {slot}"),
        }
    }

    /// Returns the instruction in the form that a fault reports.
    pub(crate) fn instruction(&self, text: &str, pc: u32) -> Instruction {
        let Some(span) = self.places.get(pc as usize) else {
            return Instruction { at: "the end".into(), text: "}".into() };
        };
        let text = text.get(span.start..span.end).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        Instruction { at: format!("line {}", span.line), text: words.join(" ") }
    }
}

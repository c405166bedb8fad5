//! An entry point, ready to run.

use super::op::Step;
use crate::fault::Instruction;
use crate::launch::Parameter;

/// Special registers, in the order of their slots: they lie before all others.
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
    /// Names, alignments and places of its parameters.
    pub(crate) params: Vec<Param>,
    /// Bytes of all parameters.
    pub(crate) param_bytes: u32,
    /// Threads of a block that it demands (`.reqntid`), and the most that it takes (`.maxntid`).
    pub(crate) required: Option<[u32; 3]>,
    pub(crate) most: Option<[u32; 3]>,
    pub(crate) steps: Vec<Step>,
    /// Where each step stands in the text.
    pub(crate) places: Vec<Span>,
    /// Slots of operands that come in any number.
    pub(crate) lists: Vec<u32>,
    /// Targets of `brx.idx`.
    pub(crate) tables: Vec<Vec<u32>>,
    /// What is not implemented.
    pub(crate) messages: Vec<String>,
    /// Registers and predicates: how many slots.
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    /// Slots of constants with their values.
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

/// Where an instruction stands: its line, and its first and last byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) line: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Registers that one declaration makes.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) predicate: bool,
    pub(crate) first: u32,
    /// Of `%r<9>`: 9. None: one register of just this name.
    pub(crate) count: Option<u32>,
}

impl Entry {
    /// The name of a register.
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

    /// An instruction as a fault names it.
    pub(crate) fn instruction(&self, text: &str, pc: u32) -> Instruction {
        let Some(span) = self.places.get(pc as usize) else {
            return Instruction { at: "the end".into(), text: "}".into() };
        };
        let text = text.get(span.start..span.end).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        Instruction { at: format!("line {}", span.line), text: words.join(" ") }
    }
}

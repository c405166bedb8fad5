//! Converts statements to steps, once: every modifier is interpreted here, or the step is a fault that names
//! the instruction.

mod arithmetic;
mod convert;
mod flow;
mod memory;
mod operands;

use super::body::{Body, Statement};
use super::entry::Entry;
use super::error::ParseError;
use super::op::{NONE, Op, Step};
use operands::Operands;
use std::collections::HashMap;

/// The state of lowering an entry point.
pub(crate) struct Lower<'b, 't> {
    body: &'b Body<'t>,
    entry: &'b mut Entry,
    constants: HashMap<u64, u32>,
    predicate_constants: HashMap<bool, u32>,
    tables: HashMap<&'t str, u32>,
}

/// Lowers all statements of a body.
pub(crate) fn entry(body: &Body<'_>, entry: &mut Entry) -> Result<(), ParseError> {
    let mut lower = Lower {
        body,
        entry,
        constants: HashMap::new(),
        predicate_constants: HashMap::new(),
        tables: HashMap::new(),
    };
    for statement in &body.statements {
        let step = lower.statement(statement)?;
        lower.entry.steps.push(step);
        lower.entry.places.push(statement.span);
    }
    let end = Step { op: Op::End, guard: NONE, d: 0, a: 0, b: 0, c: 0, extra: 0 };
    lower.entry.steps.push(end);
    Ok(())
}

impl<'t> Lower<'_, 't> {
    fn statement(&mut self, statement: &Statement<'t>) -> Result<Step, ParseError> {
        let guard =
            statement.guard.map_or(NONE, |(register, negated)| 2 * register.slot + u32::from(negated));
        let mut parts = statement.opcode.text.split('.');
        let base = parts.next().unwrap_or_default();
        let parts: Vec<&str> = parts.collect();
        let mut operands = Operands::new(self, statement);
        let found = match base {
            "ld" | "st" | "cvta" => memory::lower(&mut operands, base, &parts)?,
            "bra" | "brx" | "ret" | "exit" | "trap" | "shfl" | "vote" | "redux" | "bar" | "barrier" => {
                flow::lower(&mut operands, base, &parts)?
            }
            "cvt" => convert::lower(&mut operands, &parts)?,
            _ => arithmetic::lower(&mut operands, base, &parts)?,
        };
        let Some(step) = found else {
            let message = self.entry.messages.len();
            self.entry.messages.push(statement.opcode.text.to_owned());
            return Ok(Step { op: Op::Unimplemented, guard, d: 0, a: 0, b: 0, c: 0, extra: message as i64 });
        };
        operands.finish()?;
        Ok(Step { guard, ..step })
    }
}

/// Returns a step without operands and guard.
fn step(op: Op) -> Step {
    Step { op, guard: NONE, d: 0, a: 0, b: 0, c: 0, extra: 0 }
}

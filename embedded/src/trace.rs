//! Shows which bits differ when a digest does.

use crate::{Kind, Record};
use core::fmt::Write;

/// Writes every output as text, one array per line, for comparison with another machine's: `num::exp 0:
/// 3f800000 …`.
pub struct Trace<W: Write> {
    to: W,
    launch: (&'static str, u32),
}

impl<W: Write> Trace<W> {
    /// Creates a trace that writes to `to` and ignores its errors.
    pub fn new(to: W) -> Self {
        Trace { to, launch: ("", 0) }
    }
}

impl<W: Write> Record for Trace<W> {
    fn begin(&mut self, name: &'static str, case: u32) {
        self.launch = (name, case);
    }

    fn array(&mut self, _kind: Kind, _len: u32) {
        let (name, case) = self.launch;
        let _ = write!(self.to, "\n{name} {case}:");
    }

    fn value(&mut self, bits: &[u8]) {
        let _ = self.to.write_char(' ');
        let _ = bits.iter().rev().try_for_each(|byte| write!(self.to, "{byte:02x}"));
    }
}

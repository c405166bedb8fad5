//! What was run and the resources it used.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Results of one op's cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfOp {
    pub(crate) cases: u64,
    pub(crate) elements: u64,
    /// Values compared.
    pub(crate) values: u64,
    /// Bits that differ.
    pub(crate) bits: u64,
    /// Cases that differed or did not run.
    pub(crate) failures: u64,
    /// Time on the device.
    pub(crate) seconds: f64,
}

/// The results of a run.
pub(crate) struct Report {
    pub(crate) ops: BTreeMap<&'static str, OfOp>,
    /// Cases that hit each entry point.
    pub(crate) hits: BTreeMap<&'static str, u64>,
    pub(crate) entries: usize,
    /// Entry points that no case hit.
    pub(crate) missed: Vec<&'static str>,
    /// Ops with fewer cases than requested, because time ran out.
    pub(crate) short: Vec<(&'static str, u64)>,
    pub(crate) wanted: u64,
    /// Whether all ops were requested.
    pub(crate) all: bool,
    pub(crate) failures: Vec<String>,
    /// Counters as in [`Ran`](lockstep_emulated_abi::testing::Ran).
    pub(crate) counts: BTreeMap<String, [u64; 8]>,
    pub(crate) seconds: f64,
}

impl Report {
    /// Whether no bit differed, nothing failed, no entry point was missed, and no op had too few cases.
    pub(crate) fn passed(&self) -> bool {
        self.failures.is_empty() && self.missed.is_empty() && self.short.is_empty()
    }

    /// Resources by entry point.
    pub(crate) fn csv(&self) -> String {
        let mut csv = String::from(
            "entry,cases,launches,instructions,lane_instructions,requests,bytes_requested,bytes_moved_32,\
             bytes_moved_64,bytes_moved_128\n",
        );
        for (entry, counts) in &self.counts {
            _ = write!(csv, "{entry},{}", self.hits.get(&entry[..]).copied().unwrap_or(0));
            for count in counts {
                _ = write!(csv, ",{count}");
            }
            csv.push('\n');
        }
        csv
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<32} {:>6} {:>12} {:>14} {:>12}  bytes asked for / moved in 32, 64, 128",
            "entry", "cases", "instructions", "lane-instr.", "bytes"
        )?;
        for (entry, [_, instructions, lanes, _, bytes, moved @ ..]) in &self.counts {
            let cases = self.hits.get(&entry[..]).copied().unwrap_or(0);
            write!(f, "{entry:<32} {cases:>6} {instructions:>12} {lanes:>14} {bytes:>12} ")?;
            for moved in moved {
                let efficiency = if *moved == 0 { 1.0 } else { *bytes as f64 / *moved as f64 };
                write!(f, " {efficiency:5.2}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>6} {:>9} {:>10} {:>14} {:>9}",
            "op", "cases", "elements", "values", "bits differing", "s"
        )?;
        for (op, of) in &self.ops {
            let OfOp { cases, elements, values, bits, seconds, .. } = of;
            writeln!(f, "{op:<24} {cases:>6} {elements:>9} {values:>10} {bits:>14} {seconds:>9.2}")?;
        }
        if !self.counts.is_empty() {
            self.table(f)?;
        }
        for failure in &self.failures {
            writeln!(f, "FAILED  {failure}")?;
        }
        for entry in &self.missed {
            writeln!(f, "MISSED  {entry}: no case takes it")?;
        }
        if let Some((op, cases)) = self.short.iter().min_by_key(|(_, cases)| *cases) {
            writeln!(
                f,
                "short   time ran out: {} ops have fewer than {} cases, {op} {cases}",
                self.short.len(),
                self.wanted
            )?;
        }
        let sum = |of: fn(&OfOp) -> u64| self.ops.values().map(of).sum::<u64>();
        let lanes: u64 = self.counts.values().map(|counts| counts[2]).sum();
        let hit = self.entries - self.missed.len();
        let which = if self.all { "" } else { " of these ops" };
        writeln!(
            f,
            "total   {} cases of {} ops, {hit} of {} entry points{which}, {} values, {} bits differ, {lanes} \
             lane-instructions, {:.0} s",
            sum(|of| of.cases),
            self.ops.len(),
            self.entries,
            sum(|of| of.values),
            sum(|of| of.bits),
            self.seconds
        )
    }
}

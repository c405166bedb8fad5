//! The speed table as text, and which numbers may not grow.

use super::code::Trip;
use super::model::{H200, MI300X, Machine};
use crate::Fault;
use crate::resources::fields;
use anyhow::{Result, ensure};
use std::fmt::Write;

/// An entry point on one vendor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// A lane's trip through the hot loop.
    pub trip: Trip,
    /// Elements of a warp's trip; 0: not known.
    pub elements: u32,
    /// A pass over the mask before: instructions, and elements of a warp's trip; 0 and 0: none.
    pub mask: [u32; 2],
    /// Registers of a lane.
    pub registers: u32,
    /// Warps or waves that a processor holds.
    pub warps: u32,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The op.
    pub op: String,
    /// Its entry point.
    pub entry: String,
    /// What an element is.
    pub element: String,
    /// Bytes that an element must move.
    pub bytes: u32,
    /// On an H200.
    pub cuda: Side,
    /// On an MI300X.
    pub rocm: Side,
}

impl Side {
    /// Instructions of a lane per element, with those of the pass over the mask, in tenths.
    pub fn of_element(&self, count: u32, machine: &Machine) -> Option<f64> {
        let own = f64::from(count) * machine.width / f64::from(self.elements);
        (self.elements > 0).then_some(own + self.of_mask(machine))
    }

    fn of_mask(&self, machine: &Machine) -> f64 {
        let [instructions, elements] = self.mask.map(f64::from);
        if elements > 0.0 { instructions * machine.width / elements } else { 0.0 }
    }

    /// The predicted share of the copy bandwidth, in percent.
    pub fn share(&self, bytes: u32, machine: &Machine) -> Option<u32> {
        let elements = f64::from(self.elements) / machine.width;
        let share =
            machine.share(&self.trip, elements, self.of_mask(machine), bytes.into(), self.warps.into());
        (self.elements > 0).then_some((100.0 * share).round() as u32)
    }

    fn of(numbers: &[u32]) -> Side {
        let mut side = Side::default();
        COLUMNS.iter().zip(numbers).for_each(|((_, place), number)| *place(&mut side) = *number);
        side
    }
}

/// A column of the CSV: its name and where its number stands.
type Column = (&'static str, fn(&mut Side) -> &mut u32);

const COLUMNS: [Column; 15] = [
    ("elements", |side| &mut side.elements),
    ("instructions", |side| &mut side.trip.instructions),
    ("alu", |side| &mut side.trip.alu),
    ("f32", |side| &mut side.trip.single),
    ("f64", |side| &mut side.trip.double),
    ("quarter", |side| &mut side.trip.quarter),
    ("shuffles", |side| &mut side.trip.shuffles),
    ("loads", |side| &mut side.trip.loads),
    ("stores", |side| &mut side.trip.stores),
    ("round_trips", |side| &mut side.trip.round_trips),
    ("waits", |side| &mut side.trip.waits),
    ("mask_instructions", |side| &mut side.mask[0]),
    ("mask_elements", |side| &mut side.mask[1]),
    ("registers", |side| &mut side.registers),
    ("warps", |side| &mut side.warps),
];

/// Renders the table as CSV: the counts. What follows from them is in [`markdown`].
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from("op,entry,element,bytes");
    for vendor in ["cuda", "rocm"] {
        COLUMNS.iter().for_each(|(column, _)| _ = write!(text, ",{vendor}_{column}"));
    }
    text.push('\n');
    for row in rows {
        let _ = write!(text, "{},{},{},{}", row.op, row.entry, row.element, row.bytes);
        for mut side in [row.cuda, row.rocm] {
            COLUMNS.iter().for_each(|(_, place)| _ = write!(text, ",{}", place(&mut side)));
        }
        text.push('\n');
    }
    text
}

/// Parses the CSV table.
pub fn from_csv(text: &str) -> Result<Vec<Row>> {
    let row = |line: &str| -> Result<Row> {
        let ([op, entry, element], numbers) = fields(line)?;
        ensure!(numbers.len() == 1 + 2 * COLUMNS.len(), "a short line: {line}");
        let (cuda, rocm) = numbers[1..].split_at(COLUMNS.len());
        Ok(Row { op, entry, element, bytes: numbers[0], cuda: Side::of(cuda), rocm: Side::of(rocm) })
    };
    text.lines().skip(1).map(row).collect()
}

/// Renders what the counts say of each element as Markdown.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "<!-- Written by `cargo xtask artifacts` with speed.csv, which has the counts. -->
# What an element costs

Read from the machine code of sm_90 and gfx942, not measured: what an H200 took is in \
docs/speed.md. The first number of a pair is \
NVIDIA's (a lane of 32), the second AMD's (of 64).

**instructions**: of a lane per element, in the loop that a kernel spends its time in, with a pass over the \
mask before it. **ALU**: those that are integer, comparison or
selection (AMD: vector instructions that are neither binary32 arithmetic nor binary64). **round trips**: how \
often a trip through the loop waits for memory, one
after the other. **warps**: that a processor holds (AMD: waves of a compute unit), by registers. **share**: \
of the bandwidth of a copy, as the model of
`xtask/src/speed/model.rs` predicts for H200 / MI300X. Its constants are there with their source.

| entry point | element | bytes | instructions | ALU | round trips | warps | share |
|---|---|---|---|---|---|---|---|
",
    );
    for row in rows {
        let Row { cuda, rocm, .. } = row;
        let (Some(cuda_all), Some(rocm_all)) = (
            cuda.of_element(cuda.trip.instructions, &H200),
            rocm.of_element(rocm.trip.instructions, &MI300X),
        ) else {
            continue;
        };
        let alu = [cuda.of_element(cuda.trip.alu, &H200), rocm.of_element(rocm.trip.alu, &MI300X)];
        let [cuda_alu, rocm_alu] = alu.map(Option::unwrap_or_default);
        let shares = [cuda.share(row.bytes, &H200), rocm.share(row.bytes, &MI300X)];
        let [cuda_share, rocm_share] = shares.map(Option::unwrap_or_default);
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {cuda_all:.0} / {rocm_all:.0} | {cuda_alu:.0} / {rocm_alu:.0} | {} / {} | \
             {} / {} | {cuda_share} / {rocm_share} % |",
            row.entry,
            row.element,
            row.bytes,
            cuda.trip.round_trips,
            rocm.trip.round_trips,
            cuda.warps,
            rocm.warps,
        );
    }
    text
}

/// A number that may only fall, if it is known.
type Measure<'a> = &'a dyn Fn(&Side) -> Option<f64>;

/// Where a kernel got slower than the committed table has it: more instructions or ALU operations an
/// element, more round trips a trip, a smaller share. A kernel whose cost an element is no longer known
/// counts as slower.
pub fn worse(old: &[Row], new: &[Row]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for row in new {
        let Some(before) = old.iter().find(|old| old.entry == row.entry) else { continue };
        for (machine, old, new) in [(&H200, &before.cuda, &row.cuda), (&MI300X, &before.rocm, &row.rocm)] {
            if old.elements == 0 {
                continue;
            }
            let all = |side: &Side| side.of_element(side.trip.instructions, machine);
            let alu = |side: &Side| side.of_element(side.trip.alu, machine);
            let share = |side: &Side| side.share(row.bytes, machine).map(|share| -f64::from(share));
            let trips = |side: &Side| (side.elements > 0).then_some(f64::from(side.trip.round_trips));
            let measures: [(&str, Measure<'_>); 4] = [
                ("instructions an element", &all),
                ("ALU operations an element", &alu),
                ("round trips to memory", &trips),
                ("predicted share", &share),
            ];
            for (what, measure) in measures {
                let (old, new) = (measure(old).unwrap_or_default(), measure(new));
                if new.is_none_or(|new| new > old) {
                    let new = new.map_or("unknown".to_owned(), |new| format!("{:.1}", new.abs()));
                    let what = format!("slower on {}: {what} {new}, was {:.1}", machine.name, old.abs());
                    faults.push(Fault::new(&row.entry, 0, what));
                }
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::super::{measure, sass::tests};
    use super::*;
    use anyhow::Context;

    fn rows(listing: &str) -> Result<Vec<Row>> {
        // Nine bytes read and four written: coefficients of a policy loss.
        let mut code = tests::code(listing)?;
        code.name = "policy_loss_ppo".into();
        let cuda = Side { registers: 40, warps: 48, ..measure(&code, "policy_loss_ppo", 32)? };
        let rocm = Side { warps: 32, ..measure(&code, "policy_loss_ppo", 64)? };
        let [op, entry] = ["policy_loss_ppo", "policy_loss_ppo"].map(str::to_owned);
        Ok(vec![Row { op, entry, element: "token".into(), bytes: 13, cuda, rocm }])
    }

    #[test]
    fn csv_there_and_back() -> Result<()> {
        let rows = rows(tests::LISTING)?;
        assert_eq!((rows[0].cuda.elements, rows[0].rocm.elements), (32, 64));
        assert_eq!(rows[0].cuda.mask, [3, 32]);
        // Fourteen of the loop and three of the pass over the mask.
        assert_eq!(rows[0].cuda.of_element(rows[0].cuda.trip.instructions, &H200), Some(17.0));
        let text = csv(&rows);
        assert_eq!(from_csv(&text)?, rows);
        assert!(from_csv(text.trim_end().rsplit_once(',').context("a line")?.0).is_err());
        assert!(markdown(&rows).contains("| `policy_loss_ppo` | token | 13 | 17 / 17 |"));
        Ok(())
    }

    #[test]
    fn a_kernel_that_got_worse_is_seen() -> Result<()> {
        let old = rows(tests::LISTING)?;
        assert_eq!(worse(&old, &old), []);
        let planted =
            |before: &str, line: &str| tests::LISTING.replace(before, &format!("{line} ;\n        {before}"));
        let store = "/*0140*/";
        for (line, what) in [
            ("/*0138*/ FADD R7, R7, R7", "instructions"),
            ("/*0138*/ IADD3 R7, R7, R7, RZ", "ALU"),
            ("/*0138*/ FADD R7, R7, R4", "round trips"),
            ("/*0138*/ LDG.E R30, desc[UR4][R2.64+0x100]", "instructions an element unknown"),
            ("/*0138*/ STG.E desc[UR4][R16.64+0x100], R7", "instructions an element unknown"),
        ] {
            let faults = worse(&old, &rows(&planted(store, line))?);
            for machine in ["H200", "MI300X"] {
                let seen = |fault: &Fault| fault.what.contains(machine) && fault.what.contains(what);
                assert!(faults.iter().any(seen), "{line} on {machine}: {faults:?}");
            }
        }
        let mut fewer = old.clone();
        fewer[0].cuda.warps = 8;
        assert!(worse(&old, &fewer).iter().any(|fault| fault.what.contains("predicted share")));
        // And what got better is not.
        assert_eq!(worse(&fewer, &old), []);
        Ok(())
    }
}

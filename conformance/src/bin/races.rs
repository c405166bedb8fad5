//! A workload for a race detector: every op's corpus cases, with neighbouring rows on different threads.
//! `.ci/run races` runs it under helgrind.
//!
//! `races LEVEL` gives row r of each case to thread r mod 2, with no synchronisation but the threads' start
//! and end: an element touched by two rows is then a race, whatever the timing. `races LEVEL planted` runs a
//! kernel whose rows all write one element. The detector must report it, or it would also miss a false
//! promise of the table. The CPU backend's pool does nothing more than this with rows; its queue is a mutex.

use lockstep::SimdLevel;
use lockstep_conformance::backend::{AnyKernel, Backend};
use lockstep_conformance::digest::cases;
use lockstep_conformance::output::first_difference;
use lockstep_conformance::{launch, levels};
use lockstep_core::op::{Kernel, OPS};
use lockstep_core::ragged::Out;
use lockstep_core::team::Team;
use lockstep_cpu::Cpu;
use std::cell::Cell;
use std::ops::Range;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Vec::from_iter(std::env::args().skip(1));
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [level] => levels::named(level).and_then(every_op),
        [level, "planted"] => levels::named(level).and_then(planted),
        _ => Err("usage: races LEVEL [planted]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A kernel shared by several threads.
struct Shared<'a, K: ?Sized>(&'a K);

// SAFETY: as in lockstep-cpu, inputs are only read, and no element is written by two rows; each row runs on
// one thread.
unsafe impl<K: ?Sized> Sync for Shared<'_, K> {}

/// Runs row r on thread r mod 2.
fn row_by_row<K: ?Sized>(kernel: &K, rows: usize, run: impl Fn(&K, Range<usize>) + Sync) {
    let (shared, run) = (&Shared(kernel), &run);
    std::thread::scope(|scope| {
        let of_thread = |first| {
            scope.spawn(move || {
                let Shared(kernel) = *shared;
                (first..rows).step_by(2).for_each(|row| run(kernel, row..row + 1));
            })
        };
        // Joined one by one, because the detector does not see how a scope waits.
        for thread in [of_thread(0), of_thread(1)] {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// A backend that runs each row on a different thread from its neighbours.
struct RowByRow {
    cpu: Cpu,
    /// Number of rows of the last kernel.
    rows: Cell<usize>,
}

impl Backend for RowByRow {
    fn name(&self) -> String {
        format!("{}, row by row on two threads", self.cpu.level())
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        let rows = kernel.parameters().rows();
        self.rows.set(rows);
        let level = self.cpu.level();
        row_by_row(kernel, rows, |kernel, rows| {
            kernel.rows_on(&Cpu::new(level, 1).unwrap_or(Cpu::PLAIN), rows)
        });
        Ok(())
    }
}

/// Runs every case. Errors: a failed case, or an op without rows for two threads.
fn every_op(level: SimdLevel) -> Result<(), String> {
    let one = levels::open(level, 1).map_err(|absent| absent.reason)?;
    let apart = RowByRow { cpu: Cpu::new(level, 1).map_err(|error| error.to_string())?, rows: Cell::new(0) };
    let cases = cases();
    let mut most = std::collections::BTreeMap::<&str, usize>::new();
    for case in &cases {
        let (expected, found) = (launch::run(&one, case)?, launch::run(&apart, case)?);
        if first_difference(&expected, &found).is_some() {
            return Err(format!("{} [{}]: other bits on two threads", case.op(), case.label));
        }
        let most = most.entry(case.op()).or_default();
        *most = apart.rows.get().max(*most);
    }
    for op in OPS {
        // An op whose row is the whole batch has only one.
        if op.row != "batch" && most.get(op.name).copied().unwrap_or_default() < 2 {
            return Err(format!("{}: no case has two rows", op.name));
        }
    }
    println!("{level}: {} cases of {} ops, row by row on two threads", cases.len(), OPS.len());
    Ok(())
}

lockstep_core::kernel! {
    /// A kernel whose rows all write one element.
    pub struct Planted<'a> {
        /// The element.
        pub last: Out<'a, u64>,
    }
    // The promise is false on purpose; only a run that looks for the race makes it.
    unsafe "planted", rows |_| 100, work |_, _| 1 << 20;
}

impl Kernel for Planted<'_> {
    fn row<T: Team>(&self, team: &T, row: usize) {
        if team.leads() {
            // Long enough for two threads to overlap.
            let value = (0..2_000).fold(row as u64, |x, i| std::hint::black_box(x.wrapping_mul(31) + i));
            self.last.put(0, value);
        }
    }
}

fn planted(level: SimdLevel) -> Result<(), String> {
    let mut last = [0];
    let cpu = Cpu::new(level, 1).map_err(|error| error.to_string())?;
    row_by_row(&Planted { last: Out::new(&mut last) }, 100, |kernel, rows| cpu.rows_own(kernel, rows));
    println!("planted: the last row to write was {}", last[0]);
    Ok(())
}

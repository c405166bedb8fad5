//! What a race detector watches: every op's cases of the corpus on several threads. `.ci/run races` builds it under ThreadSanitizer.
//!
//! `races LEVEL` runs each case row by row (neighbouring rows on different threads, with nothing but their start and end to order them) and
//! on the backend's own pool, and compares the bits with those of one thread. `races LEVEL planted-rows` and `planted-pool` run a kernel whose
//! rows all write one element: the detector must report it, or it would not report a false promise of the table either.

use lockstep::{Compiled, Level};
use lockstep_conformance::backend::Backend;
use lockstep_conformance::digest::{cases, recipes_digest};
use lockstep_conformance::output::first_difference;
use lockstep_conformance::{launch, levels};
use lockstep_core::launch_args;
use lockstep_core::op::{DisjointRows, Kernel, OPS};
use lockstep_core::ragged::Out;
use lockstep_core::team::Team;
use lockstep_cpu::Cpu;
use std::cell::Cell;
use std::ops::Range;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Vec::from_iter(std::env::args().skip(1));
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [level] => named(level).and_then(every_op),
        [level, "planted-rows"] => named(level).and_then(|level| planted(level, false)),
        [level, "planted-pool"] => named(level).and_then(|level| planted(level, true)),
        _ => Err("usage: races LEVEL [planted-rows|planted-pool]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> Result<Level, String> {
    let found = Level::ALL.into_iter().find(|level| level.name() == name);
    found.ok_or_else(|| format!("no level is called '{name}'"))
}

/// A kernel seen by several threads.
struct Shared<'a, K>(&'a K);

// SAFETY: as in lockstep-cpu: inputs are only read, and no element is written by two rows, each of which runs on one thread.
unsafe impl<K: DisjointRows> Sync for Shared<'_, K> {}

/// Row r on thread r mod `threads`.
fn row_by_row<K: DisjointRows>(threads: usize, kernel: &K, run: impl Fn(&K, Range<usize>) + Sync) {
    let (shared, run) = (&Shared(kernel), &run);
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || {
                let Shared(kernel) = *shared;
                (first..kernel.rows()).step_by(threads).for_each(|row| run(kernel, row..row + 1));
            });
        }
    });
}

/// Runs each row on another thread than its neighbours.
struct RowByRow {
    cpu: Cpu,
    threads: usize,
    /// Rows of the last kernel.
    rows: Cell<usize>,
}

impl Backend for RowByRow {
    fn name(&self) -> String {
        format!("{}, row by row on {} threads", self.cpu.level(), self.threads)
    }
    fn run<K: Compiled>(&self, kernel: &K) -> Result<(), String> {
        self.rows.set(kernel.rows());
        let level = self.cpu.level();
        row_by_row(self.threads, kernel, |kernel, rows| {
            // A pool of its own would order the threads.
            Cpu::new(level, 1).unwrap_or(Cpu::PLAIN).rows(kernel, rows);
        });
        Ok(())
    }
}

/// Every case in every way, and whether each op had rows for two threads.
fn every_op(level: Level) -> Result<(), String> {
    let device = |threads| levels::open(level, threads).map_err(|absent| absent.reason);
    let (one, pool) = (device(1)?, device(3)?);
    let cpu = Cpu::new(level, 1).map_err(|error| error.to_string())?;
    let apart = [2, 3].map(|threads| RowByRow { cpu: cpu.clone(), threads, rows: Cell::new(0) });
    let cases = cases();
    let mut most = std::collections::BTreeMap::<&str, usize>::new();
    for case in &cases {
        let expected = launch::run(&one, case)?;
        let mut found = vec![launch::run(&pool, case)?];
        for backend in &apart {
            found.push(launch::run(backend, case)?);
            let most = most.entry(case.op()).or_default();
            *most = backend.rows.get().max(*most);
        }
        if found.iter().any(|found| first_difference(&expected, found).is_some()) {
            return Err(format!("{} [{}]: other bits on several threads", case.op(), case.label));
        }
    }
    for op in OPS {
        let rows = most.get(op.name).copied().unwrap_or_default();
        if rows < 2 {
            return Err(format!("{}: no case has two rows", op.name));
        }
    }
    println!(
        "{level}: {} cases of {} ops, row by row on 2 and 3 threads and on the pool's 3",
        cases.len(),
        OPS.len()
    );
    println!("{level}: recipes on the pool's 3: {}", recipes_digest(&pool)?);
    Ok(())
}

/// Rows that all write one element.
struct Planted<'a> {
    last: Out<'a, u64>,
}
launch_args!(Planted<'_> { last });

// SAFETY: none. The promise is false, and only a run that looks for the race makes it.
unsafe impl DisjointRows for Planted<'_> {}

impl Kernel for Planted<'_> {
    const NAME: &'static str = "planted";
    fn check_bounds(&self) -> Result<(), lockstep_core::Error> {
        Ok(())
    }
    fn rows(&self) -> usize {
        10_000
    }
    fn work(&self, _row: usize) -> usize {
        1 << 20
    }
    fn row<T: Team>(&self, team: &T, row: usize) {
        if team.leads() {
            // Long enough that two threads are at it at once.
            let value = (0..2_000).fold(row as u64, |x, i| std::hint::black_box(x.wrapping_mul(31) + i));
            self.last.put(0, value);
        }
    }
}

fn planted(level: Level, pool: bool) -> Result<(), String> {
    let mut last = [0];
    let kernel = Planted { last: Out::new(&mut last) };
    let cpu = Cpu::new(level, 3).map_err(|error| error.to_string())?;
    if pool {
        cpu.run_own(&kernel);
    } else {
        row_by_row(2, &kernel, |kernel, rows| Cpu::PLAIN.rows_own(kernel, rows));
    }
    println!("planted: the last row to write was {}", last[0]);
    Ok(())
}

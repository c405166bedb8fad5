//! Proves the stated error of every scalar function over all 2^32 inputs, that `Soft` and `Hard`
//! give the same bits, and that these are the published ones.
//!
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- [exp|ln|...|fma|all]`
//! (some minutes each; `RUSTFLAGS="-C target-cpu=native"` makes it faster).

#[path = "../tests/num_table/mod.rs"]
mod num_table;
#[path = "../tests/num_triples/mod.rs"]
mod num_triples;

use num_table::{BLOCK, BOUNDS, Function, Report};
use std::{process::ExitCode, thread, time::Instant};

/// All 2^32 inputs of one function, shared between the threads by block.
fn exhaust(function: &Function) -> Report {
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let blocks = (1_u64 << 32) / BLOCK as u64;
    thread::scope(|scope| {
        let workers = Vec::from_iter((0..threads).map(|first| {
            scope.spawn(move || {
                let mut report = Report::default();
                for block in (u64::from(first)..blocks).step_by(threads as usize) {
                    let start = (block * BLOCK as u64) as u32;
                    report.check(function, &std::array::from_fn(|i| start + i as u32));
                }
                report
            })
        }));
        workers
            .into_iter()
            .map(|worker| worker.join().expect("worker"))
            .fold(Report::default(), Report::merge)
    })
}

/// Prints the outcome of one function; true when it keeps its promises.
fn prove(function: &Function) -> bool {
    let start = Instant::now();
    let special = num_table::special(function);
    if let Err(message) = &special {
        println!("{message}");
    }
    let report = exhaust(function);
    println!(
        "{:8} max error {:.6} ULP (bound {}) at 0x{:08x} = {:e}; {} of 2^32 not correctly rounded; \
         Soft differs from Hard on {} (0x{:08x}); digest {:016x}; {:.0} s",
        function.name,
        report.worst,
        function.bound,
        report.at,
        f32::from_bits(report.at),
        report.misrounded,
        report.unequal,
        report.unequal_at,
        report.digest,
        start.elapsed().as_secs_f64(),
    );
    if report.digest != function.digest {
        println!("{}: these bits are not the published ones, {:016x}", function.name, function.digest);
    }
    special.is_ok()
        && report.worst <= function.bound
        && report.unequal == 0
        && report.digest == function.digest
}

/// Prints the outcome of the triples for `fma`; true when no bit differs.
fn prove_fma() -> bool {
    let start = Instant::now();
    let (count, wrong) = num_triples::run(200_000_000);
    println!(
        "fma      {count} triples, {wrong} differ from libm::fmaf; {:.0} s",
        start.elapsed().as_secs_f64()
    );
    wrong == 0
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_else(|| "all".into());
    let wanted = |candidate: &str| name == "all" || name == candidate;
    let mut verdicts = Vec::from_iter(BOUNDS.iter().filter(|f| wanted(f.name)).map(prove));
    if wanted("fma") {
        verdicts.push(prove_fma());
    }
    if verdicts.is_empty() {
        println!(
            "no function {name}; there are: {} fma all",
            BOUNDS.iter().map(|f| f.name).collect::<Vec<_>>().join(" ")
        );
        return ExitCode::FAILURE;
    }
    if verdicts.into_iter().all(|kept| kept) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

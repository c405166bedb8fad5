//! `cargo run --release -p lockstep-benches --example catalogue [TOKENS] >
//! catalogue/src/measured.csv`
//!
//! The cost of each function of the catalogue on this machine, in nanoseconds: the best of several runs on
//! all threads, with buffers larger than the caches.

use lockstep::{Device, Error};
use lockstep_benches::{Inputs, all, best, number};
use lockstep_catalogue::{Entry, catalogue};

fn main() -> Result<(), Error> {
    let inputs = Inputs::new(number(1, 16 << 20), 4096);
    let device = Device::cpu();
    let level = lockstep::SimdLevel::available().last().map_or("none", |level| level.name());
    println!("# ns; {} tokens in sequences of 4096, {level}, all threads", inputs.tokens());
    for mut bench in all(&inputs)? {
        let timed = |entry: &Entry| entry.bench == Some(bench.name);
        let entries: Vec<Entry> = catalogue().into_iter().filter(timed).collect();
        if entries.is_empty() {
            continue;
        }
        let seconds = best(6, || (bench.run)(&device).map(|_| ()))?;
        for entry in entries {
            println!("{},{:.3}", entry.name, seconds * 1e9 / inputs.count(entry.per) as f64);
        }
    }
    Ok(())
}

//! `cargo run --release -p lockstep-benches --example record [TOKENS] [LENGTH] >
//! benches/record/<machine>/<date>.csv`
//!
//! Every op at every level, on one thread and on all: the best of several runs, in ns per token, in GB/s, and
//! as a fraction of the copy bandwidth measured in the same run. `LOCKSTEP_LEVEL=avx512` and
//! `LOCKSTEP_OPS=coef` restrict it.

use lockstep::{Device, Error, SimdLevel};
use lockstep_benches::{Copy, Inputs, all_of, best, number};

fn main() -> Result<(), Error> {
    let narrow = |name: &str| std::env::var(name).ok();
    let part = narrow("LOCKSTEP_OPS");
    let inputs = Inputs::new(number(1, 64 << 20), number(2, 4096));
    let tokens = inputs.tokens();
    let all_threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("op,level,threads,tokens,ns_per_token,gb_per_s,fraction_of_copy");
    for threads in [1, all_threads] {
        let mut copy = Copy::new(1 << 30, threads);
        let copied = copy.bytes() as f64 / copy.best(5) / 1e9;
        println!("copy,memcpy,{threads},,,{copied:.1},1.00");
        drop(copy);
        let asked = |level: &SimdLevel| narrow("LOCKSTEP_LEVEL").is_none_or(|name| name == level.name());
        for level in SimdLevel::available().into_iter().filter(asked) {
            let device = Device::cpu_with(Some(level), Some(threads))?;
            for mut bench in all_of(&inputs, |name| part.as_ref().is_none_or(|part| name.contains(part)))? {
                let runs = if level == SimdLevel::Plain { 1 } else { 5 };
                let seconds = best(runs, || (bench.run)(&device).map(|_| ()))?;
                let (ns, rate) = (seconds * 1e9 / tokens as f64, bench.bytes * tokens as f64 / seconds / 1e9);
                println!("{},{level},{threads},{tokens},{ns:.4},{rate:.2},{:.2}", bench.name, rate / copied);
            }
        }
    }
    Ok(())
}

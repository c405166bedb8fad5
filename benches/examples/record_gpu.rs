//! `cargo run --release -p lockstep-benches --example record_gpu [TOKENS [LENGTH [NAME…]]] >
//! benches/record/<device>/<date>.csv`
//!
//! A LENGTH that ends with `t`, `4096t`, masks the tokens after each turn instead of tokens at random.
//!
//! Every benchmark, or those whose name contains a NAME, on the first GPU of each kind: the median of
//! several batches of launches, in ns per token, in GB/s, and as a fraction of the copy bandwidth of the
//! same device in the same run. A benchmark of several entry points has a line for each of them too,
//! `benchmark: entry`, without a bandwidth. Without a GPU it prints the reason and exits with code 1.

use lockstep::{Backend, Device, Error};
use lockstep_benches::{Inputs, OnGpu, all_of, copy_on_gpu};
use lockstep_core::op::OPS;
use lockstep_gpu::{Driver, Gpu};
use std::time::{Duration, Instant};

const BATCHES: usize = 15;
const LAUNCHES: u32 = 20;

/// The median of the batches, in seconds a launch.
fn median(mut batches: Vec<Duration>) -> f64 {
    batches.sort();
    batches[BATCHES / 2].as_secs_f64() / f64::from(LAUNCHES)
}

fn record<D: Driver>(backend: Backend, gpu: &Gpu<D>, inputs: &Inputs, names: &[String]) -> Result<(), Error> {
    let what = format!("{} ({})", gpu.info().name, gpu.info().arch);
    let tokens = inputs.tokens() as f64;
    let line = |name: &str, seconds: f64, rest: String| {
        println!("{},{what},{tokens},{:.5},{rest}", name.replace(", ", " + "), seconds * 1e9 / tokens);
    };
    let rate = |bytes: f64, seconds: f64| bytes * tokens / seconds / 1e9;
    let copies: Vec<_> =
        (0..BATCHES).map(|_| copy_on_gpu(gpu, inputs, LAUNCHES)).collect::<Result<_, _>>()?;
    let seconds = median(copies);
    let copied = rate(8.0, seconds);
    line("copy", seconds, format!("{copied:.1},1.000"));

    let device = Device::open(backend.name())?;
    let timed = OnGpu::new(&device, BATCHES, LAUNCHES).expect("opened as a GPU");
    let asked = |bench: &str| names.is_empty() || names.iter().any(|name| bench.contains(&name[..]));
    for mut bench in all_of(inputs, asked)? {
        let times = timed.time(&mut bench)?;
        // A function that launches nothing.
        if times.is_empty() {
            continue;
        }
        let sums = (0..BATCHES).map(|k| times.values().map(|batches| batches[k]).sum()).collect();
        let seconds = median(sums);
        let rate = rate(bench.bytes, seconds);
        line(bench.name, seconds, format!("{rate:.1},{:.3}", rate / copied));
        if times.len() > 1 {
            for (entry, batches) in times {
                line(&format!("{}: {entry}", bench.name), median(batches), ",".to_owned());
            }
        }
    }
    Ok(())
}

/// Opens the first device of a kind (the driver, a context, one kernel), loads PPO's kernels and then all,
/// and records it. Returns whether that worked.
fn on<D: Driver>(
    backend: Backend,
    open: fn(usize) -> Result<Gpu<D>, lockstep_gpu::Error>,
    inputs: &Inputs,
    names: &[String],
) -> bool {
    let begun = Instant::now();
    let result = open(0).map_err(Error::from).and_then(|gpu| {
        eprintln!("{backend}: opened in {:.1} ms", 1e3 * begun.elapsed().as_secs_f64());
        let all: Vec<&str> = OPS.iter().map(|op| op.name).collect();
        for (what, ops) in [("PPO's kernels", &["policy_loss_ppo"][..]), ("all others", &all)] {
            let begun = Instant::now();
            gpu.load(ops)?;
            eprintln!("{backend}: loaded {what} in {:.1} ms", 1e3 * begun.elapsed().as_secs_f64());
        }
        record(backend, &gpu, inputs, names)
    });
    result.inspect_err(|error| eprintln!("{backend}: {error}")).is_ok()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| {
        words.get(i).and_then(|s| s.trim_end_matches('t').parse().ok()).unwrap_or(default)
    };
    let inputs = Inputs::new(number(0, 64 << 20), number(1, 4096));
    let turns = words.get(1).is_some_and(|length| length.ends_with('t'));
    let inputs = if turns { inputs.with_turns() } else { inputs };
    let names = words.get(2..).unwrap_or_default();
    println!("op,device,tokens,ns_per_token,gb_per_s,fraction_of_copy");
    let cuda = on(Backend::Cuda, lockstep_cuda::open, &inputs, names);
    let rocm = on(Backend::Rocm, lockstep_rocm::open, &inputs, names);
    if !cuda && !rocm {
        std::process::exit(1);
    }
}

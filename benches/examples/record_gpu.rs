//! `cargo run --release -p lockstep-benches --example record_gpu [TOKENS] [LENGTH] >
//! benches/record/<device>/<date>.csv`
//!
//! Every op on the first GPU of each kind: the median of several batches of launches, in ns per token, in
//! GB/s, and as a fraction of the copy bandwidth of the same device in the same run. Without a GPU it prints
//! the reason and exits with code 1.

use lockstep_benches::{Inputs, OnGpu, all_on_gpu};
use lockstep_gpu::{Driver, Error, Gpu};
use std::time::Instant;

const BATCHES: usize = 15;
const LAUNCHES: u64 = 20;

fn record<D: Driver>(gpu: Gpu<D>, inputs: &Inputs) -> Result<(), Error> {
    let device = format!("{} ({})", gpu.info().name, gpu.info().arch);
    let mut batch = OnGpu::new(gpu, inputs)?;
    let mut copied = f64::NAN;
    for bench in all_on_gpu(inputs) {
        let mut seconds = Vec::new();
        for _ in 0..BATCHES {
            seconds.push(batch.time(&bench, LAUNCHES)?.as_secs_f64() / LAUNCHES as f64);
        }
        seconds.sort_by(f64::total_cmp);
        let (median, tokens) = (seconds[BATCHES / 2], inputs.tokens() as f64);
        let rate = bench.bytes * tokens / median / 1e9;
        if bench.name == "copy" {
            copied = rate;
        }
        let (name, ns) = (bench.name, median * 1e9 / tokens);
        println!("{name},{device},{tokens},{ns:.5},{rate:.1},{:.3}", rate / copied);
    }
    Ok(())
}

fn main() {
    let number =
        |i: usize, default: usize| std::env::args().nth(i).and_then(|s| s.parse().ok()).unwrap_or(default);
    let inputs = Inputs::new(number(1, 64 << 20), number(2, 4096));
    println!("op,device,tokens,ns_per_token,gb_per_s,fraction_of_copy");
    // The driver, a context, and the module with all entry points.
    let opened = |api: &str, begun: Instant| {
        eprintln!("{api}: opened in {:.1} ms", 1e3 * begun.elapsed().as_secs_f64())
    };
    let begun = Instant::now();
    let cuda = lockstep_cuda::open(0).inspect(|_| opened("cuda", begun)).and_then(|gpu| record(gpu, &inputs));
    let begun = Instant::now();
    let rocm = lockstep_rocm::open(0).inspect(|_| opened("rocm", begun)).and_then(|gpu| record(gpu, &inputs));
    for (api, result) in [("cuda", &cuda), ("rocm", &rocm)] {
        if let Err(error) = result {
            eprintln!("{api}: {error}");
        }
    }
    if cuda.is_err() && rocm.is_err() {
        std::process::exit(1);
    }
}

//! Shared by the benchmarks: one batch of realistic inputs, and every op of the table as a function over it.
#![forbid(unsafe_code)]

mod copy;
mod correction;
mod drawn;
mod exact;
mod functions;
mod gates;
mod gpu;
mod inputs;
mod logits;
mod ops;
mod over_time;
mod rewards;
mod routing;
mod tree;

pub use copy::Copy;
pub use gpu::{OnGpu, copy_on_gpu};
pub use inputs::Inputs;
pub use ops::{Bench, Run, all, all_of, same_bits};
pub use routing::RouterBuffers;
pub use tree::shared_halves;

/// Argument `i` of the program, a number.
pub fn number(i: usize, default: usize) -> usize {
    std::env::args().nth(i).and_then(|word| word.parse().ok()).unwrap_or(default)
}

/// The least of the times that `f` takes, in seconds.
pub fn best(runs: usize, mut f: impl FnMut() -> Result<(), lockstep::Error>) -> Result<f64, lockstep::Error> {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = std::time::Instant::now();
        f()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

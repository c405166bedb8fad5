//! Shared by the benchmarks: one batch of realistic inputs, and every op of the table as a function over it.
#![forbid(unsafe_code)]

mod copy;
mod correction;
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
pub use ops::{Bench, Run, all, same_bits};
pub use tree::shared_halves;

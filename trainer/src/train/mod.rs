//! `lockstep train`.

mod abilities;
mod args;
pub(crate) mod bits;
mod columns;
mod engine;
mod games;
mod group;
mod measure;
mod memory;
mod minibatches;
mod pool;
mod record;
mod run;
mod sampler;
mod sampling;
mod screen;
mod state;
mod trainer;
mod turns;

pub use abilities::{suits, tasks_markdown};
pub use args::TrainArgs;
pub use engine::{Asynchronous, EngineRecord, OldPolicy, Schedule};
pub use pool::{Pool, Select};
pub use record::{METRICS, Record, RlRecord, RolloutCount, WarmRecord, read, read_seconds};
pub(crate) use run::on_ctrl_c;
pub use run::train;
pub use sampler::{Sampler, SamplerRecord, Sampling};
pub(crate) use screen::progress_bar;
pub use state::{FILE as CHECKPOINT, Progress, State};
pub use trainer::{RlStep, Trainer};

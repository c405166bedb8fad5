//! The choices of each stage, as TOML spells them: a file for each stage.

mod advantage;
mod aggregation;
mod gate;
mod kl;
mod metrics;
mod over_time;
mod ratio;

pub use advantage::{AdvantageChoice, Estimator, NanReward, SingletonChoice, WhitenChoice};
pub use aggregation::{Aggregation, AggregationMode, CountedSequences, LengthGuard};
pub use gate::GateChoice;
pub use kl::{KlChoice, KlEstimator};
pub use metrics::MetricsChoice;
pub use over_time::{NormSetChoice, TimeChoice};
pub use ratio::{GuardChoice, RatioChoice, RatioLevel};

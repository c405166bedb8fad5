//! The choices of each stage, as TOML spells them: a file for each stage.

mod advantage;
mod aggregation;
mod gate;
mod kl;
mod mask;
mod metrics;
mod ratio;

pub use advantage::{AdvantageChoice, Estimator, NanReward, SingletonChoice, WhitenChoice};
pub use aggregation::{Aggregation, AggregationMode, CountedSequences, LengthGuard};
pub use gate::GateChoice;
pub use kl::{KlChoice, KlEstimator};
pub use mask::{Against, MaskChoice};
pub use metrics::MetricsChoice;
pub use ratio::{GuardChoice, RatioChoice, RatioLevel};

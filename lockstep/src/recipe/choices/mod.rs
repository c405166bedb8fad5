//! The choices of each stage, as TOML spells them: a file for each stage.

mod advantage;
mod aggregation;
mod gate;
mod kl;
mod metrics;
mod ratio;
mod reward;

pub use advantage::{AdvantageChoice, Estimator, NanReward, RoleOrder, SingletonChoice, WhitenChoice};
pub use aggregation::{Aggregation, AggregationMode, CountedSequences, LengthGuard};
pub use gate::GateChoice;
pub use kl::{KlChoice, KlEstimator};
pub use metrics::MetricsChoice;
pub use ratio::{GuardChoice, RatioChoice, RatioLevel};
pub use reward::{
    EntropyChoice, EntropyKind, FilterChoice, OverlongChoice, RewardChoice, ShapingChoice, SharpenChoice,
};

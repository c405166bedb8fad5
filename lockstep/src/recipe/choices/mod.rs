//! The choices of each stage, as written in TOML: one file per stage.

/// For each `name: type = value;` the function that a field's `serde(default = "name")` calls.
macro_rules! defaults {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(fn $name() -> $type {
            $value
        })*
    };
}

mod advantage;
mod aggregation;
mod correction;
mod gate;
mod kl;
mod mask;
mod metrics;
mod over_time;
mod ratio;
mod reward;
mod value;

pub use crate::ops::correction::Denominator;
pub use lockstep_core::advantage::Order as RoleOrder;
pub use lockstep_core::correction::{K1Band, Rule as WeightRule, WeightLevel};
pub use lockstep_schedule::filtration::Filtration;
pub use lockstep_schedule::sample_weights::SampleWeights;

pub use crate::ops::turns::NormSet;
pub use advantage::{
    AdvantageChoice, AdvantageEstimator, NanReward, RobustChoice, SingletonChoice, WhitenChoice,
};
pub use aggregation::{Aggregation, AggregationMode, CountedSequences, EmptySequence, Horizon, LengthGuard};
pub use correction::{CorrectionChoice, GroupStatistics, NanRollout, RejectChoice};
pub use gate::{GateChoice, GmpoBounds};
pub use kl::{KlChoice, KlEstimator, KlPlace, KlRatio, KlWeighting};
pub use mask::{Against, MaskChoice, QuantileRule};
pub use metrics::{MetricsChoice, Reduction};
pub use over_time::TimeChoice;
pub use ratio::{GuardChoice, RatioAdvantage, RatioChoice, RatioGradient, RatioLevel};
pub use reward::{
    ComponentsChoice, EntropyBonusChoice, EntropyKind, FilterChoice, OverlongChoice, RewardChoice,
    ShapingChoice, SharpenChoice,
};
pub use value::{CountsOf, EntropyChoice, EntropyTokens, ValueChoice};

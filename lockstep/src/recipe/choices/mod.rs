//! The choices of each stage, as TOML spells them: a file for each stage.

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

pub use advantage::{
    AdvantageChoice, Estimator, NanReward, RobustChoice, RoleOrder, SingletonChoice, WhitenChoice,
};
pub use aggregation::{Aggregation, AggregationMode, CountedSequences, LengthGuard};
pub use correction::{
    CorrectionChoice, DenominatorChoice, K1BandChoice, RejectChoice, WeightLevelChoice, WeightRule,
};
pub use gate::{GateChoice, GmpoBounds};
pub use kl::{KlChoice, KlEstimator, KlPlace, KlWeighting};
pub use mask::{Against, MaskChoice};
pub use metrics::{MetricsChoice, Reduction};
pub use over_time::{NormSetChoice, TimeChoice};
pub use ratio::{GuardChoice, RatioAdvantage, RatioChoice, RatioLevel};
pub use reward::{
    EntropyBonusChoice, EntropyKind, FilterChoice, FiltrationChoice, OverlongChoice, RewardChoice,
    ShapingChoice, SharpenChoice,
};
pub use value::{EntropyChoice, ValueChoice};

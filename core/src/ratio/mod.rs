//! Importance ratios: how far the current policy has moved from an older one, such as the one that sampled
//! the data.

pub mod ess;
pub mod guard;
pub mod level;
pub mod log_ratio_scan;
pub mod proximal;
pub mod staleness;
pub mod token;

pub use ess::{EffectiveSampleSize, LrRule};
pub use guard::Guard;
pub use level::RatioGranularity;
pub use log_ratio_scan::{LogRatioScan, ScanKind};
pub use proximal::{Interpolation, ProximalLogp};
pub use staleness::Staleness;
pub use token::TokenRatio;

//! Advantage estimators: a reward compared with its group, its batch, a critic, or the later rewards of its
//! own sequence.

pub mod baseline;
pub mod combine;
pub mod discounted_return;
pub mod entropy_bonus;
pub mod gae;
mod group_baseline;
pub mod grpo;
pub(crate) mod members;
pub mod optimal_token_baseline;
pub mod pass_at_k;
pub mod role_baseline;
pub mod sharpen;
pub mod step_return;
pub mod vtrace;
pub mod whiten;

pub use baseline::{Baseline, Scale};
pub use combine::Combine;
pub use discounted_return::DiscountedReturn;
pub use entropy_bonus::EntropyBonus;
pub use gae::Gae;
pub use grpo::{GroupAdvantage, Singleton};
pub use optimal_token_baseline::OptimalTokenBaseline;
pub use pass_at_k::PassAtK;
pub use role_baseline::{Order, RoleBaseline};
pub use sharpen::{Sharpen, Sharpening};
pub use step_return::StepReturn;
pub use vtrace::VTrace;
pub use whiten::{Divisor, Whiten};

//! Advantages: what a sequence's reward says against its group, its batch, or the rest of its own rewards.

pub mod baseline;
pub mod combine;
pub mod discounted_return;
pub mod entropy_bonus;
pub mod grpo;
pub(crate) mod members;
pub mod mssr;
pub mod pass_at_k;
pub mod role_baseline;
pub mod sharpen;
pub mod whiten;

pub use baseline::{Baseline, Scale};
pub use combine::Combine;
pub use discounted_return::DiscountedReturn;
pub use entropy_bonus::EntropyBonus;
pub use grpo::{GroupAdvantage, Singleton};
pub use pass_at_k::PassAtK;
pub use role_baseline::{Order, RoleBaseline};
pub use sharpen::{Sharpen, Sharpening};
pub use whiten::{Divisor, Whiten};

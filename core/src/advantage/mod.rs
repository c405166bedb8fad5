//! Advantages: what a sequence's reward says against its group, its batch, or the rest of its own rewards.

pub mod baseline;
pub mod combine;
pub mod discounted_return;
pub mod filtration;
pub mod grpo;
mod members;
pub mod pass_at_k;
pub mod whiten;

pub use baseline::{Baseline, Scale};
pub use combine::Combine;
pub use discounted_return::DiscountedReturn;
pub use grpo::{GroupAdvantage, Singleton};
pub use pass_at_k::PassAtK;
pub use whiten::{Divisor, Whiten};

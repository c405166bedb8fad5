//! Advantages: what a sequence's reward says against its group.

pub mod grpo;

pub use grpo::{GroupAdvantage, Singleton};

//! The ops on plain slices: arguments checked, results allocated.

pub mod advantage;
pub mod aggregate;
pub mod combine;
pub mod correction;
pub mod discounted_return;
pub mod exact;
pub mod gae;
pub mod kl;
mod locate;
pub mod moments;
pub mod pass_at_k;
pub mod policy_loss;
pub mod ratio;
pub mod scan;
pub mod value_loss;
pub mod whiten;

pub use advantage::group_advantage;
pub use aggregate::{aggregate, fold_rows};
pub use combine::{combine, gdpo};
pub use correction::{mismatch_stats, rollout_correction};
pub use discounted_return::discounted_return;
pub use exact::{exact_sum, exact_token_sum};
pub use gae::{gae, td_lambda};
pub use kl::kl;
pub use moments::token_moments;
pub use pass_at_k::pass_at_k;
pub use ratio::{mismatch, token_ratio};
pub use scan::row_scan;
pub use value_loss::{explained_variance, value_loss};
pub use whiten::whiten;

//! The ops on plain slices: arguments checked, results allocated.

pub mod advantage;
pub mod aggregate;
pub mod combine;
pub mod discounted_return;
pub mod gae;
pub mod kl;
mod locate;
pub mod moments;
pub mod optimal_token_baseline;
pub mod pass_at_k;
pub mod policy_loss;
pub mod ratio;
pub mod scan;
pub mod step_return;
pub mod turns;
pub mod vtrace;
pub mod whiten;

pub use advantage::group_advantage;
pub use aggregate::{aggregate, fold_rows};
pub use combine::{combine, gdpo};
pub use discounted_return::discounted_return;
pub use gae::{gae, td_lambda};
pub use kl::kl;
pub use moments::token_moments;
pub use optimal_token_baseline::optimal_token_baseline;
pub use pass_at_k::pass_at_k;
pub use ratio::{mismatch, token_ratio};
pub use scan::row_scan;
pub use step_return::{step_advantages, step_return};
pub use turns::{normalize_roles, turn_return};
pub use vtrace::vtrace;
pub use whiten::whiten;

//! The ops on plain slices: arguments checked, results allocated.

pub mod advantage;
pub mod aggregate;
pub mod discounted_return;
pub mod kl;
mod locate;
pub mod moments;
pub mod policy_loss;
pub mod ratio;
pub mod scan;
pub mod whiten;

pub use advantage::group_advantage;
pub use aggregate::{aggregate, fold_rows};
pub use discounted_return::discounted_return;
pub use kl::kl;
pub use moments::token_moments;
pub use ratio::{mismatch, token_ratio};
pub use scan::row_scan;
pub use whiten::whiten;

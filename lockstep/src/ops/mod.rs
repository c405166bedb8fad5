//! The ops on plain slices: arguments checked, results allocated.

pub mod advantage;
pub mod aggregate;
pub mod kl;
mod locate;
pub mod policy_loss;
pub mod ratio;
pub mod scan;

pub use advantage::group_advantage;
pub use aggregate::{aggregate, fold_rows};
pub use kl::kl;
pub use ratio::{mismatch, token_ratio};
pub use scan::row_scan;

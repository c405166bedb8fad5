//! The ops on plain slices: arguments checked, results allocated.

pub mod advantage;
pub mod aggregate;
pub mod combine;
pub mod discounted_return;
pub mod kl;
mod locate;
pub mod moments;
pub mod pass_at_k;
pub mod policy_loss;
pub mod ratio;
pub mod scan;
pub mod tree;
pub mod whiten;

pub use advantage::group_advantage;
pub use aggregate::{aggregate, fold_rows};
pub use combine::{combine, gdpo};
pub use discounted_return::discounted_return;
pub use kl::kl;
pub use moments::token_moments;
pub use pass_at_k::pass_at_k;
pub use ratio::{mismatch, token_ratio};
pub use scan::row_scan;
pub use tree::{prefix_tree, step_values, tempo};
pub use whiten::whiten;

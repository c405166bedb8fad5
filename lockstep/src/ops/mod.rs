//! The ops on plain slices: arguments checked, results allocated.

pub mod advantage;
pub mod aggregate;
pub mod combine;
pub mod correction;
pub mod discounted_return;
pub mod ess;
pub mod kl;
mod locate;
pub mod log_ratio;
pub mod moments;
pub mod pass_at_k;
pub mod policy_loss;
pub mod proximal;
pub mod ratio;
pub mod scan;
pub mod staleness;
pub mod whiten;

pub use advantage::group_advantage;
pub use aggregate::{aggregate, fold_rows};
pub use combine::{combine, gdpo};
pub use correction::{mismatch_stats, rollout_correction};
pub use discounted_return::discounted_return;
pub use ess::{sequence_sample_sizes, token_sample_sizes};
pub use kl::kl;
pub use log_ratio::{log_ratio_scan, segment_log_ratio};
pub use moments::token_moments;
pub use pass_at_k::pass_at_k;
pub use proximal::proximal_logp;
pub use ratio::{mismatch, token_ratio};
pub use scan::row_scan;
pub use staleness::staleness;
pub use whiten::whiten;

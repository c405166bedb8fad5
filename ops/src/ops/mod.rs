//! The ops on plain slices: each function checks its arguments and allocates its results.

pub mod advantage;
pub mod aggregate;
pub mod combine;
pub mod correction;
pub mod discounted_return;
pub mod ess;
pub mod exact;
pub mod filter;
pub mod gae;
pub mod host_rules;
pub mod kl;
pub mod kl_importance;
#[doc(hidden)]
pub mod locate;
pub mod log_ratio;
pub mod logits;
pub mod moments;
pub mod optimal_token_baseline;
pub mod pass_at_k;
pub mod policy_loss;
pub mod proximal;
pub mod ratio;
pub mod reward;
#[doc(hidden)]
pub mod roles;
pub mod routing;
pub mod scan;
pub mod select;
pub mod sequence_weight;
pub mod sharpen;
pub mod staleness;
pub mod step_return;
pub mod tree;
pub mod turns;
pub mod value_loss;
pub mod vcpo;
pub mod vtrace;
pub mod whiten;

pub use advantage::{group_advantage, group_advantage_into};
pub use aggregate::{aggregate, fold_rows};
pub use combine::{combine, gdpo};
pub use correction::{mismatch_stats, rollout_correction};
pub use discounted_return::discounted_return;
pub use ess::{sequence_sample_sizes, token_sample_sizes};
pub use exact::{exact_sum, exact_token_sum};
pub use filter::{filter_groups, mask_sequences};
pub use gae::{gae, td_lambda};
pub use host_rules::{filtration, limit, robust_baselines, sample_weights, signed_return};
pub use kl::kl;
pub use kl_importance::{kl_importance, kl_importance_into, kl_in_reward};
pub use log_ratio::{log_ratio_scan, segment_log_ratio};
pub use logits::vocab_parallel::{
    vocab_parallel_gradient, vocab_parallel_statistics, vocab_parallel_sums, vocab_parallel_top,
};
pub use logits::{
    draw_tokens, logits_gradient, logits_gradient_in_place, logits_kl, logits_statistics, otr_exact,
    otr_sampled,
};
pub use moments::token_moments;
pub use optimal_token_baseline::optimal_token_baseline;
pub use pass_at_k::pass_at_k;
pub use proximal::proximal_logp;
pub use ratio::{mismatch, token_ratio};
pub use reward::{novelty_bands, shape_rewards, variance_increase};
pub use routing::{balance_loss, gating_backward, gating_forward};
pub use scan::row_scan;
pub use select::{covariance, select};
pub use sequence_weight::sequence_weight;
pub use sharpen::{entropy_bonus, role_baseline, sharpen};
pub use staleness::staleness;
pub use step_return::{step_advantages, step_return};
pub use tree::{prefix_tree, step_values, tempo};
pub use turns::{normalize_roles, turn_return};
pub use value_loss::{explained_variance, value_loss, value_loss_into};
pub use vcpo::vcpo_weights;
pub use vtrace::vtrace;
pub use whiten::{whiten, whiten_into};

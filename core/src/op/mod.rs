//! The definition of an op, and the table of all ops.

mod args;
mod kernel;
mod lengths;

pub use args::{Arg, Decoder, Encoder, MAX_POINTERS, MAX_WARPS, MAX_WORDS};
#[doc(hidden)]
pub use args::{pointers_of, sum, words_of};
pub use kernel::{Launch, Partition};
#[doc(hidden)]
pub use lengths::check_length;
pub use lengths::{Length, check_indices};

use crate::team::Team;

/// An op: what a team does with one row.
///
/// Row r may read any input and writes only elements that belong to row r; see [`DisjointRows`].
pub trait Kernel: Launch {
    /// Computes row `row` with the team.
    fn row<T: Team>(&self, team: &T, row: usize);

    /// Computes `rows` one after the other with a team whose vectors belong to one thread. An op may override
    /// this to overlap its short rows.
    #[inline(always)]
    fn block<T: Team>(&self, team: &T, rows: core::ops::Range<usize>) {
        for row in rows {
            self.row(team, row);
        }
    }

    /// The number of the op's variant (last column of the table) that these arguments need.
    ///
    /// A GPU has one entry point per variant, so that small calls do not inherit the full variant's register
    /// use. All variants compute the same function: the choice affects only speed.
    #[inline(always)]
    fn variant(&self) -> usize {
        0
    }

    /// [`row`](Kernel::row), given that the variant is number V.
    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        self.row(team, row);
    }
}

/// A kernel whose rows write disjoint elements, so that a backend may run them in parallel.
///
/// # Safety
/// For any two rows r ≠ s, no element of an output is written by both.
#[allow(unsafe_code)]
pub unsafe trait DisjointRows: Kernel {}

/// [`row`](Kernel::row) of an op with variants, by [`variant`](Kernel::variant).
#[macro_export]
macro_rules! row_by_variant {
    ($($first:literal),+; $last:literal) => {
        #[inline(always)]
        fn row<T: $crate::team::Team>(&self, team: &T, row: usize) {
            match self.variant() {
                $($first => self.row_as::<$first, T>(team, row),)+
                _ => self.row_as::<$last, T>(team, row),
            }
        }
    };
}

/// One line of the table of ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// Name, used by every backend, test, benchmark and document.
    pub name: &'static str,
    /// Defining file, relative to `core/src`.
    pub file: &'static str,
    /// What one row is: a sequence, a group, a token, …
    pub row: &'static str,
    /// What the op computes, and where it comes from: arXiv ids, or the frameworks that have it.
    pub summary: &'static str,
    /// Entry points on a GPU, in the order of [`Kernel::variant`].
    pub entries: &'static [&'static str],
    /// Entry points of the same variants for few long rows: a block of several warps takes one row. Empty if
    /// the op has none. NVIDIA only.
    pub blocks: &'static [&'static str],
}

/// Calls `$with!` with the table of ops: `name: Type, "file", "row", "summary", [variants];` lines.
///
/// Everything that must exist for every op is generated from this table or checked against it (by
/// conformance's coverage test): GPU entry points, dispatch, benchmarks, oracle, property cases, docs. A
/// variant is written `number entry_point`; an op without variants has one. An op with `block` behind its
/// variants has a second entry point for each, `entry_point_block`, which gives a row to a block of warps:
/// its rows are made of [`Team`] calls that several warps can share (kernels/src/team.rs).
#[macro_export]
// For rustfmt alone, which would move the second lines of strings: a `rustfmt::skip` that the compiler sees
// hides the macro from imports in this crate.
#[cfg_attr(any(), rustfmt::skip)]
macro_rules! for_each_op {
    ($with:ident) => {
        $with! {
            // --- outcome rewards and advantages of sequences
            group_advantage: $crate::advantage::GroupAdvantage<'_>, "advantage/grpo.rs", "group",
                "group-relative advantage of each sequence: every baseline and scale of outcome rewards \
                 (2402.03300, 2503.20783, 2402.14740, 2505.23585, 2504.02546, 2602.02710, 2601.22582, \
                 2503.19595, 2310.10505, 2602.17616, 2603.10848)",
                [0 group_advantage, 1 group_advantage_median, 2 group_advantage_others];
            // --- importance ratios and rollout correction
            token_ratio: $crate::ratio::TokenRatio<'_>, "ratio/token.rs", "sequence",
                "importance ratio exp(logp - logp_old) per token, with its statistics (1707.06347)",
                [0 token_ratio] block;
            rollout_mismatch: $crate::correction::RolloutMismatch<'_>, "correction/mismatch.rs", "sequence",
                "how far trainer and sampler are apart: KL estimates, chi-square, extreme tokens, \
                 perplexity (verl)", [0 rollout_mismatch];
            rollout_correction: $crate::correction::RolloutCorrection<'_>, "correction/weights.rs",
                "sequence",
                "importance weights (TIS, IcePop, MIS) and the loss mask that rejection leaves (verl, TRL, \
                 slime, NeMo RL, AReaL)", [0 rollout_correction, 1 rollout_correction_differences] block;
            normalize_weights: $crate::correction::NormalizeWeights<'_>, "correction/normalize.rs",
                "sequence",
                "weights divided by their mean over the batch (verl)", [0 normalize_weights];
            log_ratio_scan: $crate::ratio::LogRatioScan<'_>, "ratio/log_ratio_scan.rs", "sequence",
                "log-ratios of prefixes, prefix minima, segments and whole sequences, one per token \
                 (2601.22718, 2507.18071)", [0 log_ratio_scan] block;
            proximal_logp: $crate::ratio::ProximalLogp<'_>, "ratio/proximal.rs", "sequence",
                "log-probabilities of the proximal policy, interpolated by staleness (AReaL, 2110.00641)",
                [0 proximal_logp];
            staleness: $crate::ratio::Staleness<'_>, "ratio/staleness.rs", "sequence",
                "start version, off-policy tokens and the mask of tokens that are not too old (2509.18521)",
                [0 staleness];
            effective_sample_size: $crate::ratio::EffectiveSampleSize<'_>, "ratio/ess.rs", "row",
                "effective sample size of the weights of each row (2602.17616)", [0 effective_sample_size];
            // --- policy losses
            policy_loss_ppo: $crate::policy_loss::PolicyLoss<'_, $crate::gate::PpoClip>, "policy_loss/mod.rs",
                "sequence",
                "PPO clip (asymmetric, dual): loss, dL/dlogp and metrics, fused (1707.06347, 2503.14476, \
                 1912.09729)",
                [0 policy_loss_ppo, 1 policy_loss_ppo_any, 2 policy_loss_ppo_kl, 3 policy_loss_ppo_loss,
                 4 policy_loss_ppo_kl_loss, 5 policy_loss_ppo_metrics, 6 policy_loss_ppo_kl_metrics,
                 7 policy_loss_ppo_narrow_loss, 8 policy_loss_ppo_narrow_metrics] block;
            policy_loss_sapo: $crate::policy_loss::PolicyLoss<'_, $crate::gate::Sapo>, "policy_loss/mod.rs",
                "sequence",
                "SAPO soft gate: loss, dL/dlogp and metrics, fused (2511.20347)",
                [0 policy_loss_sapo, 1 policy_loss_sapo_any, 2 policy_loss_sapo_kl, 3 policy_loss_sapo_loss,
                 4 policy_loss_sapo_kl_loss, 5 policy_loss_sapo_metrics, 6 policy_loss_sapo_kl_metrics,
                 7 policy_loss_sapo_narrow_loss, 8 policy_loss_sapo_narrow_metrics] block;
            policy_loss_cispo: $crate::policy_loss::PolicyLoss<'_, $crate::gate::Cispo>, "policy_loss/mod.rs",
                "sequence",
                "CISPO: clipped importance weight, never differentiated; loss, dL/dlogp and metrics, fused \
                 (2506.13585)",
                [0 policy_loss_cispo, 1 policy_loss_cispo_any, 2 policy_loss_cispo_kl,
                 3 policy_loss_cispo_loss, 4 policy_loss_cispo_kl_loss, 5 policy_loss_cispo_metrics,
                 6 policy_loss_cispo_kl_metrics, 7 policy_loss_cispo_narrow_loss,
                 8 policy_loss_cispo_narrow_metrics] block;
            policy_loss_reinforce: $crate::policy_loss::PolicyLoss<'_, $crate::gate::Reinforce>,
                "policy_loss/mod.rs", "sequence",
                "REINFORCE without importance weight (GPG): loss, dL/dlogp and metrics, fused (2504.02546)",
                [0 policy_loss_reinforce, 1 policy_loss_reinforce_any, 2 policy_loss_reinforce_kl,
                 3 policy_loss_reinforce_loss, 4 policy_loss_reinforce_kl_loss,
                 5 policy_loss_reinforce_metrics, 6 policy_loss_reinforce_kl_metrics,
                 7 policy_loss_reinforce_narrow_loss, 8 policy_loss_reinforce_narrow_metrics] block;
            policy_loss_dppo_tv: $crate::policy_loss::PolicyLoss<'_, $crate::gate::DppoTv>,
                "policy_loss/mod.rs", "sequence",
                "DPPO, trust region by total variation: loss, dL/dlogp and metrics, fused (2602.04879)",
                [0 policy_loss_dppo_tv, 1 policy_loss_dppo_tv_any, 2 policy_loss_dppo_tv_kl,
                 3 policy_loss_dppo_tv_loss, 4 policy_loss_dppo_tv_kl_loss, 5 policy_loss_dppo_tv_metrics,
                 6 policy_loss_dppo_tv_kl_metrics, 7 policy_loss_dppo_tv_narrow_loss,
                 8 policy_loss_dppo_tv_narrow_metrics] block;
            policy_loss_dppo_kl: $crate::policy_loss::PolicyLoss<'_, $crate::gate::DppoKl>,
                "policy_loss/mod.rs", "sequence",
                "DPPO, trust region by binary KL divergence: loss, dL/dlogp and metrics, fused (2602.04879)",
                [0 policy_loss_dppo_kl, 1 policy_loss_dppo_kl_any, 2 policy_loss_dppo_kl_kl,
                 3 policy_loss_dppo_kl_loss, 4 policy_loss_dppo_kl_kl_loss, 5 policy_loss_dppo_kl_metrics,
                 6 policy_loss_dppo_kl_kl_metrics, 7 policy_loss_dppo_kl_narrow_loss,
                 8 policy_loss_dppo_kl_narrow_metrics] block;
            policy_loss_mini_rl: $crate::policy_loss::PolicyLoss<'_, $crate::gate::MiniRl>,
                "policy_loss/mod.rs", "sequence",
                "MiniRL: truncated weight to the rollout policy, PPO's clip as a mask; loss, dL/dlogp and \
                 metrics, fused (2512.01374)",
                [0 policy_loss_mini_rl, 1 policy_loss_mini_rl_any, 2 policy_loss_mini_rl_kl,
                 3 policy_loss_mini_rl_loss, 4 policy_loss_mini_rl_kl_loss, 5 policy_loss_mini_rl_metrics,
                 6 policy_loss_mini_rl_kl_metrics, 7 policy_loss_mini_rl_narrow_loss,
                 8 policy_loss_mini_rl_narrow_metrics] block;
            policy_loss_remix: $crate::policy_loss::PolicyLoss<'_, $crate::gate::Remix>, "policy_loss/mod.rs",
                "sequence",
                "ReMix: PPO's clip around the latest policy's ratio; loss, dL/dlogp and metrics, fused \
                 (2507.06892)",
                [0 policy_loss_remix, 1 policy_loss_remix_any, 2 policy_loss_remix_kl,
                 3 policy_loss_remix_loss, 4 policy_loss_remix_kl_loss, 5 policy_loss_remix_metrics,
                 6 policy_loss_remix_kl_metrics, 7 policy_loss_remix_narrow_loss,
                 8 policy_loss_remix_narrow_metrics] block;
            policy_loss_trust_region: $crate::policy_loss::PolicyLoss<'_, $crate::gate::TrustRegion>,
                "policy_loss/mod.rs", "sequence",
                "DPPO whose weight is of the sampler, or whose divergences are given: loss, dL/dlogp and \
                 metrics, fused (2602.04879, released code)",
                [0 policy_loss_trust_region, 1 policy_loss_trust_region_any, 2 policy_loss_trust_region_kl,
                 3 policy_loss_trust_region_loss, 4 policy_loss_trust_region_kl_loss,
                 5 policy_loss_trust_region_metrics, 6 policy_loss_trust_region_kl_metrics,
                 7 policy_loss_trust_region_narrow_loss, 8 policy_loss_trust_region_narrow_metrics] block;
            policy_loss_gmpo: $crate::policy_loss::PolicyLossGmpo<'_>, "policy_loss/gmpo.rs", "sequence",
                "GMPO: geometric-mean ratio of log-ratios clipped token by token; loss, dL/dlogp and \
                 metrics, fused (2507.20673)", [0 policy_loss_gmpo, 1 policy_loss_gmpo_metrics] block;
            sequence_weight: $crate::policy_loss::SequenceWeight<'_>, "policy_loss/sequence_weight.rs",
                "sequence",
                "weights by how far a sequence has moved: VESPO, TOPR, off-policy mask (2503.14286, TRL, \
                 slime)", [0 sequence_weight] block;
            covariance: $crate::select::Covariance<'_>, "select/covariance.rs", "sequence",
                "centred advantage times centred log-probability of each token (2505.22617)", [0 covariance];
            selection_key: $crate::select::SelectionKey<'_>, "select/key.rs", "sequence",
                "keys of a selection: ordered bits of a value, or a hash of the position (2505.22617)",
                [0 selection_key];
            digit_counts: $crate::select::DigitCounts<'_>, "select/digits.rs", "sequence",
                "keys of each row with a given prefix, counted by their next digit", [0 digit_counts];
            narrow_digits: $crate::select::NarrowDigits<'_>, "select/digits.rs", "batch",
                "the next digit of the n-th largest key, and the ties before each row", [0 narrow_digits];
            select_top: $crate::select::SelectTop<'_>, "select/top.rs", "sequence",
                "one of two values for each token, by whether it is among the n largest", [0 select_top];
            // --- KL, entropy, values
            kl: $crate::kl::KlDivergence<'_>, "kl.rs", "sequence",
                "k1, k2, k3 and abs estimators of KL(policy ‖ reference) and their gradients (Schulman's \
                 estimators)", [0 kl_k1, 1 kl_abs, 2 kl_k2, 3 kl_k3] block;
            kl_importance: $crate::kl_importance::KlImportance<'_>, "kl_importance.rs", "sequence",
                "KL estimate weighted by the importance ratio, and its gradient (DeepSeek-V3.2, TRL, slime)",
                [0 kl_importance] block;
            value_loss: $crate::value_loss::ValueLoss<'_>, "value_loss.rs", "sequence",
                "clipped value loss of a critic: loss, dL/dV and clipped tokens, fused (1707.06347, verl)",
                [0 value_loss] block;
            logits_statistics: $crate::logits::LogitsStatistics<'_>, "logits/statistics.rs", "token",
                "log-probability of the label, logsumexp, entropy, score norm and top token of a row of \
                 logits (norm: 2602.17616)", [0 logits_statistics, 1 logits_statistics_moments] block;
            logits_statistics_bf16: $crate::logits::LogitsStatistics<'_, $crate::num::Bf16>,
                "logits/statistics.rs", "token",
                "logits_statistics of logits that are stored in bfloat16",
                [0 logits_statistics_bf16, 1 logits_statistics_bf16_moments] block;
            logits_statistics_f16: $crate::logits::LogitsStatistics<'_, $crate::num::F16>,
                "logits/statistics.rs", "token",
                "logits_statistics of logits that are stored in binary16",
                [0 logits_statistics_f16, 1 logits_statistics_f16_moments] block;
            logits_gradient: $crate::logits::LogitsGradient<'_>, "logits/gradient.rs", "token",
                "gradient of the logits from those of logp and entropy",
                [0 logits_gradient, 1 logits_gradient_shard] block;
            logits_gradient_bf16: $crate::logits::LogitsGradient<'_, $crate::num::Bf16>, "logits/gradient.rs",
                "token",
                "logits_gradient of logits and gradients in bfloat16",
                [0 logits_gradient_bf16, 1 logits_gradient_bf16_shard] block;
            logits_gradient_f16: $crate::logits::LogitsGradient<'_, $crate::num::F16>, "logits/gradient.rs",
                "token",
                "logits_gradient of logits and gradients in binary16",
                [0 logits_gradient_f16, 1 logits_gradient_f16_shard] block;
            vocab_parallel_top: $crate::logits::VocabParallelTop<'_>, "logits/vocab_parallel.rs", "token",
                "largest entry of a row of logits whose vocabulary is spread over ranks",
                [0 vocab_parallel_top];
            vocab_parallel_top_bf16: $crate::logits::VocabParallelTop<'_, $crate::num::Bf16>,
                "logits/vocab_parallel.rs", "token",
                "vocab_parallel_top of logits in bfloat16", [0 vocab_parallel_top_bf16];
            vocab_parallel_top_f16: $crate::logits::VocabParallelTop<'_, $crate::num::F16>,
                "logits/vocab_parallel.rs", "token",
                "vocab_parallel_top of logits in binary16", [0 vocab_parallel_top_f16];
            vocab_parallel_sums: $crate::logits::VocabParallelSums<'_>, "logits/vocab_parallel.rs", "token",
                "exact sums over a row of logits whose vocabulary is spread over ranks",
                [0 vocab_parallel_sums, 1 vocab_parallel_sums_moments];
            vocab_parallel_sums_bf16: $crate::logits::VocabParallelSums<'_, $crate::num::Bf16>,
                "logits/vocab_parallel.rs", "token",
                "vocab_parallel_sums of logits in bfloat16",
                [0 vocab_parallel_sums_bf16, 1 vocab_parallel_sums_bf16_moments];
            vocab_parallel_sums_f16: $crate::logits::VocabParallelSums<'_, $crate::num::F16>,
                "logits/vocab_parallel.rs", "token",
                "vocab_parallel_sums of logits in binary16",
                [0 vocab_parallel_sums_f16, 1 vocab_parallel_sums_f16_moments];
            vocab_parallel_statistics: $crate::logits::VocabParallelStatistics<'_>,
                "logits/vocab_parallel.rs", "token",
                "logits_statistics from what was reduced over the ranks of a vocabulary",
                [0 vocab_parallel_statistics];
            otr_exact: $crate::logits::OtrExact<'_>, "logits/otr.rs", "token",
                "one-token rollout in expectation: loss and gradient of the logits (2509.26313)",
                [0 otr_exact];
            draw_tokens: $crate::logits::DrawTokens<'_>, "logits/draw.rs", "token",
                "tokens drawn from rows of logits, by position and seed (2509.26313)", [0 draw_tokens];
            otr_sampled: $crate::logits::OtrSampled<'_>, "logits/otr_sampled.rs", "token",
                "one-token rollout from drawn tokens: loss and gradient of the logits (2509.26313)",
                [0 otr_sampled];
            logits_kl: $crate::logits::LogitsKl<'_>, "logits/kl.rs", "token",
                "KL divergence between two rows of logits over the whole vocabulary, and its gradient",
                [0 logits_kl, 1 logits_kl_reverse];
            // --- aggregation and moments
            aggregate: $crate::aggregate::Aggregate<'_>, "aggregate/rows.rs", "sequence",
                "masked sum and token count of each sequence (2402.03300, 2503.14476, 2503.20783)",
                [0 aggregate] block;
            row_scan: $crate::aggregate::RowScan<'_>, "aggregate/scan.rs", "sequence",
                "masked inclusive prefix or suffix sums inside each sequence", [0 row_scan] block;
            fold_rows: $crate::aggregate::FoldRows<'_>, "aggregate/fold.rs", "statistic",
                "per-row partial sums folded into whole-batch sums, by row index", [0 fold_rows];
            row_moments: $crate::aggregate::RowMoments<'_>, "aggregate/moments.rs", "row",
                "count, mean, centred squares, extremes and non-zeros of each row", [0 row_moments];
            fold_moments: $crate::aggregate::FoldMoments<'_>, "aggregate/moments.rs", "batch",
                "moments of rows merged into those of the batch, by row index", [0 fold_moments];
            batch_counts: $crate::aggregate::BatchCounts<'_>, "aggregate/counts.rs", "part of the batch",
                "live tokens, non-empty sequences and the longest of each part of a batch, for denominators \
                 on the device", [0 batch_counts];
            loss_totals: $crate::aggregate::LossTotals<'_>, "aggregate/totals.rs", "statistic",
                "loss, metrics, counts and worst alarm of a batch from those of its sequences",
                [0 loss_totals];
            // --- exact sums
            exact_sum: $crate::aggregate::ExactDigits<'_, f64>, "aggregate/exact_sum.rs",
                "4 digits of 4096 values",
                "digits of the exact sum of binary64 values, to be added in any order (decision 0007)",
                [0 exact_sum];
            exact_sum_f32: $crate::aggregate::ExactDigits<'_, f32>, "aggregate/exact_sum.rs",
                "4 digits of 4096 values",
                "digits of the exact sum of values or of their squares", [0 exact_sum_f32];
            // --- whitening
            whiten: $crate::advantage::Whiten<'_>, "advantage/whiten.rs", "row",
                "values centred and scaled by the moments of a batch (2501.03262, 2601.05242)", [0 whiten];
            // --- advantages over time
            discounted_return: $crate::advantage::DiscountedReturn<'_>, "advantage/discounted_return.rs",
                "sequence",
                "discounted sum of the rewards from each token on (2501.03262, 2510.15414)",
                [0 discounted_return] block;
            gae: $crate::advantage::Gae<'_>, "advantage/gae.rs", "sequence",
                "generalised advantage estimates over live tokens, and λ-returns (1506.02438, 2504.05118)",
                [0 gae] block;
            vtrace: $crate::advantage::VTrace<'_>, "advantage/vtrace.rs", "sequence",
                "values and advantages of a policy that did not sample the data (1802.01561)",
                [0 vtrace] block;
            step_return: $crate::advantage::StepReturn<'_>, "advantage/step_return.rs", "trajectory",
                "discounted sum of step rewards up to the first step that differs from the expert's \
                 (2509.11543)", [0 step_return] block;
            optimal_token_baseline: $crate::advantage::OptimalTokenBaseline<'_>,
                "advantage/optimal_token_baseline.rs", "group",
                "returns minus the score-weighted mean of the group at the same position (2602.17616, verl)",
                [0 optimal_token_baseline];
            // --- more of outcome rewards
            pass_at_k: $crate::advantage::PassAtK<'_>, "advantage/pass_at_k.rs", "group",
                "analytic pass@k advantage of each sequence, and pass@k of its group (2508.10751)",
                [0 pass_at_k];
            combine: $crate::advantage::Combine<'_>, "advantage/combine.rs", "group",
                "weighted sum of several rewards or advantages of each sequence (2601.05242)", [0 combine];
            shape_rewards: $crate::reward::ShapeRewards<'_>, "reward/shape.rs", "group",
                "rewards by length, sign, flaw, brevity or preference (2503.14476, 2506.01347, 2510.22543, \
                 2505.21178, 2506.00103)", [0 shape_rewards];
            filter_groups: $crate::reward::FilterGroups<'_>, "reward/filter.rs", "group",
                "which groups and sequences remain in the batch (2503.14476, 2509.11543, 2509.24107, \
                 2506.00103, 2506.01347, 2506.24119)", [0 filter_groups];
            mask_sequences: $crate::reward::MaskSequences<'_>, "reward/mask_sequences.rs", "sequence",
                "loss mask without the tokens of dropped sequences", [0 mask_sequences];
            novelty_bands: $crate::reward::NoveltyBands<'_>, "reward/novelty.rs", "group",
                "EVOL-RL: reward bands by majority, ranked inside by novelty (2509.15194)", [0 novelty_bands];
            variance_increase: $crate::reward::VarianceIncrease<'_>, "reward/variance_increase.rs", "group",
                "GRPOVI: rewards of larger variance, with the same mean and order (2505.23247)",
                [0 variance_increase];
            sharpen: $crate::advantage::Sharpen<'_>, "advantage/sharpen.rs", "group",
                "advantages sharpened by the likelihood of the answers: XRPO-style, ACE (2510.06672, \
                 2602.21420)", [0 sharpen];
            role_baseline: $crate::advantage::RoleBaseline<'_>, "advantage/role_baseline.rs", "role",
                "SPIRAL's RAE: rewards less a moving average per role (2506.24119)", [0 role_baseline];
            entropy_bonus: $crate::advantage::EntropyBonus<'_>, "advantage/entropy_bonus.rs", "sequence",
                "MSSR's entropy shaping of advantages per token (2512.18215)",
                [0 entropy_bonus, 1 entropy_bonus_full];
            // --- checks
            check_offsets: $crate::check::CheckOffsets<'_>, "check.rs", "4096 offsets",
                "first offset that is out of order, for offsets that only a device can see",
                [0 check_offsets];
            check_values: $crate::check::CheckValues<'_>, "check.rs", "4096 values",
                "first live value outside its domain, for arrays that only a device can see",
                [0 check_values];
            // --- prefix trees
            tree_sort: $crate::tree::TreeSort<'_>, "tree/tree_sort.rs", "merge",
                "two sorted runs of responses merged, with the prefix that neighbours share", [0 tree_sort];
            tree_nodes: $crate::tree::TreeNodes<'_>, "tree/tree_nodes.rs", "group",
                "branching nodes of a group's prefix tree: value, parent, number of responses (2509.18314, \
                 2601.06922)", [0 tree_nodes];
            tree_advantage: $crate::tree::TreeAdvantage<'_>, "tree/tree_advantage.rs", "sequence",
                "advantage of each token: the response's, corrected where responses part (TEMPO, 2509.18314)",
                [0 tree_advantage];
            // --- routing replay
            gating_forward: $crate::routing::GatingForward<'_>, "routing/gating_forward.rs", "router row",
                "experts and gate weights of a mixture-of-experts router, natural or replayed (2512.01374, \
                 2510.11370, DeepSeek-V2 to V4, ERNIE 4.5)",
                [0 gating_forward, 1 gating_forward_all, 2 gating_forward_sigmoid,
                 3 gating_forward_probability, 4 gating_forward_sqrt_softplus];
            gating_backward: $crate::routing::GatingBackward<'_>, "routing/gating_backward.rs", "router row",
                "gradient of the dense router scores from that of the gate weights (2512.01374)",
                [0 gating_backward, 1 gating_backward_all, 2 gating_backward_sqrt_softplus];
            balance_loss: $crate::routing::BalanceLoss<'_>, "routing/balance.rs", "router row",
                "load-balance loss of a router and the gradient of its scores (2101.03961, 2006.16668)",
                [0 balance_loss];
        }
    };
}

macro_rules! blocks {
    ($($entry:ident)*;) => { &[] };
    ($($entry:ident)*; block) => { &[$(concat!(stringify!($entry), "_block")),*] };
}

macro_rules! list {
    ($($name:ident: $kernel:ty, $file:literal, $row:literal, $summary:literal,
        [$($number:literal $entry:ident),*] $($block:ident)?;)*) => {
        /// The table of ops as data.
        ///
        /// | op | a row is | what it computes, and source |
        /// |---|---|---|
        $(#[doc = concat!("| `", stringify!($name), "` | ", $row, " | ", $summary, " |")])*
        pub const OPS: &[OpInfo] = &[$(OpInfo {
            name: stringify!($name),
            file: $file,
            row: $row,
            summary: $summary,
            entries: &[$(stringify!($entry)),*],
            blocks: blocks!($($entry)*; $($block)?),
        }),*];

        // Every op must fit the entry points, and its variants must be numbered in order.
        $(const _: () = {
            const fn fits<A: DisjointRows>() {
                assert!(A::POINTERS <= MAX_POINTERS && A::WORDS <= MAX_WORDS,
                    "raise MAX_POINTERS or MAX_WORDS");
            }
            fits::<$kernel>();
            let numbers: &[usize] = &[$($number),*];
            let mut i = 0;
            while i < numbers.len() {
                assert!(numbers[i] == i, "variants are numbered 0, 1, …");
                i += 1;
            }
        };)*
    };
}
for_each_op!(list);

impl OpInfo {
    /// Every entry point: one for each variant, then those in which a block shares a row.
    pub fn all_entries(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.entries.iter().chain(self.blocks).copied()
    }

    /// Looks up an op by name.
    pub fn named(name: &str) -> Option<&'static OpInfo> {
        OPS.iter().find(|op| op.name == name)
    }
}

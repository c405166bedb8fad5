//! What an op is, and the one list of them.

mod args;

pub use args::{Arg, Decoder, Encoder, MAX_POINTERS, MAX_WORDS};
#[doc(hidden)]
pub use args::{pointers_of, sum, words_of};

use crate::team::Team;

/// An op: its launch arguments and what a team does with one row.
///
/// Row r reads its inputs freely and writes only elements that belong to row r; see [`DisjointRows`].
pub trait Kernel: Arg {
    /// The op's name in the table.
    const NAME: &'static str;

    /// Number of rows to run.
    fn rows(&self) -> usize;

    /// Elements of a row, to balance rows over threads. Any estimate is right; only speed depends on it. Host memory only.
    fn work(&self, row: usize) -> usize;

    /// What the team does with row `row`.
    fn row<T: Team>(&self, team: &T, row: usize);

    /// Which of the op's variants (last column of the table) these arguments need.
    ///
    /// A GPU has an entry point for each variant, so that who wants little does not pay with the registers of who wants all.
    /// Variants compute the same function: only speed depends on the choice.
    #[inline(always)]
    fn variant(&self) -> usize {
        0
    }

    /// [`row`](Kernel::row), when the variant is known to be number V.
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

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// Name, the same in every backend, test, benchmark and document.
    pub name: &'static str,
    /// File below `core/src` that defines it.
    pub file: &'static str,
    /// What a row is.
    pub row: &'static str,
    /// What it computes, in one line.
    pub summary: &'static str,
    /// Entry points on a GPU, in the order of [`Kernel::variant`].
    pub entries: &'static [&'static str],
}

/// Calls `$with!` with the table of ops: `name: Type, "file", "row", "summary", [variants];` lines.
///
/// Everything that must exist for every op is generated from here or checked against it (conformance's
/// coverage test): GPU entry points, dispatch, benchmarks, oracle, property cases, docs. A variant is
/// `number entry_point`; an op without variants has one.
#[macro_export]
macro_rules! for_each_op {
    ($with:ident) => {
        $with! {
            // --- outcome rewards and advantages of sequences
            group_advantage: $crate::advantage::GroupAdvantage<'_>, "advantage/grpo.rs", "group",
                "group-relative advantage of each sequence: every baseline and scale of outcome rewards",
                [0 group_advantage, 1 group_advantage_median, 2 group_advantage_others];
            // --- importance ratios and rollout correction
            token_ratio: $crate::ratio::TokenRatio<'_>, "ratio/token.rs", "sequence",
                "importance ratio exp(logp - logp_old) per token, with its statistics", [0 token_ratio];
            // --- policy losses
            policy_loss_ppo: $crate::policy_loss::PolicyLoss<'_, $crate::gate::PpoClip>, "policy_loss/mod.rs", "sequence",
                "PPO clip (asymmetric, dual): loss, dL/dlogp and metrics, fused",
                [0 policy_loss_ppo, 1 policy_loss_ppo_any, 2 policy_loss_ppo_kl, 3 policy_loss_ppo_loss,
                 4 policy_loss_ppo_kl_loss, 5 policy_loss_ppo_metrics, 6 policy_loss_ppo_kl_metrics];
            policy_loss_sapo: $crate::policy_loss::PolicyLoss<'_, $crate::gate::Sapo>, "policy_loss/mod.rs", "sequence",
                "SAPO soft gate: loss, dL/dlogp and metrics, fused",
                [0 policy_loss_sapo, 1 policy_loss_sapo_any, 2 policy_loss_sapo_kl, 3 policy_loss_sapo_loss,
                 4 policy_loss_sapo_kl_loss, 5 policy_loss_sapo_metrics, 6 policy_loss_sapo_kl_metrics];
            policy_loss_cispo: $crate::policy_loss::PolicyLoss<'_, $crate::gate::Cispo>, "policy_loss/mod.rs", "sequence",
                "CISPO: clipped importance weight, never differentiated; loss, dL/dlogp and metrics, fused",
                [0 policy_loss_cispo, 1 policy_loss_cispo_any, 2 policy_loss_cispo_kl, 3 policy_loss_cispo_loss, 4 policy_loss_cispo_kl_loss, 5 policy_loss_cispo_metrics, 6 policy_loss_cispo_kl_metrics];
            policy_loss_reinforce: $crate::policy_loss::PolicyLoss<'_, $crate::gate::Reinforce>, "policy_loss/mod.rs", "sequence",
                "REINFORCE without importance weight (GPG): loss, dL/dlogp and metrics, fused",
                [0 policy_loss_reinforce, 1 policy_loss_reinforce_any, 2 policy_loss_reinforce_kl, 3 policy_loss_reinforce_loss, 4 policy_loss_reinforce_kl_loss, 5 policy_loss_reinforce_metrics, 6 policy_loss_reinforce_kl_metrics];
            policy_loss_dppo_tv: $crate::policy_loss::PolicyLoss<'_, $crate::gate::DppoTv>, "policy_loss/mod.rs", "sequence",
                "DPPO, trust region by total variation: loss, dL/dlogp and metrics, fused",
                [0 policy_loss_dppo_tv, 1 policy_loss_dppo_tv_any, 2 policy_loss_dppo_tv_kl, 3 policy_loss_dppo_tv_loss, 4 policy_loss_dppo_tv_kl_loss, 5 policy_loss_dppo_tv_metrics, 6 policy_loss_dppo_tv_kl_metrics];
            policy_loss_dppo_kl: $crate::policy_loss::PolicyLoss<'_, $crate::gate::DppoKl>, "policy_loss/mod.rs", "sequence",
                "DPPO, trust region by binary KL divergence: loss, dL/dlogp and metrics, fused",
                [0 policy_loss_dppo_kl, 1 policy_loss_dppo_kl_any, 2 policy_loss_dppo_kl_kl, 3 policy_loss_dppo_kl_loss, 4 policy_loss_dppo_kl_kl_loss, 5 policy_loss_dppo_kl_metrics, 6 policy_loss_dppo_kl_kl_metrics];
            // --- KL, entropy, values
            kl: $crate::kl::KlDivergence<'_>, "kl.rs", "sequence",
                "k1, k2, k3 and abs estimators of KL(policy || reference) and their gradients",
                [0 kl_k1, 1 kl_abs, 2 kl_k2, 3 kl_k3];
            // --- aggregation and moments
            aggregate: $crate::aggregate::Aggregate<'_>, "aggregate/rows.rs", "sequence",
                "masked sum and token count of each sequence", [0 aggregate];
            row_scan: $crate::aggregate::RowScan<'_>, "aggregate/scan.rs", "sequence",
                "masked inclusive prefix or suffix sums inside each sequence", [0 row_scan];
            fold_rows: $crate::aggregate::FoldRows<'_>, "aggregate/fold.rs", "statistic",
                "per-row partial sums folded into whole-batch sums, by row index", [0 fold_rows];
            row_moments: $crate::aggregate::RowMoments<'_>, "aggregate/moments.rs", "row",
                "count, mean, centred squares, extremes and non-zeros of each row", [0 row_moments];
            fold_moments: $crate::aggregate::FoldMoments<'_>, "aggregate/moments.rs", "batch",
                "moments of rows merged into those of the batch, by row index", [0 fold_moments];
            // --- whitening
            whiten: $crate::advantage::Whiten<'_>, "advantage/whiten.rs", "row",
                "values centred and scaled by the moments of a batch", [0 whiten];
            // --- advantages over time
            discounted_return: $crate::advantage::DiscountedReturn<'_>, "advantage/discounted_return.rs", "sequence",
                "discounted sum of the rewards from each token on", [0 discounted_return];
            // --- more of outcome rewards
            pass_at_k: $crate::advantage::PassAtK<'_>, "advantage/pass_at_k.rs", "group",
                "analytic pass@k advantage of each sequence, and pass@k of its group", [0 pass_at_k];
            combine: $crate::advantage::Combine<'_>, "advantage/combine.rs", "group",
                "weighted sum of several rewards or advantages of each sequence", [0 combine];
            // --- checks
            check_offsets: $crate::check::CheckOffsets<'_>, "check.rs", "4096 offsets",
                "first offset that is out of order, for offsets that only a device can see", [0 check_offsets];
            check_values: $crate::check::CheckValues<'_>, "check.rs", "4096 values",
                "first live value outside its domain, for arrays that only a device can see", [0 check_values];
            // --- prefix trees
            tree_sort: $crate::tree::TreeSort<'_>, "tree/tree_sort.rs", "merge",
                "two sorted runs of responses merged, with the prefix that neighbours share", [0 tree_sort];
            tree_nodes: $crate::tree::TreeNodes<'_>, "tree/tree_nodes.rs", "group",
                "branching nodes of a group's prefix tree: value, parent, number of responses", [0 tree_nodes];
            tree_advantage: $crate::tree::TreeAdvantage<'_>, "tree/tree_advantage.rs", "sequence",
                "advantage of each token: the response's, corrected where responses part (TEMPO)", [0 tree_advantage];
        }
    };
}

macro_rules! list {
    ($($name:ident: $kernel:ty, $file:literal, $row:literal, $summary:literal, [$($number:literal $entry:ident),*];)*) => {
        /// The table as data.
        pub const OPS: &[OpInfo] = &[$(OpInfo {
            name: stringify!($name),
            file: $file,
            row: $row,
            summary: $summary,
            entries: &[$(stringify!($entry)),*],
        }),*];

        // Every op fits the entry points, and its variants are numbered in order.
        $(const _: () = {
            const fn fits<A: DisjointRows>() {
                assert!(A::POINTERS <= MAX_POINTERS && A::WORDS <= MAX_WORDS, "raise MAX_POINTERS or MAX_WORDS");
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
    /// The line of this name.
    pub fn named(name: &str) -> Option<&'static OpInfo> {
        OPS.iter().find(|op| op.name == name)
    }
}

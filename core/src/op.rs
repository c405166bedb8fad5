//! What an op is, and the one list of them.

use crate::team::Team;

/// An op: its launch arguments and what a team does with one row.
///
/// Row r reads its inputs freely and writes only elements that belong to row r; see [`DisjointRows`].
pub trait Kernel {
    /// The op's name in the table.
    const NAME: &'static str;

    /// Number of rows to run.
    fn rows(&self) -> usize;

    /// Elements of a row, to balance rows over threads. Any estimate is right; only speed depends on it.
    fn work(&self, row: usize) -> usize;

    /// What the team does with row `row`.
    fn row<T: Team>(&self, team: &T, row: usize);
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
}

/// Calls `$with!` with the table of ops: `name: Type, "file", "row", "summary";` lines.
///
/// Everything that must exist for every op is generated from here or checked against it (conformance's
/// coverage test): dispatch, benchmarks, oracle, property cases, docs.
#[macro_export]
macro_rules! for_each_op {
    ($with:ident) => {
        $with! {
            group_advantage: GroupAdvantage, "advantage/grpo.rs", "group",
                "GRPO / Dr.GRPO group-relative advantage of each sequence";
            token_ratio: TokenRatio, "ratio/token.rs", "sequence",
                "importance ratio exp(logp - logp_old) per token, with its statistics";
            policy_loss_ppo: PolicyLoss, "policy_loss/mod.rs", "sequence",
                "PPO clip (asymmetric, dual): loss, dL/dlogp and metrics, fused";
            policy_loss_sapo: PolicyLoss, "policy_loss/mod.rs", "sequence",
                "SAPO soft gate: loss, dL/dlogp and metrics, fused";
            kl: KlDivergence, "kl.rs", "sequence",
                "k1, k2, k3 and abs estimators of KL(policy || reference) and their gradients";
            aggregate: Aggregate, "aggregate/rows.rs", "sequence",
                "masked sum and token count of each sequence";
            row_scan: RowScan, "aggregate/scan.rs", "sequence",
                "masked inclusive prefix or suffix sums inside each sequence";
            fold_rows: FoldRows, "aggregate/fold.rs", "statistic",
                "per-row partial sums folded into whole-batch sums, by row index";
        }
    };
}

macro_rules! list {
    ($($name:ident: $kernel:ident, $file:literal, $row:literal, $summary:literal;)*) => {
        /// The table as data.
        pub const OPS: &[OpInfo] = &[$(OpInfo { name: stringify!($name), file: $file, row: $row, summary: $summary }),*];
    };
}
for_each_op!(list);

macro_rules! disjoint {
    ($($kernel:ty),* $(,)?) => {
        $(
            // SAFETY: a row of these ops writes its own span of [`Offsets`](crate::ragged::Offsets), which cannot overlap,
            // and its own index of per-row outputs. Conformance tests it (rows_are_disjoint).
            #[allow(unsafe_code)]
            unsafe impl DisjointRows for $kernel {}
        )*
    };
}
disjoint!(
    crate::advantage::GroupAdvantage<'_>,
    crate::ratio::TokenRatio<'_>,
    crate::kl::KlDivergence<'_>,
    crate::aggregate::Aggregate<'_>,
    crate::aggregate::RowScan<'_>,
    crate::aggregate::FoldRows<'_>,
);
// SAFETY: as above, for every gate.
#[allow(unsafe_code)]
unsafe impl<G: crate::gate::Gate> DisjointRows for crate::policy_loss::PolicyLoss<'_, G> {}

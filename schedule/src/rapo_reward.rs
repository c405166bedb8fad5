//! RAPO (Fathom 2509.24107; docs/maths/rewards.md): the scalar parts. R = 0.1 format + 0.9 answer is
//! [`Combine`](lockstep_core::advantage::Combine); pruning of solved prompts is
//! [`Criterion::SolveRate`](lockstep_core::reward::Criterion::SolveRate).

/// Counts of a trajectory's tool calls by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolUse {
    /// All tool calls.
    pub calls: u32,
    /// Searches that repeated an earlier one.
    pub redundant_searches: u32,
    /// Page queries that repeated an earlier one.
    pub redundant_queries: u32,
    /// Searches that did not repeat one.
    pub unique_searches: u32,
    /// Page queries that did not repeat one.
    pub unique_queries: u32,
}

impl ToolUse {
    /// Computes the steerable step-level reward:
    ///
    /// ```text
    /// ρ = (redundant searches + redundant queries)/calls, 0 without calls (ours)
    /// d = unique − redundant, of searches and of queries
    /// correct: 0.1 format + max(1 − ρ, 0.5)
    /// wrong:   0.1 format + 0.2 min(1, d_S/8) + 0.2 min(1, d_Q/16)
    /// ```
    ///
    /// As in the paper, a negative d has no lower bound.
    pub fn reward(self, correct: bool, format: f64) -> f64 {
        let redundant = f64::from(self.redundant_searches) + f64::from(self.redundant_queries);
        let rate = if self.calls == 0 { 0.0 } else { redundant / f64::from(self.calls) };
        let left = if 1.0 - rate > 0.5 { 1.0 - rate } else { 0.5 };
        let share = |unique: u32, redundant: u32, full: f64| {
            let part = (f64::from(unique) - f64::from(redundant)) / full;
            if part < 1.0 { part } else { 1.0 }
        };
        let explored = 0.2 * share(self.unique_searches, self.redundant_searches, 8.0)
            + 0.2 * share(self.unique_queries, self.redundant_queries, 16.0);
        0.1 * format + if correct { left } else { explored }
    }
}

/// Computes n_groups / n_good, the factor applied to all advantages of a batch in which only `good` of
/// `groups` groups have a nonzero deviation; at most `cap` (∞ for the paper, which has no cap; ours is 4).
/// 0 without a good group: skip the step.
pub fn group_factor(groups: u32, good: u32, cap: f64) -> f64 {
    let factor = if good == 0 { 0.0 } else { f64::from(groups) / f64::from(good) };
    if factor > cap { cap } else { factor }
}

//! Whole-batch sums of per-row partial sums, added in row order so that they do not depend on the launch
//! geometry.

use crate::op::Kernel;
use crate::ragged::{In, Out, Span};
use crate::team::Team;

crate::kernel! {
    /// The op `fold_rows`: `totals[k] = Σ_s partials[k][s]`, over s in the fixed tree of
    /// [`team::fold`](crate::team::fold).
    ///
    /// To combine the totals of several ranks, add them in rank order.
    pub struct FoldRows<'a> {
        /// Partial sums, `[K][S]`.
        pub partials: In<'a, f64> [rows],
        /// Number of partial sums per statistic, S.
        pub rows: usize,
        /// Totals, `[K]`.
        pub totals: Out<'a, f64>,
    }
    unsafe "fold_rows", rows |k| k.totals.len(), work |k, _| k.rows,
        let rows = |k| k.rows.saturating_mul(k.totals.len());
}

impl Kernel for FoldRows<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = Span::new(row * self.rows, (row + 1) * self.rows);
        let [total] = team.sum(span, |i| [self.partials.at(i)]);
        if team.leads() {
            self.totals.put(row, total);
        }
    }
}

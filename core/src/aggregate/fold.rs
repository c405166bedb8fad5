//! Whole-batch sums of per-row partial sums, added in row order so that they do not depend on the launch
//! geometry.

use crate::Error;
use crate::op::Kernel;
use crate::ragged::{In, Out, Span};
use crate::team::Team;

/// The op `fold_rows`: `totals[k] = Σ_s partials[k][s]`, over s in the fixed tree of
/// [`team::fold`](crate::team::fold).
///
/// To combine the totals of several ranks, add them in rank order.
#[derive(Debug)]
pub struct FoldRows<'a> {
    /// Partial sums, `[K][S]`.
    pub partials: In<'a, f64>,
    /// Number of partial sums per statistic, S.
    pub rows: usize,
    /// Totals, `[K]`.
    pub totals: Out<'a, f64>,
}

crate::kernel_args!(unsafe FoldRows<'_> { partials, rows, totals });

impl Kernel for FoldRows<'_> {
    const NAME: &'static str = "fold_rows";

    fn check_bounds(&self) -> Result<(), Error> {
        crate::lengths!(self; self.rows.saturating_mul(self.totals.len()) => partials);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.totals.len()
    }

    fn work(&self, _row: usize) -> usize {
        self.rows
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = Span::new(row * self.rows, (row + 1) * self.rows);
        let [total] = team.sum(span, |i| [self.partials.at(i)]);
        if team.leads() {
            self.totals.put(row, total);
        }
    }
}

//! Whole-batch sums from per-row partial sums, by row index, so that they do not change with the launch
//! geometry.

use crate::Error;
use crate::op::Kernel;
use crate::ragged::{In, Out, Span};
use crate::team::Team;

/// The op `fold_rows`: `totals[k] = Σ_s partials[k][s]`, in the fixed shape of
/// [`team::fold`](crate::team::fold) over s.
///
/// Totals of several ranks are combined by adding them in rank order.
#[derive(Debug)]
pub struct FoldRows<'a> {
    /// Partial sums, `[K][S]`.
    pub partials: In<'a, f64>,
    /// Number of partial sums of one statistic, S.
    pub rows: usize,
    /// `[K]`.
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

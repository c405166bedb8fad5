//! Masked running sums inside each sequence: log prefix ratios, undiscounted returns.

use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::{AddF64, Direction, Team};

crate::kernel! {
    /// The op `row_scan`: y_t = Σ_{j ≤ t} m_j x_j (prefix) or Σ_{j ≥ t} m_j x_j (suffix), inclusive.
    ///
    /// A masked token adds nothing and receives the running sum of its neighbours (as returns do over tool
    /// output). Sums are accumulated in binary64 in the order of [`team::scan`](crate::team::scan) and
    /// rounded to `f32` once.
    pub struct RowScan<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Per-token values, `[N]`.
        pub values: In<'a, f32> [tokens],
        /// Prefix or suffix sums.
        pub direction: Direction,
        /// Running sums, `[N]`.
        pub scanned: Out<'a, f32> [tokens],
    }
    unsafe "row_scan", over cu_seqlens (tokens, _);
}

impl Kernel for RowScan<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        team.scan(
            AddF64,
            self.cu_seqlens.span(row),
            self.loss_mask,
            self.direction,
            |i| f64::from(self.values.at(i)),
            |i, y| self.scanned.put(i, crate::num::canonical(y as f32)),
        );
    }
}

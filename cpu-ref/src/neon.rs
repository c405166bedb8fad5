//! The AArch64 level: NEON and FMA are in the baseline, so no target feature needs naming.
#![cfg(target_arch = "aarch64")]

use crate::level::Picks;
use crate::wide::Wide;
use lockstep_core::num::Hard;
use lockstep_core::op::Kernel;
use std::ops::Range;

struct Neon;

impl Picks for Neon {
    #[inline(never)]
    fn row_as<const V: usize, K: Kernel>(kernel: &K, row: usize) {
        kernel.row_as::<V, _>(&Wide::<Hard, Neon>::new(), row);
    }
}

/// Runs rows with NEON.
#[inline]
pub(crate) fn rows_neon<K: Kernel>(kernel: &K, rows: Range<usize>) {
    kernel.block(&Wide::<Hard, Neon>::new(), rows);
}

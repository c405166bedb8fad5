//! The AArch64 level: NEON and FMA are in the baseline, so no target feature needs naming.
#![cfg(target_arch = "aarch64")]

use crate::level::{Picks, Piece};
use crate::wide::Wide;
use lockstep_core::num::Hard;
use lockstep_core::op::Kernel;
use std::ops::Range;

struct Neon;

impl Picks for Neon {
    #[inline(never)]
    fn apart<P: Piece>(piece: P) -> P::Out {
        piece.run()
    }
}

/// Runs rows with NEON.
#[inline]
pub(crate) fn rows_neon<K: Kernel>(kernel: &K, rows: Range<usize>) {
    kernel.block(&Wide::<Hard, Neon>::new(), rows);
}

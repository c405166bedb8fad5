//! The x86-64 levels: the wide team, compiled under two sets of target features.
#![cfg(target_arch = "x86_64")]

use crate::level::{Picks, Piece};
use crate::nth::{Band, scan};
use crate::pick::{Aligned, Candidates, Elements, FEW, Keys, Ranked};
use crate::stream::drain;
use crate::wide::Wide;
use crate::{ranked, ranked_rows, transpose};
use lockstep_core::num::Hard;
use lockstep_core::op::Kernel;
use lockstep_core::team::{Near, PICKS, PickedRows, ROWS};
use std::cell::Cell;
use std::ops::Range;

struct Avx2;
struct Avx512;

impl Picks for Avx2 {
    // Here, for rustc ignores `inline(never)` on a function with target features.
    #[inline(never)]
    #[allow(unsafe_code)]
    fn apart<P: Piece>(piece: P) -> P::Out {
        // SAFETY: only teams of this level call it, and `Cpu` makes them only where the machine has AVX2.
        unsafe { apart_avx2(piece) }
    }
}

impl Picks for Avx512 {
    // Here, for rustc ignores `inline(never)` on a function with target features.
    #[inline(never)]
    #[allow(unsafe_code)]
    fn apart<P: Piece>(piece: P) -> P::Out {
        // SAFETY: only teams of this level call it, and `Cpu` makes them only where the machine has AVX-512.
        unsafe { apart_avx512(piece) }
    }

    const ROWS: bool = true;

    #[inline(always)]
    #[allow(unsafe_code)]
    fn picks<const N: usize>(keys: &Keys<N>, count: usize, near: Option<Near>) -> Option<Ranked> {
        // SAFETY: as above.
        unsafe { ranked::picks(keys, count, near) }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn falls(orders: &Aligned<[i32; FEW]>, at: &Elements, found: u32) -> bool {
        // SAFETY: as above.
        unsafe { ranked::falls(orders, at, found) }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn rows<const E: usize, const ALARMS: bool, const NEAR: bool>(
        values: &[f32],
        near: Option<Near>,
        chosen: &[Cell<u8>],
        picked: &mut PickedRows,
        candidates: Option<&mut Candidates>,
    ) -> u32 {
        // SAFETY: as above.
        unsafe { ranked_rows::rows::<E, ALARMS, NEAR>(values, near, chosen, picked, candidates) }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn take_rows(from: &[f32; ROWS * PICKS]) -> [f32; ROWS * PICKS] {
        // SAFETY: as above.
        unsafe { transpose::take_rows(from) }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn pairs_of_rows(keys: &[f32]) -> [f32; ROWS * PICKS] {
        // SAFETY: as above.
        unsafe { transpose::pairs_of_rows(keys) }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn put_rows(slots: &[f32; ROWS * PICKS], to: &[Cell<f32>]) {
        // SAFETY: as above.
        unsafe { transpose::put_rows(slots, to) }
    }
}

/// Runs rows under AVX2 and FMA, then drains the streaming stores.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn rows_avx2<K: Kernel>(kernel: &K, rows: Range<usize>) {
    kernel.block(&Wide::<Hard, Avx2>::new(), rows);
    drain();
}

/// Runs rows under AVX-512, then drains the streaming stores.
#[inline]
#[target_feature(enable = "avx2,fma,popcnt,bmi1,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn rows_avx512<K: Kernel>(kernel: &K, rows: Range<usize>) {
    kernel.block(&Wide::<Hard, Avx512>::new(), rows);
    drain();
}

#[target_feature(enable = "avx2,fma")]
fn apart_avx2<P: Piece>(piece: P) -> P::Out {
    piece.run()
}

#[target_feature(enable = "avx2,fma,popcnt,bmi1,avx512f,avx512bw,avx512dq,avx512vl")]
fn apart_avx512<P: Piece>(piece: P) -> P::Out {
    piece.run()
}

/// Scans keys for a band under AVX2.
#[target_feature(enable = "avx2")]
pub(crate) fn scan_avx2(keys: &[u32], first: usize, low: u32, high: u32) -> Band {
    scan(keys, first, low, high)
}

/// Scans keys for a band under AVX-512.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn scan_avx512(keys: &[u32], first: usize, low: u32, high: u32) -> Band {
    scan(keys, first, low, high)
}

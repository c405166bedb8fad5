//! The instruction sets that kernels can be run with.

use crate::pick::{Aligned, Candidates, Elements, FEW, Keys, Ranked};
use lockstep_core::team::{Near, PICKS, PickedRows, ROWS};
use std::cell::Cell;
use std::fmt;

/// A SIMD level. It changes speed, never bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimdLevel {
    /// The reference: no SIMD, no hardware fused multiply-add. Available on every machine.
    Plain,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL, POPCNT and BMI1 (which every such machine has).
    Avx512,
    /// AArch64 (NEON and FMA are part of its baseline).
    Neon,
}

/// A level that this machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The level asked for.
    pub level: SimdLevel,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine does not support {}: it supports ", self.level)?;
        for (i, level) in SimdLevel::available().into_iter().enumerate() {
            write!(f, "{}{level}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Unavailable {}

impl SimdLevel {
    /// All levels, slowest first.
    pub const ALL: [SimdLevel; 4] = [SimdLevel::Plain, SimdLevel::Avx2, SimdLevel::Avx512, SimdLevel::Neon];

    /// Returns whether this machine has the level. The answer never changes within a process.
    pub fn is_available(self) -> bool {
        match self {
            SimdLevel::Plain => true,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            // Fuzz targets leave it out where the CPU lacks it: it takes minutes to compile for them.
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => {
                !cfg!(lockstep_without_avx512)
                    && SimdLevel::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("bmi1")
            }
            #[cfg(not(target_arch = "x86_64"))]
            SimdLevel::Avx2 | SimdLevel::Avx512 => false,
            SimdLevel::Neon => cfg!(target_arch = "aarch64"),
        }
    }

    /// Returns the levels of this machine, slowest first.
    pub fn available() -> Vec<SimdLevel> {
        SimdLevel::ALL.into_iter().filter(|level| level.is_available()).collect()
    }

    /// Returns the fastest level of this machine.
    pub fn best() -> SimdLevel {
        SimdLevel::available().pop().unwrap_or(SimdLevel::Plain)
    }

    /// Returns the level's name: `plain`, `avx2`, `avx512` or `neon`.
    pub fn name(self) -> &'static str {
        match self {
            SimdLevel::Plain => "plain",
            SimdLevel::Avx2 => "avx2",
            SimdLevel::Avx512 => "avx512",
            SimdLevel::Neon => "neon",
        }
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A piece of a row that is compiled once for a level, and not again into every variant of every op that has
/// it. A trait rather than a closure: LLVM inlines none of several calls of a closure, which then loses the
/// level's target features. `run` must be inline.
pub(crate) trait Piece {
    type Out;
    fn run(self) -> Self::Out;
}

/// Operations that a level can override with hand-written code.
pub(crate) trait Picks {
    /// Runs a piece of a row in a function of its own.
    fn apart<P: Piece>(piece: P) -> P::Out;

    /// Returns the elements with the `count` largest keys, largest first, ties by the lower element. With
    /// `near`, they are followed by every other element whose key is within `near.below` of the last pick's,
    /// and possibly more. `None` means that the caller must pick one by one.
    #[inline(always)]
    fn picks<const N: usize>(_keys: &Keys<N>, _count: usize, _near: Option<Near>) -> Option<Ranked> {
        None
    }

    /// Returns whether the first `found` elements that [`picks`](Picks::picks) returned are also in
    /// descending order of `orders`.
    #[inline(always)]
    fn falls(_orders: &Aligned<[i32; FEW]>, _at: &Elements, _found: u32) -> bool {
        false
    }

    /// Whether the level picks for sixteen rows at a time.
    const ROWS: bool = false;

    /// Picks for the 16 rows of `E` values at the start of `values`, and returns a bit for each row left to
    /// do. With `NEAR` it also returns the candidates' values, not yet converted to keys. See
    /// [`largest_of_rows`](lockstep_core::team::Team::largest_of_rows).
    #[inline(always)]
    fn rows<const E: usize, const ALARMS: bool, const NEAR: bool>(
        _values: &[f32],
        _near: Option<Near>,
        _chosen: &[Cell<u8>],
        _picked: &mut PickedRows,
        _candidates: Option<&mut Candidates>,
    ) -> u32 {
        0xffff
    }

    /// See [`take_rows`](lockstep_core::team::Team::take_rows).
    #[inline(always)]
    fn take_rows(from: &[f32; ROWS * PICKS]) -> [f32; ROWS * PICKS] {
        lockstep_core::team::take_rows(from)
    }

    /// See [`pairs_of_rows`](lockstep_core::team::Team::pairs_of_rows). Keys must be finite; meaningful only
    /// where `ROWS`.
    #[inline(always)]
    fn pairs_of_rows(_keys: &[f32]) -> [f32; ROWS * PICKS] {
        [0.0; ROWS * PICKS]
    }

    /// See [`put_rows`](lockstep_core::team::Team::put_rows).
    #[inline(always)]
    fn put_rows(slots: &[f32; ROWS * PICKS], to: &[Cell<f32>]) {
        lockstep_core::team::put_rows(slots, to);
    }
}

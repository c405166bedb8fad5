//! Staleness of partial rollouts, whose sequences have tokens from several versions of the policy.
//!
//! **Formula** (APRIL 2509.18521, slime; docs/maths/correction.md): a sequence that was interrupted by weight
//! updates and then continued has tokens of several versions. With v the version that sampled a token and v_θ
//! the current one, the token's staleness is v_θ − v.
//!
//! ```text
//! start version   the least v of the live tokens (a buffer of partial rollouts is sorted by it)
//! off-policy      live tokens with v < v_θ
//! kept            live tokens with v_θ − v ≤ max_staleness (0: slime's mask of off-policy tokens)
//! ```
//!
//! **Shapes**: `versions`, `kept_mask` `[N]`, `row_start`, `row_off_policy`, `row_kept` `[S]`.
//!
//! **Special cases**: a token without a version (−1) is on-policy, is kept, and does not affect the start
//! version. The start version is −1 if no live token has a version. Versions are below 2²⁴, up to which `f32`
//! is exact.

use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::require;
use crate::team::Team;

/// Exclusive upper bound of versions, 2²⁴.
pub const VERSIONS: i32 = 1 << 24;

crate::kernel! {
    /// The op `staleness`: a mask entry per token, and version statistics per sequence.
    pub struct Staleness<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Version that sampled each token, `[N]`; −1 = none.
        pub versions: In<'a, i32> [tokens],
        /// Current version.
        pub current: i32,
        /// Largest staleness of a kept token, in versions; at least 0.
        pub max_staleness: i32,
        /// 1 if the token is live and not too old, `[N]`.
        pub kept_mask: Out<'a, u8> [tokens],
        /// Start version, `[S]`; −1 = none.
        pub row_start: Out<'a, i32> [sequences],
        /// Number of off-policy tokens, `[S]`.
        pub row_off_policy: Out<'a, u32> [sequences],
        /// Number of kept tokens, `[S]`.
        pub row_kept: Out<'a, u32> [sequences],
    }
    unsafe "staleness", over cu_seqlens (tokens, sequences),
        require |k| {
            let (current, max, version) = (k.current, k.max_staleness, "a version: 0 to 2^24 - 1");
            require::scalar("current", (0..VERSIONS).contains(&current), version, current)?;
            require::scalar("max_staleness", max >= 0, "at least 0", max)
        };
}

impl Kernel for Staleness<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask, out) = (self.cu_seqlens.span(row), self.loss_mask, *self.kept_mask);
        let (versions, current) = (self.versions, self.current);
        // In range after `check`. Not a saturating subtraction, for which only one vendor has an instruction.
        let oldest = current.wrapping_sub(self.max_staleness);
        let keeps = move |i: usize| {
            let v = versions.at(i);
            mask.at(i) & ((v < 0) | (v >= oldest))
        };
        let count = |condition: bool| if condition { 1.0 } else { 0.0 };
        let [off, kept] = team.sum(span, move |i| {
            let v = versions.at(i);
            [count(mask.at(i) & (v >= 0) & (v < current)), count(keeps(i))]
        });
        let start = team.min(span, move |i| {
            let v = versions.at(i);
            if mask.at(i) & (v >= 0) { v as f32 } else { f32::INFINITY }
        });
        team.for_each(span, move |i| out.put(i, u8::from(keeps(i))));
        if team.leads() {
            self.row_start.put(row, if start < VERSIONS as f32 { start as i32 } else { -1 });
            self.row_off_policy.put(row, off as u32);
            self.row_kept.put(row, kept as u32);
        }
    }
}

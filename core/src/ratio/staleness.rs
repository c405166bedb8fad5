//! Versions of the policy inside one sequence: what partial rollouts leave behind.
//!
//! **Formula** (APRIL 2509.18521, slime; docs/maths/correction.md): a sequence that was interrupted by weight updates and continued has tokens
//! of several versions. With v the version that sampled a token and v_θ the current one, staleness is v_θ − v.
//!
//! ```text
//! start version   the least v of the live tokens (a buffer of partial rollouts is sorted by it)
//! off-policy      live tokens with v < v_θ
//! kept            live tokens with v_θ − v ≤ max_staleness (0: slime's mask of off-policy tokens)
//! ```
//!
//! **Shapes**: `versions`, `kept_mask` `[N]`, `row_start`, `row_off_policy`, `row_kept` `[S]`.
//!
//! **Special cases**: a token without a version (−1) is on-policy, kept, and has no part in the start version, which is −1 for a sequence
//! without any. Versions are below 2²⁴, where `f32` counts exactly.

use crate::Error;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::Team;

/// Versions are below this.
pub const VERSIONS: i32 = 1 << 24;

/// The op `staleness`.
#[derive(Debug)]
pub struct Staleness<'a> {
    /// Offsets of sequences, `[S+1]`.
    pub cu_seqlens: Offsets<'a>,
    /// Which tokens take part, `[N]`.
    pub loss_mask: Mask<'a>,
    /// Version that sampled each token, `[N]`; −1 = none.
    pub versions: In<'a, i32>,
    /// Current version.
    pub current: i32,
    /// Older tokens leave the mask.
    pub max_staleness: i32,
    /// 1 where a token is live and not too old, `[N]`.
    pub kept_mask: Out<'a, u8>,
    /// Start version, `[S]`.
    pub row_start: Out<'a, i32>,
    /// Off-policy tokens, `[S]`.
    pub row_off_policy: Out<'a, u32>,
    /// Tokens that are kept, `[S]`.
    pub row_kept: Out<'a, u32>,
}

crate::kernel_args!(unsafe Staleness<'_> { cu_seqlens, loss_mask, versions, current, max_staleness, kept_mask, row_start, row_off_policy, row_kept });

impl Staleness<'_> {
    /// Checks that the scalar parameters are in their domains.
    ///
    /// Errors: [`Error::Value`] with the name of the first parameter that is not.
    pub fn check(&self) -> Result<(), Error> {
        let value = |argument, expected, got: i32| {
            Err(Error::Value { argument, index: None, expected, got: got.into() })
        };
        if !(0..VERSIONS).contains(&self.current) {
            return value("current", "a version: 0 to 2^24 - 1", self.current);
        }
        if self.max_staleness < 0 {
            return value("max_staleness", "at least 0", self.max_staleness);
        }
        Ok(())
    }
}

impl Kernel for Staleness<'_> {
    const NAME: &'static str = "staleness";

    fn check_bounds(&self) -> Result<(), Error> {
        let (tokens, sequences) = self.cu_seqlens.sizes();
        crate::lengths!(self; tokens => loss_mask, versions, kept_mask; sequences => row_start, row_off_policy, row_kept);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.cu_seqlens.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_seqlens.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask, out) = (self.cu_seqlens.span(row), self.loss_mask, *self.kept_mask);
        let (versions, current) = (self.versions, self.current);
        // In range after `check`; a saturating subtraction is an instruction that only one vendor has.
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

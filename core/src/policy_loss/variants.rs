//! Selection of the sweep for a row of a policy loss. There is one sweep per set of requested outputs and
//! options, so that a call does not pay for those it does not use. All compute the same function; only speed
//! depends on the choice.

use super::{PolicyLoss, sum, token};
use crate::gate::{Gate, OWN_BOUND};
use crate::kl::KlFormula;
use crate::op::Kernel;
use crate::ratio::{Guard, RatioGranularity};
use crate::team::Team;

/// [`narrow`](PolicyLoss::narrow) tokens, with losses that are summed and not written.
pub(super) const NARROW_LOSS: usize = 7;
/// The same with metrics. A CPU runs 5 instead, which is as fast there.
const NARROW_METRICS: usize = 8;
/// Not variants of the table, but extra ones for the CPU: for a KL term that is known not to be k3
/// (`LINEAR`), or known to be k3.
const LINEAR: usize = 9;
const LINEAR_LOSS: usize = 10;
const LINEAR_METRICS: usize = 11;
const NARROW_LINEAR_LOSS: usize = 12;
const K3: usize = 13;
const K3_LOSS: usize = 14;
const K3_METRICS: usize = 15;
const NARROW_K3_LOSS: usize = 16;
/// Further extra variants, for [`open`](PolicyLoss::open) tokens.
const OPEN: usize = 17;
const OPEN_LOSS: usize = 18;
const OPEN_LINEAR_LOSS: usize = 19;
/// A further one, for rows of [`uniform`](PolicyLoss::uniform) tokens.
const UNIFORM: usize = 20;

/// Index of the second policy's log-probability among a token's inputs.
pub(super) const SECOND: usize = 5;

impl<G: Gate> PolicyLoss<'_, G> {
    /// Whether the call is of the most common kind; see [`token::NARROW`].
    #[inline(always)]
    pub(super) fn narrow(&self) -> bool {
        let shared = !G::READS_OWN || self.guard == Guard::clamp(OWN_BOUND);
        self.plain() && self.level == RatioGranularity::Token && self.guard.is_narrow_clamp() && shared
    }

    /// The same without a guard, as in TRL, slime, AReaL and NeMo RL.
    #[inline(always)]
    fn open(&self) -> bool {
        self.plain() && self.level == RatioGranularity::Token && self.guard == Guard::NONE
    }

    /// Runs row `row` with the variant that the arguments need. Only on a CPU: a GPU has one entry point per
    /// variant, and the choices here that go beyond [`variant`](Kernel::variant) would take further entry
    /// points.
    #[inline(always)]
    pub(super) fn choose<T: Team>(&self, team: &T, row: usize) {
        if !T::FAST_VARIANTS {
            return match self.variant() {
                0 => team.row_as::<0, Self>(self, row),
                1 => team.row_as::<1, Self>(self, row),
                2 => team.row_as::<2, Self>(self, row),
                3 => team.row_as::<3, Self>(self, row),
                4 => team.row_as::<4, Self>(self, row),
                5 => team.row_as::<5, Self>(self, row),
                6 => team.row_as::<6, Self>(self, row),
                NARROW_LOSS => team.row_as::<3, Self>(self, row),
                _ => team.row_as::<5, Self>(self, row),
            };
        }
        let written = self.written();
        let k3 = self.kl.is_some_and(|term| term.kl.estimator == KlFormula::K3);
        match self.variant() {
            _ if self.uniform() => team.row_as::<UNIFORM, Self>(self, row),
            1 if self.open() => team.row_as::<OPEN, Self>(self, row),
            3 if self.open() && !written => team.row_as::<OPEN_LOSS, Self>(self, row),
            // Without losses as well: these are the fastest loops with a KL term.
            2 | 4 if self.open() && !written && !k3 => team.row_as::<OPEN_LINEAR_LOSS, Self>(self, row),
            NARROW_LOSS => team.row_as::<NARROW_LOSS, Self>(self, row),
            2 | 4 if self.narrow() && !written && k3 => team.row_as::<NARROW_K3_LOSS, Self>(self, row),
            2 | 4 if self.narrow() && !written => team.row_as::<NARROW_LINEAR_LOSS, Self>(self, row),
            0 => team.row_as::<0, Self>(self, row),
            1 => team.row_as::<1, Self>(self, row),
            2 if k3 => team.row_as::<K3, Self>(self, row),
            2 => team.row_as::<LINEAR, Self>(self, row),
            3 => team.row_as::<3, Self>(self, row),
            4 if k3 => team.row_as::<K3_LOSS, Self>(self, row),
            4 => team.row_as::<LINEAR_LOSS, Self>(self, row),
            5 | NARROW_METRICS => team.row_as::<5, Self>(self, row),
            _ if k3 => team.row_as::<K3_METRICS, Self>(self, row),
            _ => team.row_as::<LINEAR_METRICS, Self>(self, row),
        }
    }

    /// Runs row `row` with variant V and J inputs per token.
    #[inline(always)]
    pub(super) fn with_streams<const J: usize, const V: usize, T: Team>(&self, team: &T, row: usize) {
        // One sweep per need, so that a call for coefficients only computes nothing else. A coefficient has
        // the same bits in all of them.
        const SUMS: usize = sum::SUMS;
        const { assert!(V <= UNIFORM) };
        match V {
            0 => self.sweep::<T, J, 1, 0, 0, { token::NONE }, { token::NARROW }, { token::COEF }>(team, row),
            1 => self.sweep::<T, J, 1, 0, 0, { token::NONE }, { token::GENERAL }, { token::COEF }>(team, row),
            2 => self.sweep::<T, J, 1, 0, 0, { token::ANY }, { token::GENERAL }, { token::COEF }>(team, row),
            3 => self.sweep::<T, J, 2, 1, 0, { token::NONE }, { token::GENERAL }, { token::LOSS }>(team, row),
            4 => self.sweep::<T, J, 2, 1, 0, { token::ANY }, { token::GENERAL }, { token::LOSS }>(team, row),
            5 => self.sweep::<T, J, 2, SUMS, 2, { token::NONE }, { token::GENERAL }, { token::METRICS }>(
                team, row,
            ),
            6 => self
                .sweep::<T, J, 2, SUMS, 2, { token::ANY }, { token::GENERAL }, { token::METRICS }>(team, row),
            NARROW_LOSS => {
                self.sweep::<T, J, 1, 1, 0, { token::NONE }, { token::NARROW }, { token::LOSS }>(team, row)
            }
            NARROW_METRICS => self
                .sweep::<T, J, 1, SUMS, 2, { token::NONE }, { token::NARROW }, { token::METRICS }>(team, row),
            LINEAR => {
                self.sweep::<T, J, 1, 0, 0, { token::LINEAR }, { token::GENERAL }, { token::COEF }>(team, row)
            }
            LINEAR_LOSS => {
                self.sweep::<T, J, 2, 1, 0, { token::LINEAR }, { token::GENERAL }, { token::LOSS }>(team, row)
            }
            LINEAR_METRICS => self
                .sweep::<T, J, 2, SUMS, 2, { token::LINEAR }, { token::GENERAL }, { token::METRICS }>(
                    team, row,
                ),
            NARROW_LINEAR_LOSS => {
                self.sweep::<T, J, 1, 1, 0, { token::LINEAR }, { token::NARROW }, { token::LOSS }>(team, row)
            }
            K3 => self.sweep::<T, J, 1, 0, 0, { token::K3 }, { token::GENERAL }, { token::COEF }>(team, row),
            K3_LOSS => {
                self.sweep::<T, J, 2, 1, 0, { token::K3 }, { token::GENERAL }, { token::LOSS }>(team, row)
            }
            K3_METRICS => self
                .sweep::<T, J, 2, SUMS, 2, { token::K3 }, { token::GENERAL }, { token::METRICS }>(team, row),
            NARROW_K3_LOSS => {
                self.sweep::<T, J, 1, 1, 0, { token::K3 }, { token::NARROW }, { token::LOSS }>(team, row)
            }
            OPEN => self.sweep::<T, J, 1, 0, 0, { token::NONE }, { token::OPEN }, { token::COEF }>(team, row),
            OPEN_LOSS => {
                self.sweep::<T, J, 1, 1, 0, { token::NONE }, { token::OPEN }, { token::LOSS }>(team, row)
            }
            OPEN_LINEAR_LOSS => {
                self.sweep::<T, J, 1, 1, 0, { token::LINEAR }, { token::OPEN }, { token::LOSS }>(team, row)
            }
            _ => self.uniform_row(team, row),
        }
    }
}

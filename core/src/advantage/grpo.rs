//! Group-relative advantage: GRPO and, without the division, Dr.GRPO.
//!
//! **Formula** (GRPO 2402.03300; Dr.GRPO 2503.20783; maths.md §1.5, §6.1), over the counted members of a group:
//!
//! ```text
//! A_i = (R_i − mean) / (std + eps)     norm_by_std
//! A_i =  R_i − mean                    otherwise
//! std = sqrt(Σ (R_i − mean)² / (n − ddof)),  eps outside the root
//! ```
//!
//! **Shapes**: `rewards`, `advantage` `[S]`; `cu_groups` `[G+1]`; `mean`, `std`, `counted`, `status` `[G]`.
//!
//! **Special cases**: a NaN reward, or a sequence with `valid` = 0, is *excluded*: it moves no statistic and its
//! advantage is 0. All counted rewards equal: std and every advantage are exactly 0 (decided on the inputs, max =
//! min, never on a computed std). One counted member: [`Singleton`]. None: everything is 0.
//!
//! **Accuracy**: mean and the two-pass variance are binary64; the advantage rounds to `f32` once.
//!
//! **Variants** (maths.md §10): ddof 1 (verl, TRL) or 0; eps 1e-6 (verl), 1e-4 (TRL), 1e-8, 1e-9 (OpenRLHF); a group
//! of one: 0 (TRL) or the raw reward (verl's list version: mean := 0, std := 1).

use crate::Error;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::Team;

/// What a group with one counted member gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Singleton {
    /// Advantage 0: there is nothing to compare with.
    Zero,
    /// mean := 0, std := 1, so that A = R/(1 + eps), or R without the division (verl).
    RawReward,
}

crate::launch_args!(
    enum Singleton {
        Zero,
        RawReward,
    }
);

/// Bits of `status`.
pub mod status {
    /// One counted member.
    pub const SINGLETON: u32 = 1;
    /// All counted rewards are equal.
    pub const CONSTANT: u32 = 2;
    /// No counted member.
    pub const NONE_COUNTED: u32 = 4;
    /// A reward was excluded because it is NaN.
    pub const NAN_EXCLUDED: u32 = 8;
    /// A counted reward is infinite: the results of this group are not numbers.
    pub const INFINITE: u32 = 16;
}

/// The op `group_advantage`.
#[derive(Clone, Copy, Debug)]
pub struct GroupAdvantage<'a> {
    /// Offsets of groups, in sequences, `[G+1]`.
    pub cu_groups: Offsets<'a>,
    /// Outcome reward per sequence, `[S]`.
    pub rewards: In<'a, f32>,
    /// Which sequences are counted, `[S]`.
    pub valid: Mask<'a>,
    /// Divide by the standard deviation.
    pub norm_by_std: bool,
    /// 1 = unbiased, 0 = population.
    pub ddof: u32,
    /// Added to the standard deviation, outside the root.
    pub eps: f64,
    /// Policy for a group of one.
    pub singleton: Singleton,
    /// `[S]`.
    pub advantage: Out<'a, f32>,
    /// `[G]`.
    pub mean: Out<'a, f32>,
    /// `[G]`.
    pub std: Out<'a, f32>,
    /// Counted members, `[G]`.
    pub counted: Out<'a, u32>,
    /// [`status`] bits, `[G]`.
    pub status: Out<'a, u32>,
}

crate::kernel_args!(GroupAdvantage<'_> { cu_groups, rewards, valid, norm_by_std, ddof, eps, singleton, advantage, mean, std, counted, status });

impl GroupAdvantage<'_> {
    /// Whether the scalar parameters are in their domain.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |argument, expected, got| Err(Error::Value { argument, index: None, expected, got });
        if self.ddof > 1 {
            return wrong("ddof", "0 or 1", f64::from(self.ddof));
        }
        if !(self.eps >= 0.0 && self.eps.is_finite()) {
            return wrong("eps", "a finite number of at least 0", self.eps);
        }
        Ok(())
    }
}

impl Kernel for GroupAdvantage<'_> {
    const NAME: &'static str = "group_advantage";

    fn rows(&self) -> usize {
        self.cu_groups.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_groups.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        let counted = |i| self.valid.at(i) && !self.rewards.at(i).is_nan();
        let reward = |i| f64::from(self.rewards.at(i));

        let [n, total, nan] = team.sum(span, |i| {
            let is_nan = self.valid.at(i) && self.rewards.at(i).is_nan();
            [
                f64::from(u8::from(counted(i))),
                if counted(i) { reward(i) } else { 0.0 },
                f64::from(u8::from(is_nan)),
            ]
        });
        let high = team.max(span, |i| if counted(i) { self.rewards.at(i) } else { f32::NEG_INFINITY });
        let low = team.min(span, |i| if counted(i) { self.rewards.at(i) } else { f32::INFINITY });

        let (none, singleton) = (n == 0.0, n == 1.0);
        let constant = high == low && !none;
        let raw = singleton && self.singleton == Singleton::RawReward;
        let mean = if none || raw {
            0.0
        } else if constant {
            f64::from(low)
        } else {
            total / n
        };
        let [squares] = team.sum(span, |i| {
            let centred = reward(i) - mean;
            [if counted(i) { centred * centred } else { 0.0 }]
        });
        let freedom = n - f64::from(self.ddof);
        let std = if raw {
            1.0
        } else if constant || none {
            0.0
        } else {
            <T::Arith as Arith>::sqrt64(squares / freedom)
        };

        let zero = none || (constant && !raw);
        team.for_each(span, |i| {
            let centred = reward(i) - mean;
            let advantage = if self.norm_by_std { centred / (std + self.eps) } else { centred };
            let advantage = if zero || !counted(i) { 0.0 } else { num::canonical(advantage as f32) };
            self.advantage.put(i, advantage);
        });
        if team.leads() {
            let infinite = !none && (high == f32::INFINITY || low == f32::NEG_INFINITY);
            let bit = |holds: bool, bit: u32| if holds { bit } else { 0 };
            let bits = bit(singleton, status::SINGLETON)
                | bit(constant, status::CONSTANT)
                | bit(none, status::NONE_COUNTED)
                | bit(nan > 0.0, status::NAN_EXCLUDED)
                | bit(infinite, status::INFINITE);
            self.mean.put(row, num::canonical(mean as f32));
            self.std.put(row, num::canonical(std as f32));
            self.counted.put(row, n as u32);
            self.status.put(row, bits);
        }
    }
}

//! The weight W of a token's loss, L = Σ W·l (maths.md §1.1).
//!
//! | aggregation | W of a live token | `per_row` | `denominator` |
//! |---|---|---|---|
//! | token-mean (DAPO, BNPO) | 1/M | `One` | M |
//! | token-sum | 1 | `One` | 1 |
//! | seq-mean-token-sum | 1/N₊ | `One` | N₊ |
//! | seq-mean-token-mean (GRPO, GSPO, SAPO) | 1/(N₊·Lᵢ) | `Length` or `AtLeastOne` | N₊ |
//! | seq-mean-token-sum-norm (Dr.GRPO) | 1/(N₊·C) | `Constant(C)` | N₊ |
//!
//! M live tokens, Lᵢ of them in sequence i, N₊ sequences (with a live token, or all). Denominators are *arguments*:
//! a global count makes the loss independent of micro-batching and of the number of ranks. Divided in binary64,
//! rounded to `f32` once.

use crate::Error;
use crate::num;
use crate::op::{Arg, Decoder, Encoder};

/// What a sequence's own sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PerRow {
    /// 1.
    One,
    /// Lᵢ + eps (verl: eps 1e-8).
    Length {
        /// Added to the count.
        eps: f64,
    },
    /// max(Lᵢ, 1) (TRL, AReaL, slime).
    AtLeastOne,
    /// A constant C (Dr.GRPO).
    Constant(f64),
}

#[allow(unsafe_code)]
impl Arg for PerRow {
    const POINTERS: usize = 0;
    const WORDS: usize = 2;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        let (kind, number) = match *self {
            PerRow::One => (0, 0.0),
            PerRow::Length { eps } => (1, eps),
            PerRow::AtLeastOne => (2, 0.0),
            PerRow::Constant(c) => (3, c),
        };
        to.word(kind);
        number.encode(to);
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        let (kind, number) = (from.word(), f64::from_bits(from.word()));
        match kind {
            1 => PerRow::Length { eps: number },
            2 => PerRow::AtLeastOne,
            3 => PerRow::Constant(number),
            _ => PerRow::One,
        }
    }
}

/// The weight of every live token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// What a sequence's own sum is divided by.
    pub per_row: PerRow,
    /// What the whole is divided by; 0 gives weight 0 (an all-empty batch has loss 0, not NaN).
    pub denominator: f64,
    /// Multiplies the loss (1, or the number of ranks where a framework averages gradients over them).
    pub scale: f64,
}

crate::launch_args!(Weight { per_row, denominator, scale });

impl Weight {
    /// Whether every number is in its domain and W is a finite `f32` for every length.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |argument, expected, got| Err(Error::Value { argument, index: None, expected, got });
        if !(self.denominator >= 0.0 && self.denominator.is_finite()) {
            return wrong("aggregation denominator", "a finite number of at least 0", self.denominator);
        }
        if !self.scale.is_finite() {
            return wrong("aggregation scale", "a finite number", self.scale);
        }
        match self.per_row {
            PerRow::Length { eps } if !(eps >= 0.0 && eps.is_finite()) => {
                return wrong("aggregation eps", "a finite number of at least 0", eps);
            }
            PerRow::Constant(c) if !(c > 0.0 && c.is_finite()) => {
                return wrong("aggregation horizon", "a positive finite number", c);
            }
            _ => {}
        }
        // The largest weight is that of the shortest sequence.
        let largest = self.of(1);
        if largest.is_nan() || largest.abs() > f64::from(f32::MAX) {
            return wrong("aggregation weight", "a weight that f32 can hold", largest);
        }
        Ok(())
    }

    /// Whether the weight of a sequence depends on its number of live tokens.
    #[inline(always)]
    pub fn needs_length(&self) -> bool {
        matches!(self.per_row, PerRow::Length { .. } | PerRow::AtLeastOne)
    }

    /// W for a sequence with `length` live tokens; 0 for one without.
    #[inline(always)]
    pub fn of(&self, length: u64) -> f64 {
        let length = length as f64;
        let own = match self.per_row {
            PerRow::One => 1.0,
            PerRow::Length { eps } => length + eps,
            PerRow::AtLeastOne => {
                if length > 1.0 {
                    length
                } else {
                    1.0
                }
            }
            PerRow::Constant(c) => c,
        };
        let divisor = self.denominator * own;
        if divisor == 0.0 || length == 0.0 { 0.0 } else { num::div64(self.scale, divisor) }
    }
}

//! The REINFORCE gate: REINFORCE on sampled tokens, without an importance weight, which is GPG's loss.
//!
//! **Formula** (GPG 2504.02546; docs/maths/gates.md): l = −A·logp.
//!
//! **Gradient**: dl/dlogp = −A. The ratio is used only for statistics.
//!
//! **Special cases**: A = 0: loss 0, gradient 0.

use super::{Gate, Gated, Sample};
use crate::Error;
use crate::num::Arith;
use crate::op::{Arg, Decoder, Encoder};

/// The REINFORCE gate, which has no parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reinforce;

#[allow(unsafe_code)]
impl Arg for Reinforce {
    const POINTERS: usize = 0;
    const WORDS: usize = 0;
    #[inline(always)]
    fn encode<E: Encoder>(&self, _to: &mut E) {}
    #[inline(always)]
    unsafe fn decode(_from: &mut Decoder) -> Self {
        Reinforce
    }
}

impl Gate for Reinforce {
    const POLICY_LOSS: &'static str = "policy_loss_reinforce";

    const SWITCH: bool = true;

    const SCORE: bool = true;

    const RATIO: bool = false;

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, Sample { advantage, logp, .. }: Sample, _staged: f32) -> Gated {
        Gated { loss: -advantage * logp, gradient: -advantage, weight: 1.0, clipped: 0 }
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

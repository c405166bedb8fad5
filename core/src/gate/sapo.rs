//! SAPO, the soft adaptive gate.
//!
//! **Formula** (2511.20347 §3, eqs 5-6; maths.md §2.2): with τ = `tau_pos` if A > 0 else `tau_neg`,
//!
//! ```text
//! f(r) = (4/τ)·σ(τ(r − 1));  l = −f(r)·A
//! w(r) = 4p(1 − p), p = σ(τ(r − 1))          w(1) = 1, 0 < w ≤ 1
//! ```
//!
//! **Gradient**: dl/dlogp = −A·r·w(r). On-policy it is −A, that of REINFORCE; the loss *value* at r = 1 is −2A/τ.
//!
//! **Special cases**: A = 0: loss 0, gradient 0. p(1 − p) is e/(1 + e)² with e = exp(−|τ(r − 1)|), which does not
//! cancel at saturation; where it underflows to 0, r·w is 0 for every r including ∞.
//!
//! **Variants**: verl and TRL use τ_neg at A = 0 (irrelevant here: the loss is 0) and seq-mean-token-mean; AReaL
//! aggregates by token-mean.

use super::{Gate, Gated, check_scalar};
use crate::Error;
use crate::num::{self, Arith};

/// Parameters of the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sapo {
    /// Temperature for positive advantages; the paper's 1.0.
    pub tau_pos: f32,
    /// Temperature for the others; the paper's 1.05.
    pub tau_neg: f32,
}

impl Gate for Sapo {
    const POLICY_LOSS: &'static str = "policy_loss_sapo";

    #[inline(always)]
    fn gate<A: Arith>(&self, ratio: f32, advantage: f32) -> Gated {
        let positive = advantage > 0.0;
        let tau = if positive { self.tau_pos } else { self.tau_neg };
        let scale = if positive { 4.0 / self.tau_pos } else { 4.0 / self.tau_neg };
        let z = tau * (ratio - 1.0);
        let e = num::exp_nonpositive::<A>(-z.abs());
        let inverse = 1.0 / (1.0 + e);
        let p = if z >= 0.0 { inverse } else { e * inverse };
        let weight = 4.0 * ((e * inverse) * inverse);
        // r = ∞ (no guard) has weight 0: bounded, or ∞·0 would be NaN.
        let finite = if ratio > f32::MAX { f32::MAX } else { ratio };
        Gated {
            loss: -((scale * p) * advantage),
            gradient: -(advantage * (finite * weight)),
            weight,
            clipped: 0,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let ok = |tau: f32| tau > 0.0 && tau.is_finite();
        check_scalar("tau_pos", self.tau_pos, ok(self.tau_pos), "a positive finite number")?;
        check_scalar("tau_neg", self.tau_neg, ok(self.tau_neg), "a positive finite number")
    }
}

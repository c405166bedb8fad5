//! The policy loss of a token and its derivative, maths.md §0.3, §1.3, §2: l = w·gate(r, A) + β·kl.

use super::kl::Kl;
use super::ppo_clip::{Clips, PpoClip};
use super::sapo::Sapo;
use super::token::Guard;

/// A gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// PPO clip.
    Ppo(PpoClip),
    /// SAPO.
    Sapo(Sapo),
}

impl Gate {
    /// Loss.
    pub fn loss(&self, r: f64, a: f64) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.loss(r, a),
            Gate::Sapo(gate) => gate.loss(r, a),
        }
    }

    /// dl/dlogp.
    pub fn gradient(&self, r: f64, a: f64) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.gradient(r, a),
            Gate::Sapo(gate) => gate.gradient(r, a),
        }
    }

    /// Gradient relative to −A r.
    pub fn weight(&self, r: f64, a: f64) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.weight(r, a),
            Gate::Sapo(gate) => gate.weight(r, a),
        }
    }

    /// Bounds hit.
    pub fn clips(&self, r: f64, a: f64) -> Clips {
        match self {
            Gate::Ppo(gate) => gate.clips(r, a),
            Gate::Sapo(_) => Clips::default(),
        }
    }

    /// Distance of r from a jump of the gradient.
    pub fn distance_to_kink(&self, r: f64) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.distance_to_kink(r),
            Gate::Sapo(_) => f64::INFINITY,
        }
    }
}

/// The stages of a policy loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyLoss {
    /// Of the log-ratio.
    pub guard: Guard,
    /// Gate.
    pub gate: Gate,
    /// KL term and β.
    pub kl: Option<(Kl, f64)>,
}

/// The inputs of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Current policy.
    pub logp: f64,
    /// Proximal policy.
    pub logp_old: f64,
    /// Reference.
    pub logp_ref: f64,
    /// A.
    pub advantage: f64,
    /// Rollout-correction weight w.
    pub weight: f64,
}

/// What the oracle says of one token, before the aggregation's weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    /// Raw log-ratio.
    pub d: f64,
    /// Guarded ratio.
    pub r: f64,
    /// w·gate.
    pub policy: f64,
    /// KL estimate; 0 without a KL term.
    pub kl: f64,
    /// l.
    pub loss: f64,
    /// w·dgate/dlogp.
    pub policy_gradient: f64,
    /// β·dkl/dlogp.
    pub kl_gradient: f64,
}

impl PolicyLoss {
    /// Everything about a token.
    pub fn token(&self, t: &Token) -> Computed {
        let d = t.logp - t.logp_old;
        let x = t.logp - t.logp_ref;
        let r = self.guard.value(d).exp();
        let policy = t.weight * self.gate.loss(r, t.advantage);
        let policy_gradient = t.weight * self.gate.gradient(r, t.advantage) * self.guard.derivative(d);
        let (kl, kl_gradient, beta) = match self.kl {
            Some((kl, beta)) => (kl.value(x), beta * kl.gradient(x), beta),
            None => (0.0, 0.0, 0.0),
        };
        Computed { d, r, policy, kl, loss: policy + beta * kl, policy_gradient, kl_gradient }
    }

    /// The token's loss with logp moved by `step`, for finite differences. What is straight-through is differentiated
    /// as it is defined: the guard moves after its clamp, and the KL term is k2.
    pub fn moved(&self, t: &Token, step: f64) -> f64 {
        let (d, x) = (t.logp - t.logp_old, t.logp - t.logp_ref);
        let guarded = match self.guard {
            Guard::StraightThrough(_) => self.guard.value(d) + step,
            _ => self.guard.value(d + step),
        };
        let policy = t.weight * self.gate.loss(guarded.exp(), t.advantage);
        let kl = match self.kl {
            Some((kl, beta)) if kl.straight_through => beta * (x + step).powi(2) / 2.0,
            Some((kl, beta)) => beta * kl.value(x + step),
            None => 0.0,
        };
        policy + kl
    }

    /// Distance from the nearest point where the derivative jumps.
    pub fn distance_to_kink(&self, t: &Token) -> f64 {
        let d = t.logp - t.logp_old;
        let kl = self.kl.map_or(f64::INFINITY, |(kl, _)| kl.distance_to_kink(t.logp - t.logp_ref));
        let gate = self.gate.distance_to_kink(self.guard.value(d).exp());
        gate.min(self.guard.distance_to_kink(d)).min(kl)
    }
}

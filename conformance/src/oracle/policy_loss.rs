//! The policy loss of a token and its derivative, l = w·gate(r, A) + β·kl: docs/maths/conventions.md,
//! docs/maths/kl.md, docs/maths/gates.md.

use super::cispo::Cispo;
use super::dppo::Dppo;
use super::kl::Kl;
use super::mini_rl::MiniRl;
use super::ppo_clip::{Clips, PpoClip};
use super::reinforce;
use super::remix::Remix;
use super::sapo::Sapo;
use super::token::Guard;
use super::trust_region::TrustRegion;

/// A gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    Ppo(PpoClip),
    Sapo(Sapo),
    Cispo(Cispo),
    /// GPG.
    Reinforce,
    Dppo(Dppo),
    MiniRl(MiniRl),
    Remix(Remix),
    /// DPPO with a second array.
    TrustRegion(TrustRegion),
}

/// The inputs of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Guarded ratio.
    pub r: f64,
    pub a: f64,
    pub logp: f64,
    pub logp_old: f64,
    pub logp_second: f64,
}

impl Sample {
    /// The second policy's ratio to the proximal one.
    pub fn centre(&self) -> f64 {
        (self.logp_second - self.logp_old).min(87.0).exp()
    }
}

impl Gate {
    /// Whether the loss is −w·A·logp with a constant w.
    pub fn is_score(&self) -> bool {
        !matches!(self, Gate::Ppo(_) | Gate::Sapo(_) | Gate::Remix(_))
    }

    /// The gate's loss.
    pub fn loss(&self, s: Sample) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.loss(s.r, s.a),
            Gate::Sapo(gate) => gate.loss(s.r, s.a),
            Gate::Remix(gate) => gate.loss(s.r, s.a, s.centre()),
            _ => self.gradient(s) * s.logp,
        }
    }

    /// dl/dlogp.
    pub fn gradient(&self, s: Sample) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.gradient(s.r, s.a),
            Gate::Sapo(gate) => gate.gradient(s.r, s.a),
            Gate::Remix(_) if s.a == 0.0 => 0.0,
            Gate::Remix(gate) if gate.weight(s.r, s.a, s.centre()) == 0.0 => 0.0,
            Gate::Remix(_) => -s.a * s.r,
            _ => -s.a * self.weight(s),
        }
    }

    /// The gradient relative to −A r; for a score gate, relative to −A.
    pub fn weight(&self, s: Sample) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.weight(s.r, s.a),
            Gate::Sapo(gate) => gate.weight(s.r, s.a),
            Gate::Cispo(gate) => gate.weight(s.r),
            Gate::Reinforce => reinforce::WEIGHT,
            Gate::Dppo(gate) => gate.weight(s.r, s.a, s.logp, s.logp_old),
            Gate::MiniRl(gate) => gate.weight(s.r, s.a, s.logp, s.logp_second),
            Gate::Remix(gate) => gate.weight(s.r, s.a, s.centre()),
            Gate::TrustRegion(gate) => gate.weight(s.r, s.a, s.logp, s.logp_old, s.logp_second),
        }
    }

    /// The bounds that were hit.
    pub fn clips(&self, s: Sample) -> Clips {
        match self {
            Gate::Ppo(gate) => gate.clips(s.r, s.a),
            Gate::Sapo(_) | Gate::Reinforce => Clips::default(),
            _ if s.a == 0.0 => Clips::default(),
            Gate::Remix(gate) => gate.clips(s.r, s.a, s.centre()),
            Gate::MiniRl(gate) => {
                let kept = gate.kept(s.r, s.a);
                let dual = kept && (s.logp - s.logp_second).exp() > gate.c;
                Clips { high: !kept && s.a > 0.0, low: !kept && s.a < 0.0, dual }
            }
            Gate::Cispo(gate) => Clips { high: s.r > gate.high, low: s.r < gate.low, dual: false },
            Gate::TrustRegion(gate) => {
                let valid = gate.valid(s.a, s.logp, s.logp_old, s.logp_second);
                let dual = valid && gate.free(s.r, s.logp, s.logp_second) > gate.c;
                Clips { high: !valid && s.a > 0.0, low: !valid && s.a < 0.0, dual }
            }
            Gate::Dppo(gate) => {
                let valid = gate.valid(s.a, s.logp, s.logp_old);
                Clips { high: !valid && s.a > 0.0, low: !valid && s.a < 0.0, dual: valid && s.r > gate.c }
            }
        }
    }

    /// Distance of r from the nearest jump of the gradient.
    pub fn distance_to_kink(&self, s: Sample) -> f64 {
        match self {
            Gate::Ppo(gate) => gate.distance_to_kink(s.r),
            Gate::Remix(gate) => {
                let c = s.centre();
                (s.r - (c - gate.low)).abs().min((s.r - (c + gate.high)).abs())
            }
            _ => f64::INFINITY,
        }
    }
}

/// The stages of a policy loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyLoss {
    /// Guard of the token log-ratio.
    pub guard: Guard,
    /// For sequence-level ratios, the upper bound of the mean log-ratio.
    pub log_max: Option<f64>,
    pub gate: Gate,
    /// KL term and β.
    pub kl: Option<(Kl, f64)>,
}

/// The inputs of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    pub logp: f64,
    pub logp_old: f64,
    pub logp_ref: f64,
    pub logp_second: f64,
    pub advantage: f64,
    /// Rollout-correction weight w.
    pub weight: f64,
    /// Mean log-ratio of its sequence, and its mean magnitude.
    pub sequence: (f64, f64),
}

/// The oracle's result for one token, before the aggregation weight.
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
    pub loss: f64,
    /// w·dgate/dlogp.
    pub policy_gradient: f64,
    /// β·dkl/dlogp.
    pub kl_gradient: f64,
}

impl PolicyLoss {
    /// The log-ratio that is exponentiated, and its derivative by logp.
    pub fn log_ratio(&self, t: &Token) -> (f64, f64) {
        let d = t.logp - t.logp_old;
        match self.log_max {
            None => (self.guard.value(d), self.guard.derivative(d)),
            Some(max) => (t.sequence.0.min(max), if t.sequence.0 <= max { 1.0 } else { 0.0 }),
        }
    }

    /// Whether the log-ratio is within its bound.
    pub fn inside(&self, t: &Token) -> bool {
        match self.log_max {
            None => self.guard.inside(t.logp - t.logp_old),
            Some(max) => t.sequence.0 <= max,
        }
    }

    /// The gate's inputs for a token.
    pub fn sample(&self, t: &Token) -> Sample {
        let r = self.log_ratio(t).0.exp();
        Sample { r, a: t.advantage, logp: t.logp, logp_old: t.logp_old, logp_second: t.logp_second }
    }

    /// Computes everything about a token.
    pub fn token(&self, t: &Token) -> Computed {
        let d = t.logp - t.logp_old;
        let x = t.logp - t.logp_ref;
        let sample = self.sample(t);
        let r = sample.r;
        let policy = t.weight * self.gate.loss(sample);
        let through = if self.gate.is_score() { 1.0 } else { self.log_ratio(t).1 };
        let policy_gradient = t.weight * self.gate.gradient(sample) * through;
        let (kl, kl_gradient, beta) = match self.kl {
            Some((kl, beta)) => (kl.value(x), beta * kl.gradient(x), beta),
            None => (0.0, 0.0, 0.0),
        };
        Computed { d, r, policy, kl, loss: policy + beta * kl, policy_gradient, kl_gradient }
    }

    /// The token's loss with logp moved by `step`, for finite differences. Straight-through parts are
    /// differentiated as they are defined: the guard moves after its clamp, and the KL term is k2.
    pub fn moved(&self, t: &Token, step: f64) -> f64 {
        let (d, x) = (t.logp - t.logp_old, t.logp - t.logp_ref);
        let guarded = match self.guard {
            Guard::StraightThrough(_) => self.guard.value(d) + step,
            _ => self.guard.value(d + step),
        };
        let sample = self.sample(t);
        let policy = t.weight
            * if self.gate.is_score() {
                // The weight is a constant.
                self.gate.gradient(sample) * (t.logp + step)
            } else {
                self.gate.loss(Sample { r: guarded.exp(), ..sample })
            };
        let kl = match self.kl {
            Some((kl, beta)) if kl.straight_through => beta * (x + step).powi(2) / 2.0,
            Some((kl, beta)) => beta * kl.value(x + step),
            None => 0.0,
        };
        policy + kl
    }

    /// Distance to the nearest point where the derivative jumps.
    pub fn distance_to_kink(&self, t: &Token) -> f64 {
        let d = t.logp - t.logp_old;
        let kl = self.kl.map_or(f64::INFINITY, |(kl, _)| kl.distance_to_kink(t.logp - t.logp_ref));
        if self.gate.is_score() {
            return kl;
        }
        self.gate.distance_to_kink(self.sample(t)).min(self.guard.distance_to_kink(d)).min(kl)
    }
}

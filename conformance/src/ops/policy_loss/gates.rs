//! Every gate of the fused policy losses, with the bounds that the cases take.

use crate::cases::random::Draw;
use crate::cases::slot;
use lockstep_core::gate::{
    Cispo, Divergence, DppoKl, DppoTv, Gate, MiniRl, PpoClip, Reinforce, Remix, TrustRegion,
};

/// SAPO's temperatures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taus {
    pub tau_pos: f32,
    pub tau_neg: f32,
}

/// A gate of a policy loss.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum AnyGate {
    Ppo(PpoClip),
    Sapo(Taus),
    Cispo(Cispo),
    Reinforce(Reinforce),
    DppoTv(DppoTv),
    DppoKl(DppoKl),
    MiniRl(MiniRl),
    Remix(Remix),
    TrustRegion(TrustRegion),
}

/// `$body` with core's gate as `$gate`, whichever it is.
#[macro_export]
macro_rules! with_gate {
    ($any:expr, $gate:ident => $body:expr) => {
        match $any {
            $crate::ops::policy_loss::AnyGate::Ppo($gate) => $body,
            $crate::ops::policy_loss::AnyGate::Sapo(taus) => {
                let $gate = lockstep_core::gate::Sapo::new(taus.tau_pos, taus.tau_neg);
                $body
            }
            $crate::ops::policy_loss::AnyGate::Cispo($gate) => $body,
            $crate::ops::policy_loss::AnyGate::Reinforce($gate) => $body,
            $crate::ops::policy_loss::AnyGate::DppoTv($gate) => $body,
            $crate::ops::policy_loss::AnyGate::DppoKl($gate) => $body,
            $crate::ops::policy_loss::AnyGate::MiniRl($gate) => $body,
            $crate::ops::policy_loss::AnyGate::Remix($gate) => $body,
            $crate::ops::policy_loss::AnyGate::TrustRegion($gate) => $body,
        }
    };
}

impl AnyGate {
    /// The fused op's name in core's table.
    pub fn op(&self) -> &'static str {
        fn name<G: Gate>(_gate: G) -> &'static str {
            G::POLICY_LOSS
        }
        with_gate!(*self, gate => name(gate))
    }

    /// Whether it reads a second policy.
    pub fn reads_second(&self) -> bool {
        fn second<G: Gate>(_gate: G) -> bool {
            G::SECOND
        }
        with_gate!(*self, gate => second(gate))
    }

    /// The slot of the second array: divergences are numbers of at least 0, like weights.
    pub fn second(&self) -> usize {
        match self {
            AnyGate::TrustRegion(TrustRegion { divergence: Divergence::Given, .. }) => slot::WEIGHTS,
            _ => slot::SECOND,
        }
    }

    /// A random gate of `op`: one of the lists below, or one with random bounds.
    pub(super) fn random(op: &str, draw: &mut Draw) -> AnyGate {
        let all = gates().into_iter().chain(score_gates()).chain(second_gates()).chain(trust_gates());
        let listed: Vec<AnyGate> = all.filter(|gate| gate.op() == op).collect();
        let listed = draw.pick(&listed);
        if draw.yes() {
            return listed;
        }
        let c = if draw.yes() { f32::INFINITY } else { 1.01 + 10.0 * draw.unit() };
        let (low, high) = (draw.unit(), 3.0 * draw.unit());
        match listed {
            AnyGate::Ppo(_) => ppo(low, high, c),
            AnyGate::Sapo(_) => sapo(0.05 + 8.0 * low, 0.05 + 8.0 * draw.unit()),
            AnyGate::Cispo(_) => AnyGate::Cispo(Cispo { low, high: low + 0.01 + high }),
            AnyGate::Reinforce(gate) => AnyGate::Reinforce(gate),
            AnyGate::DppoTv(_) => tv(low, high / 3.0, c),
            AnyGate::DppoKl(_) => kl(low / 4.0, high / 8.0, c),
            AnyGate::MiniRl(_) => mini(low, high, 0.5 + 10.0 * draw.unit()),
            AnyGate::Remix(_) => remix(low, high),
            AnyGate::TrustRegion(gate) => {
                trust(gate.divergence, low / 4.0, high / 8.0, 0.5 + 10.0 * draw.unit())
            }
        }
    }
}

fn ppo(clip_ratio_low: f32, clip_ratio_high: f32, clip_ratio_c: f32) -> AnyGate {
    AnyGate::Ppo(PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c })
}

fn sapo(tau_pos: f32, tau_neg: f32) -> AnyGate {
    AnyGate::Sapo(Taus { tau_pos, tau_neg })
}

fn tv(clip_ratio_low: f32, clip_ratio_high: f32, clip_ratio_c: f32) -> AnyGate {
    AnyGate::DppoTv(DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c })
}

fn kl(clip_ratio_low: f32, clip_ratio_high: f32, clip_ratio_c: f32) -> AnyGate {
    AnyGate::DppoKl(DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c })
}

fn mini(clip_ratio_low: f32, clip_ratio_high: f32, clip_ratio_c: f32) -> AnyGate {
    AnyGate::MiniRl(MiniRl { clip_ratio_low, clip_ratio_high, clip_ratio_c })
}

fn remix(clip_ratio_low: f32, clip_ratio_high: f32) -> AnyGate {
    AnyGate::Remix(Remix { clip_ratio_low, clip_ratio_high })
}

fn trust(divergence: Divergence, clip_ratio_low: f32, clip_ratio_high: f32, clip_ratio_c: f32) -> AnyGate {
    AnyGate::TrustRegion(TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c })
}

/// Gates: verl's, clip-higher without dual clip, bounds exactly at r = 1 (ties), the widest band; SAPO with
/// the paper's temperatures, others, and one that saturates.
pub(super) fn gates() -> [AnyGate; 7] {
    [
        ppo(0.2, 0.28, 3.0),
        ppo(0.2, 0.2, f32::INFINITY),
        ppo(0.0, 0.0, 1.5),
        ppo(1.0, 4.0, 10.0),
        sapo(1.0, 1.05),
        sapo(2.0, 4.0),
        sapo(40.0, 0.1),
    ]
}

/// Score gates: verl's CISPO, one without a lower bound, a narrow band; DPPO with verl's bounds, wider ones,
/// and none.
pub(super) fn score_gates() -> [AnyGate; 8] {
    [
        AnyGate::Cispo(Cispo { low: 0.8, high: 1.28 }),
        AnyGate::Cispo(Cispo { low: -9.0, high: 5.0 }),
        AnyGate::Cispo(Cispo { low: 0.97, high: 0.98 }),
        AnyGate::Reinforce(Reinforce),
        tv(0.15, 0.15, 3.0),
        tv(0.05, 0.4, 20.0),
        kl(0.05, 0.05, 3.0),
        kl(0.002, 0.3, f32::INFINITY),
    ]
}

/// Gates with a second policy: the papers' bounds, weights that are often truncated, the widest and the
/// narrowest bands.
pub(super) fn second_gates() -> [AnyGate; 6] {
    [
        mini(0.2, 0.27, 5.0),
        mini(0.05, 0.1, 1.01),
        mini(1.0, 4.0, 10.0),
        remix(0.2, 0.2),
        remix(0.05, 0.1),
        remix(1.0, 4.0),
    ]
}

/// DPPO with a second array: the three divergences with the released bounds, one without a bound for falling
/// probabilities, weights that are often truncated.
pub(super) fn trust_gates() -> [AnyGate; 5] {
    [
        trust(Divergence::TotalVariation, 0.15, 0.2, 3.0),
        trust(Divergence::TotalVariation, 0.0, 0.4, 1.01),
        trust(Divergence::BinaryKl, 0.05, 0.05, 3.0),
        trust(Divergence::BinaryKl, 0.002, 0.3, 10.0),
        trust(Divergence::Given, 0.5, 2.0, 3.0),
    ]
}

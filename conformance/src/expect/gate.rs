//! The oracle's gates, by the names that recipes and core share.

use crate::ops::same;
use crate::oracle::cispo::Cispo;
use crate::oracle::dppo::Dppo;
use crate::oracle::mini_rl::MiniRl;
use crate::oracle::policy_loss::Gate;
use crate::oracle::ppo_clip::PpoClip;
use crate::oracle::remix::Remix;
use crate::oracle::sapo::Sapo;
use crate::oracle::trust_region::{Divergence, TrustRegion};
use lockstep_core::gate as core;

pub(crate) fn ppo(low: f32, high: f32, dual: f32) -> Gate {
    Gate::Ppo(PpoClip { low: low.into(), high: high.into(), dual: dual.into() })
}

pub(crate) fn sapo(tau_pos: f32, tau_neg: f32) -> Gate {
    Gate::Sapo(Sapo { tau_pos: tau_pos.into(), tau_neg: tau_neg.into() })
}

pub(crate) fn cispo(low: f32, high: f32) -> Gate {
    Gate::Cispo(Cispo { low: low.into(), high: high.into() })
}

pub(crate) fn dppo(low: f32, high: f32, c: f32, kl: bool) -> Gate {
    Gate::Dppo(Dppo { low: low.into(), high: high.into(), c: c.into(), kl })
}

pub(crate) fn mini_rl(low: f32, high: f32, c: f32) -> Gate {
    Gate::MiniRl(MiniRl { low: low.into(), high: high.into(), c: c.into() })
}

pub(crate) fn remix(low: f32, high: f32) -> Gate {
    Gate::Remix(Remix { low: low.into(), high: high.into() })
}

pub(crate) fn trust_region(divergence: core::Divergence, low: f32, high: f32, c: f32) -> Gate {
    let divergence = same!(divergence, core::Divergence => Divergence, TotalVariation BinaryKl Given);
    Gate::TrustRegion(TrustRegion { divergence, low: low.into(), high: high.into(), c: c.into() })
}

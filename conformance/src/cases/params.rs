//! The op and its scalar arguments of a launch.

use super::slot;
use crate::ops::AnyOp;
use lockstep_core::advantage::Singleton;
use lockstep_core::aggregate::{PerRow, Weight, WeightFrom};
use lockstep_core::gate::{
    Cispo, Divergence, DppoKl, DppoTv, Gate, MiniRl, PpoClip, Reinforce, Remix, Sapo, TrustRegion,
};
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::ragged::In;
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_core::team::Direction;

/// SAPO's temperatures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taus {
    /// For positive advantages.
    pub tau_pos: f32,
    /// For all other advantages.
    pub tau_neg: f32,
}

/// A gate of a policy loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyGate {
    /// `policy_loss_ppo`.
    Ppo(PpoClip),
    /// `policy_loss_sapo`.
    Sapo(Taus),
    /// `policy_loss_cispo`.
    Cispo(Cispo),
    /// `policy_loss_reinforce`.
    Reinforce(Reinforce),
    /// `policy_loss_dppo_tv`.
    DppoTv(DppoTv),
    /// `policy_loss_dppo_kl`.
    DppoKl(DppoKl),
    /// `policy_loss_mini_rl`.
    MiniRl(MiniRl),
    /// `policy_loss_remix`.
    Remix(Remix),
    /// `policy_loss_trust_region`.
    TrustRegion(TrustRegion),
}

impl AnyGate {
    /// The fused op's name in core's table.
    pub fn op(&self) -> &'static str {
        match self {
            AnyGate::Ppo(_) => PpoClip::POLICY_LOSS,
            AnyGate::Sapo(_) => Sapo::POLICY_LOSS,
            AnyGate::Cispo(_) => Cispo::POLICY_LOSS,
            AnyGate::Reinforce(_) => Reinforce::POLICY_LOSS,
            AnyGate::DppoTv(_) => DppoTv::POLICY_LOSS,
            AnyGate::DppoKl(_) => DppoKl::POLICY_LOSS,
            AnyGate::MiniRl(_) => MiniRl::POLICY_LOSS,
            AnyGate::Remix(_) => Remix::POLICY_LOSS,
            AnyGate::TrustRegion(_) => TrustRegion::POLICY_LOSS,
        }
    }

    /// Whether it reads a second policy.
    pub fn reads_second(&self) -> bool {
        matches!(self, AnyGate::MiniRl(_) | AnyGate::Remix(_) | AnyGate::TrustRegion(_))
    }

    /// The slot of the second array: divergences are numbers of at least 0, like weights.
    pub fn second(&self) -> usize {
        match self {
            AnyGate::TrustRegion(TrustRegion { divergence: Divergence::Given, .. }) => slot::WEIGHTS,
            _ => slot::SECOND,
        }
    }
}

/// Scalar arguments of a policy loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Gate.
    pub gate: AnyGate,
    /// The level at which the ratio is taken.
    pub level: RatioGranularity,
    /// Guard.
    pub guard: Guard,
    /// The KL term and β.
    pub kl: Option<(Kl, f32)>,
    /// Aggregation weight.
    pub weight: Weight,
    /// If set, the weight's numbers are read from memory as this many [`Partials`].
    pub counted: Option<usize>,
    /// Advantages per token instead of per sequence.
    pub per_token: bool,
    /// Whether there are rollout-correction weights.
    pub weights: bool,
    /// Whether the loss per row is wanted; implied by the two below.
    pub loss: bool,
    /// Whether the loss per token is wanted.
    pub token_loss: bool,
    /// Whether metrics are wanted.
    pub metrics: bool,
}

impl Policy {
    /// Whether any loss is computed.
    pub fn wants_loss(&self) -> bool {
        self.loss || self.token_loss || self.metrics
    }
}

/// An op and its scalar arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Params {
    /// `group_advantage`.
    GroupAdvantage {
        /// Whether to divide by the standard deviation.
        norm_by_std: bool,
        /// 0 or 1.
        ddof: u32,
        /// Added outside the root.
        eps: f64,
        /// Policy for a group of one.
        singleton: Singleton,
    },
    /// `token_ratio`.
    TokenRatio {
        /// Guard.
        guard: Guard,
        /// Whether per-token outputs are wanted.
        outputs: bool,
    },
    /// `policy_loss_ppo`, `policy_loss_sapo`.
    Policy(Policy),
    /// `kl`.
    Kl {
        /// Estimator and guards.
        kl: Kl,
        /// Whether per-token outputs are wanted.
        outputs: bool,
    },
    /// `aggregate`.
    Aggregate {
        /// Whether to sum as well as count.
        values: bool,
    },
    /// `row_scan`.
    RowScan {
        /// The direction of the scan.
        direction: Direction,
    },
    /// `fold_rows`.
    FoldRows,
    /// An op with its own file in [`ops`](crate::ops).
    Op(AnyOp),
}

impl<T: Into<AnyOp>> From<T> for Params {
    fn from(any: T) -> Params {
        Params::Op(any.into())
    }
}

/// The bounds of `in_band` in every case.
pub const BAND: [f32; 2] = [0.75, 1.25];

impl Params {
    /// The op's name in core's table.
    pub fn op(&self) -> &'static str {
        match self {
            Params::GroupAdvantage { .. } => "group_advantage",
            Params::TokenRatio { .. } => "token_ratio",
            Params::Policy(policy) => policy.gate.op(),
            Params::Kl { .. } => "kl",
            Params::Aggregate { .. } => "aggregate",
            Params::RowScan { .. } => "row_scan",
            Params::FoldRows => "fold_rows",
            Params::Op(any) => any.op(),
        }
    }

    /// Whether a row is a block of the whole array: its results are positions in the array, so rows cannot be
    /// moved.
    pub fn rows_are_blocks(&self) -> bool {
        matches!(self, Params::Op(any) if any.rows_are_blocks())
    }

    /// Whether all rows have the same length.
    pub fn rows_are_equal(&self) -> bool {
        match self {
            Params::FoldRows => true,
            Params::Op(any) => any.rows_are_equal(),
            _ => false,
        }
    }
}

/// Guards: none, the usual bound, one that ordinary log-ratios reach, and the same two straight-through.
pub fn guards() -> [Guard; 5] {
    [
        Guard::NONE,
        Guard::clamp(Guard::LOG_RATIO_CLAMP),
        Guard::clamp(0.5),
        Guard::straight_through(0.5),
        Guard::straight_through(20.0),
    ]
}

/// Every estimator, plain and straight-through; k3 with each clamp and with verl's two.
pub fn kls() -> Vec<Kl> {
    let mut kls = Vec::new();
    for estimator in [KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3] {
        kls.push(Kl::new(estimator));
        let verls = if estimator == KlFormula::K3 { Kl::guarded(estimator) } else { Kl::new(estimator) };
        kls.push(Kl { straight_through: true, ..verls });
    }
    kls.push(Kl::guarded(KlFormula::K3));
    kls.extend(each_clamp(KlFormula::K3));
    kls
}

fn each_clamp(estimator: KlFormula) -> [Kl; 2] {
    [Kl { clamp_in: 0.5, ..Kl::new(estimator) }, Kl { clamp_out: 0.125, ..Kl::new(estimator) }]
}

/// [`kls`] plus the other estimators with clamps, for the ops that support them.
pub fn kls_of_ops() -> Vec<Kl> {
    let others = [KlFormula::K1, KlFormula::Abs, KlFormula::K2].into_iter().flat_map(each_clamp);
    kls().into_iter().chain(others).collect()
}

/// Gates: verl's, clip-higher without dual clip, bounds exactly at r = 1 (ties), the widest band; SAPO with
/// the paper's temperatures, others, and one that saturates.
pub fn gates() -> [AnyGate; 7] {
    let ppo = |clip_ratio_low, clip_ratio_high, clip_ratio_c| {
        AnyGate::Ppo(PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c })
    };
    let sapo = |tau_pos, tau_neg| AnyGate::Sapo(Taus { tau_pos, tau_neg });
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
pub fn score_gates() -> [AnyGate; 8] {
    let tv = |clip_ratio_low, clip_ratio_high, clip_ratio_c| {
        AnyGate::DppoTv(DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c })
    };
    let kl = |clip_ratio_low, clip_ratio_high, clip_ratio_c| {
        AnyGate::DppoKl(DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c })
    };
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
pub fn second_gates() -> [AnyGate; 6] {
    let mini = |clip_ratio_low, clip_ratio_high, clip_ratio_c| {
        AnyGate::MiniRl(MiniRl { clip_ratio_low, clip_ratio_high, clip_ratio_c })
    };
    let remix = |clip_ratio_low, clip_ratio_high| AnyGate::Remix(Remix { clip_ratio_low, clip_ratio_high });
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
pub fn trust_gates() -> [AnyGate; 5] {
    let trust = |divergence, [clip_ratio_low, clip_ratio_high, clip_ratio_c]: [f32; 3]| {
        AnyGate::TrustRegion(TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c })
    };
    [
        trust(Divergence::TotalVariation, [0.15, 0.2, 3.0]),
        trust(Divergence::TotalVariation, [0.0, 0.4, 1.01]),
        trust(Divergence::BinaryKl, [0.05, 0.05, 3.0]),
        trust(Divergence::BinaryKl, [0.002, 0.3, 10.0]),
        trust(Divergence::Given, [0.5, 2.0, 3.0]),
    ]
}

/// Aggregation weights: every kind of per-row divisor, with denominators that are not powers of two, that of
/// an all-empty batch, and a scale.
pub fn weights() -> [Weight; 6] {
    let weight = |per_row, denominator, scale| Weight { per_row, denominator, scale };
    [
        weight(PerRow::One, 1.0, 1.0),
        weight(PerRow::One, 1017.0, 1.0),
        weight(PerRow::Length { eps: 1e-8 }, 11.0, 1.0),
        weight(PerRow::AtLeastOne, 15.0, 2.0),
        weight(PerRow::Constant(1024.0), 7.0, 1.0),
        weight(PerRow::Length { eps: 1e-8 }, 0.0, 1.0),
    ]
}

/// Number of partial counts from which a weight's numbers are read, in rotation; `None` passes them by value.
pub const COUNTED: [Option<usize>; 6] = [None, None, None, Some(1), Some(7), Some(64)];

/// A weight's numbers as a launch reads them from memory.
#[derive(Clone, Debug)]
pub struct Partials {
    /// The weight passed by value, with wrong numbers where memory has the right ones.
    pub weight: Weight,
    denominator: Option<Vec<u64>>,
    horizon: Option<Vec<u64>>,
}

impl Partials {
    /// Splits the counts of a weight into partial counts.
    pub fn of(weight: Weight, counted: Option<usize>) -> Partials {
        let Some(n) = counted else { return Partials { weight, denominator: None, horizon: None } };
        let (count, n64) = (weight.denominator as u64, n as u64);
        assert_eq!(count as f64, weight.denominator, "a count");
        let denominator = (0..n64).map(|i| count * (i + 1) / n64 - count * i / n64).collect();
        let horizon = match weight.per_row {
            PerRow::Constant(c) => Some((0..n).map(|i| c as u64 / (1 + i.abs_diff(n / 2) as u64)).collect()),
            _ => None,
        };
        let per_row = if horizon.is_some() { PerRow::Constant(2.5) } else { weight.per_row };
        let weight = Weight { per_row, denominator: 3.5, ..weight };
        Partials { weight, denominator: Some(denominator), horizon }
    }

    /// The arrays, as a launch takes them.
    pub fn from(&self) -> WeightFrom<'_> {
        WeightFrom {
            denominator: self.denominator.as_deref().map(In::new),
            horizon: self.horizon.as_deref().map(In::new),
        }
    }
}

//! Random cases: any op, generated from a seed alone, so that a seed reproduces a reported difference.

use super::corpus::tokens;
use super::hash::Source;
use super::masks::{Mask, garbage};
use super::params::{
    AnyGate, COUNTED, Params, Policy, Taus, gates, guards, kls, kls_of_ops, score_gates, second_gates,
    trust_gates, weights,
};
use super::shapes::Shape;
use super::values::{Range, spread};
use super::{Case, Data};
use crate::ops::AnyOp;
use lockstep_core::gate::{Cispo, DppoKl, DppoTv, MiniRl, PpoClip, Remix, TrustRegion};
use lockstep_core::op::OpInfo;
use lockstep_core::ratio::RatioGranularity;
use lockstep_core::team::Direction;

const CATCHES: &str = "whatever nobody thought of";

/// A sequence of random draws.
pub struct Draw {
    source: Source,
    next: usize,
    most: usize,
}

impl Draw {
    /// In 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        self.next += 1;
        self.source.below(self.next, n)
    }

    /// A fair coin flip.
    pub fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    /// In 0..1.
    pub fn unit(&mut self) -> f32 {
        self.next += 1;
        self.source.unit(self.next)
    }

    /// One of a list.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A separate stream, for arrays.
    pub fn source(&mut self) -> Source {
        self.next += 1;
        self.source.fork(self.next as u64)
    }

    /// Row lengths: mostly short, with empty rows; some batches exceed a column cycle or have many rows.
    pub fn lengths(&mut self) -> Vec<u32> {
        let most = self.most;
        let rows = (1 + self.below(24)).min(most.max(1));
        (0..rows)
            .map(|_| match self.below(10) {
                0 | 1 => self.below(3),
                2..7 => self.below(70),
                7 | 8 => 120 + self.below(200),
                _ => self.below(3000),
            })
            .map(|length| length.min(most) as u32)
            .collect()
    }

    fn gate(&mut self, op: &str) -> AnyGate {
        let all = gates().into_iter().chain(score_gates()).chain(second_gates()).chain(trust_gates());
        let listed: Vec<AnyGate> = all.filter(|gate| gate.op() == op).collect();
        let listed = self.pick(&listed);
        if self.yes() {
            return listed;
        }
        let c = if self.yes() { f32::INFINITY } else { 1.01 + 10.0 * self.unit() };
        let (low, high) = (self.unit(), 3.0 * self.unit());
        match listed {
            AnyGate::Ppo(_) => {
                AnyGate::Ppo(PpoClip { clip_ratio_low: low, clip_ratio_high: high, clip_ratio_c: c })
            }
            AnyGate::Sapo(_) => {
                AnyGate::Sapo(Taus { tau_pos: 0.05 + 8.0 * low, tau_neg: 0.05 + 8.0 * self.unit() })
            }
            AnyGate::Cispo(_) => AnyGate::Cispo(Cispo { low, high: low + 0.01 + high }),
            AnyGate::Reinforce(gate) => AnyGate::Reinforce(gate),
            AnyGate::DppoTv(_) => {
                AnyGate::DppoTv(DppoTv { clip_ratio_low: low, clip_ratio_high: high / 3.0, clip_ratio_c: c })
            }
            AnyGate::MiniRl(_) => AnyGate::MiniRl(MiniRl {
                clip_ratio_low: low,
                clip_ratio_high: high,
                clip_ratio_c: 0.5 + 10.0 * self.unit(),
            }),
            AnyGate::Remix(_) => AnyGate::Remix(Remix { clip_ratio_low: low, clip_ratio_high: high }),
            AnyGate::TrustRegion(gate) => AnyGate::TrustRegion(TrustRegion {
                clip_ratio_low: low / 4.0,
                clip_ratio_high: high / 8.0,
                clip_ratio_c: 0.5 + 10.0 * self.unit(),
                ..gate
            }),
            AnyGate::DppoKl(_) => AnyGate::DppoKl(DppoKl {
                clip_ratio_low: low / 4.0,
                clip_ratio_high: high / 8.0,
                clip_ratio_c: c,
            }),
        }
    }

    fn policy(&mut self, op: &str) -> Params {
        let kl = if self.yes() { Some((self.pick(&kls()), 2.0 * self.unit())) } else { None };
        // Half of all calls want coefficients only, the most common variant.
        let wants = if self.yes() { 0 } else { self.below(8) };
        // Half of all calls take the most common path.
        let level = match self.below(4) {
            0 => RatioGranularity::Sequence { log_max: self.pick(&[10.0, 0.125, f32::INFINITY]) },
            _ => RatioGranularity::Token,
        };
        Params::Policy(Policy {
            gate: self.gate(op),
            level,
            guard: self.pick(&guards()),
            kl,
            weight: self.pick(&weights()),
            counted: self.pick(&COUNTED),
            per_token: self.yes(),
            weights: self.yes(),
            loss: wants & 1 != 0,
            token_loss: wants & 2 != 0,
            metrics: wants & 4 != 0,
        })
    }
}

/// Case number `seed` of `op`, or `None` if there is no such op.
pub fn random(op: &str, seed: u64) -> Option<Case> {
    random_within(op, seed, usize::MAX)
}

/// Like [`random`], with at most `most` rows and `most` elements in each, where the op leaves the shape open.
/// Failures are shrunk with it.
pub fn random_within(op: &str, seed: u64, most: usize) -> Option<Case> {
    let source = Source::new(seed).fork(0x0c0f_fee0);
    let mut draw = Draw { source, next: 0, most };
    let case = |params, data| Case { label: format!("seed {seed}"), catches: CATCHES, params, data };
    let params = match op {
        "fold_rows" => {
            let statistics = 1 + draw.below(8) as u32;
            let rows = 1 + draw.below(3000).min(most) as u32;
            let value = |i| f64::from(spread(source, i)) * (1.0 + f64::from(spread(source.fork(2), i)));
            let element64 = (0..(statistics * rows) as usize).map(value).collect();
            let offsets = (0..=statistics).map(|s| s * rows).collect();
            return Some(case(Params::FoldRows, Data { offsets, element64, ..Data::default() }));
        }
        "token_ratio" => Params::TokenRatio { guard: draw.pick(&guards()), outputs: draw.yes() },
        _ if OpInfo::named(op).is_some_and(|op| op.file == "policy_loss/mod.rs") => draw.policy(op),
        "kl" => Params::Kl { kl: draw.pick(&kls_of_ops()), outputs: draw.yes() },
        "aggregate" => Params::Aggregate { values: draw.yes() },
        "row_scan" => Params::RowScan { direction: draw.pick(&[Direction::Prefix, Direction::Suffix]) },
        _ => {
            return AnyOp::random(op, &mut draw)
                .map(|case| Case { label: format!("seed {seed}: {}", case.label), ..case });
        }
    };
    let shape = Shape { name: "random", catches: CATCHES, lengths: draw.lengths() };
    let mut data = tokens(&shape, draw.pick(&Mask::ALL), draw.pick(&Range::ALL), source.fork(3));
    if matches!(params, Params::Aggregate { .. } | Params::RowScan { .. }) {
        let value = |i| if data.live(i) { spread(source.fork(4), i) } else { garbage(i) };
        data.element = vec![(0..data.elements()).map(value).collect()];
        data.row.clear();
    }
    Some(case(params, data))
}

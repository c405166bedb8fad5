//! `rollout_mismatch`, `rollout_correction`, `normalize_weights`.

use super::prelude::*;
use crate::expect::correction as expect;
use crate::oracle::normalize as scaled;
use lockstep_core::correction::mismatch::{self, RolloutMismatch};
use lockstep_core::correction::weights::{self, RolloutCorrection, Rule, WeightLevel};
use lockstep_core::correction::{K1Band, NormalizeWeights, Rejections, Statistic};

/// A rejection: statistic, bounds, and what k1's band applies to.
type Reject = (Statistic, Option<f32>, f32, K1Band);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Correction {
    Mismatch { bound: f32 },
    Weights(Weights),
    Normalize { totals: [f64; 2] },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    pub level: WeightLevel,
    pub rule: Rule,
    pub low: Option<f32>,
    pub high: f32,
    pub bound: f32,
    pub reject: [Option<Reject>; 3],
}

const EXP: &str = "exp or expm1 within 1.4 ULP; the rounding of d is in the magnitude";

pub(crate) const MISMATCH: [&str; mismatch::sum::SUMS] = [
    "log",
    "k1",
    "k2",
    "k3",
    "excess",
    "squared",
    "beyond_1.25",
    "beyond_2",
    "beyond_5",
    "beyond_10",
    "sequence",
    "sequence_squared",
    "perplexity",
    "live",
];
pub(crate) const WEIGHTS: [&str; weights::sum::SUMS] =
    ["excess", "squared", "weight", "raw", "above", "below", "kept", "tokens", "row_weight", "live"];
pub(crate) const MAXIMA: [&str; 4] = ["max_weight", "max_neg_weight", "max_rho", "max_neg_rho"];

impl OpTest for Correction {
    names! {
        Correction::Weights(_) => "rollout_correction",
        Correction::Mismatch { .. } => "rollout_mismatch",
        Correction::Normalize { .. } => "normalize_weights",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("rollout_mismatch", &["log", "k1"], 1.0, TERMS),
        allow("rollout_mismatch", &["k2", "excess", "squared"], 2.0, TERMS),
        allow("rollout_mismatch", &["k3"], 3.0, TERMS),
        allow("rollout_mismatch", &["sequence", "sequence_squared", "perplexity"], 3.0, EXP),
        allow("rollout_mismatch", &["max_d", "max_neg_d"], 1.0, "one subtraction"),
        allow("rollout_correction", &["weights"], 3.0, EXP),
        allow("rollout_correction", &["excess", "squared", "weight", "raw", "row_weight"], 3.0, TERMS),
        allow("rollout_correction", &MAXIMA, 3.0, EXP),
        allow("normalize_weights", &["normalized"], 1.0, ROUNDED),
    ];
    const CATCHES: &'static str = "a clamp before instead of after the sum; a band on 1/ρ; a mean over \
                                   masked tokens; rejected tokens that keep their weight";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (cu_seqlens, loss_mask) = (data.packed()?, data.masked());
        match *self {
            Correction::Mismatch { bound } => backend.run(&RolloutMismatch {
                cu_seqlens,
                loss_mask,
                logp_old: In::new(&data.element[0]),
                logp_rollout: In::new(&data.element[1]),
                bound,
                row_sums: out.rows(&MISMATCH),
                row_maxima: out.rows(&["max_d", "max_neg_d"]),
                row_tokens: out.row("row_tokens"),
                row_alarm: out.alarm(),
            }),
            Correction::Weights(params) => backend.run(&RolloutCorrection {
                cu_seqlens,
                loss_mask,
                logp_old: In::new(&data.element[0]),
                logp_rollout: In::new(&data.element[1]),
                level: params.level,
                rule: params.rule,
                band: [params.low.unwrap_or(1.0 / params.high), params.high],
                bounded_below: params.low.is_some(),
                bound: params.bound,
                rejections: params.rejections()?,
                weights: out.element("weights"),
                kept_mask: out.element("kept_mask"),
                row_kept: out.row("row_kept"),
                row_sums: out.rows(&WEIGHTS),
                row_maxima: out.rows(&MAXIMA),
                row_alarm: out.alarm(),
            }),
            Correction::Normalize { totals } => backend.run(&NormalizeWeights {
                cu_seqlens,
                loss_mask,
                weights: In::new(&data.element[3]),
                totals: In::new(&[f64::NAN, totals[1], totals[0]]),
                numerator: 2,
                denominator: 1,
                normalized: out.element("normalized"),
            }),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        match *self {
            Correction::Mismatch { bound } => expect::mismatch(data, bound.into()),
            Correction::Weights(params) => params.expect(data),
            Correction::Normalize { totals } => vec![Want::live("normalized", data, |_, i| {
                let y = scaled::normalize(data.element[3][i].into(), totals[0], totals[1]);
                (y, y.abs())
            })],
        }
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        let mut add = |params: Correction, shape: &Shape, range: Range| {
            let k = cases.len();
            cases.push(case(params, shape, Mask::ALL[k % 6], range, source.fork(k as u64)));
        };
        for (k, range) in Range::ALL.into_iter().enumerate() {
            add(Correction::Mismatch { bound: [20.0, 5.0][k % 2] }, &small()[k % 3], range);
        }
        add(Correction::Mismatch { bound: f32::INFINITY }, &small()[0], Range::Realistic);
        add(Correction::Mismatch { bound: 20.0 }, &large(), Range::Realistic);
        for ((level, rule), k) in pairs(pairs(LEVELS, RULES), 0..3) {
            let ((low, high), bound) = (BANDS[k], [20.0, 20.0, 5.0][k]);
            let params = Weights { level, rule, low, high, bound, reject: REJECTS[k] };
            add(Correction::Weights(params), &small()[k], [Range::Realistic, Range::Wide, Range::Ties][k]);
        }
        // Every statistic on its own.
        for statistic in Statistic::ALL {
            let k1 = statistic.is_k1();
            let (low, high) = match k1 {
                true => (Some(0.7), 1.6),
                false => (statistic.is_difference().then_some(-0.05), 0.03),
            };
            for band in [K1Band::Rho, K1Band::InverseRho].into_iter().take(if k1 { 2 } else { 1 }) {
                let reject = [Some((statistic, low, high, band)), None, None];
                let params = Weights { reject, bound: f32::INFINITY, ..ROUNDTRIP };
                add(Correction::Weights(params), &small()[0], Range::Realistic);
            }
        }
        add(Correction::Weights(Weights { reject: REJECTS[0], ..ROUNDTRIP }), &large(), Range::Realistic);
        for totals in TOTALS {
            add(Correction::Normalize { totals }, &small()[0], Range::Realistic);
        }
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let range = draw.pick(&Range::ALL);
        let params = match op {
            "rollout_mismatch" => Correction::Mismatch { bound: draw.pick(&[20.0, 5.0, 0.5]) },
            "normalize_weights" => Correction::Normalize { totals: draw.pick(&TOTALS) },
            _ => {
                let (low, high) = draw.pick(&BANDS);
                let reject = if draw.yes() { [None; 3] } else { draw.pick(&REJECTS) };
                let (level, rule) = (draw.pick(&LEVELS), draw.pick(&RULES));
                let bound = draw.pick(&[20.0, 5.0]);
                Correction::Weights(Weights { level, rule, low, high, bound, reject })
            }
        };
        case(params, &draw.shape(), draw.pick(&Mask::ALL), range, draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        match self {
            Correction::Normalize { .. } => Vec::new(),
            _ => vec![(0, NO_LOGP), (1, NO_LOGP)],
        }
    }
}

const LEVELS: [WeightLevel; 4] =
    [WeightLevel::Token, WeightLevel::Sequence, WeightLevel::Geometric, WeightLevel::One];
const RULES: [Rule; 3] = [Rule::Truncate, Rule::Mask, Rule::Plain];
/// An upper bound only, IcePop's band, and one that ordinary ratios reach. None of their ends equals e^±0.5
/// or e^0.125.
const BANDS: [(Option<f32>, f32); 3] = [(None, 1.3), (Some(0.5), 5.0), (Some(0.9), 1.1)];
const REJECTS: [[Option<Reject>; 3]; 4] = {
    use Statistic as S;
    const fn on(statistic: S, low: Option<f32>, high: f32) -> Option<Reject> {
        Some((statistic, low, high, K1Band::Rho))
    }
    let inverse = Some((S::SeqSumK1, Some(0.001), 50.0, K1Band::InverseRho));
    [
        [on(S::TokenK1, Some(0.7), 1.3), on(S::SeqMeanK3, None, 0.05), None],
        [inverse, on(S::TokenK3, None, 1e6), on(S::SeqMaxK2, None, 190.0)],
        [on(S::SeqMeanK1, Some(0.4), 1.5), on(S::TokenK2, None, 3.0), on(S::SeqMaxK3, None, 1e9)],
        [on(S::TokenDiff, Some(-0.2), 0.1), on(S::SeqMeanDiff, None, 0.05), on(S::SeqMaxK1, Some(0.5), 3.0)],
    ]
};
const ROUNDTRIP: Weights = Weights {
    level: WeightLevel::Token,
    rule: Rule::Truncate,
    low: None,
    high: 2.0,
    bound: 20.0,
    reject: [None; 3],
};
/// Ordinary; a mean that is too small; a sum of zero; nothing counted.
const TOTALS: [[f64; 2]; 4] = [[1234.5, 1000.0], [1e-9, 1.0], [0.0, 7.0], [0.0, 0.0]];

fn case(params: Correction, shape: &Shape, mask: Mask, range: Range, source: Source) -> Case {
    let label = format!("{} {mask:?} {range:?} {params:?}", shape.name);
    Case::of(params, label, tokens(shape, mask, range, source))
}

impl Weights {
    fn rejections(&self) -> Result<Rejections, String> {
        let listed = self.reject.into_iter().flatten();
        listed.clone().try_fold(Rejections::NONE, |all, (statistic, low, high, band)| {
            all.with(statistic, low, high, band).map_err(|e| e.to_string())
        })
    }
}

//! `log_ratio_scan`, `proximal_logp`, `staleness`, `effective_sample_size`.

use super::prelude::*;
use crate::expect::tokens::difference;
use crate::oracle::aggregate::exact_sum;
use crate::oracle::ess as sizes;
use crate::oracle::log_ratio_scan as scan;
use crate::oracle::proximal as prox;
use crate::oracle::staleness as stale;
use lockstep_core::ratio::{
    EffectiveSampleSize, Interpolation, LogRatioScan, ProximalLogp, ScanKind, Staleness,
};

/// Arguments of the four ops. Versions are [`Data::index`]; `u32::MAX` means −1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ratios {
    Scan { kind: ScanKind, cap: bool },
    Proximal { current: i32, interpolation: Interpolation },
    Staleness { current: i32, max: i32 },
    Ess { eps: f64 },
}

const DIFFERENCES: &str = "a difference, and a binary64 sum or a minimum of those, rounded once more";

impl OpTest for Ratios {
    names! {
        Ratios::Scan { .. } => "log_ratio_scan",
        Ratios::Proximal { .. } => "proximal_logp",
        Ratios::Staleness { .. } => "staleness",
        Ratios::Ess { .. } => "effective_sample_size",
    }
    const ALLOWED: &'static [Allowance] = &[
        allow("log_ratio_scan", &["log_ratio"], 2.0, DIFFERENCES),
        allow("proximal_logp", &["logp_prox"], 4.0, "two exponentials, a logarithm; or rounded once"),
        allow("staleness", &["kept_mask"], 0.0, "a decision on integers"),
        allow("effective_sample_size", &["squares", "ess"], 1e-7, SUM64),
    ];
    const CATCHES: &'static str = "a masked token that enters a minimum; the exclusive prefix as the \
                                   inclusive one less its end; a carry lost between blocks";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (offsets, mask) = (data.packed()?, data.masked());
        let versions: Vec<i32> = data.index.iter().map(|v| v.cast_signed()).collect();
        match *self {
            Ratios::Scan { kind, cap } => backend.run(&LogRatioScan {
                offsets,
                loss_mask: mask,
                logp: In::new(&data.element[slot::LOGP]),
                logp_old: In::new(&data.element[slot::LOGP_OLD]),
                kind,
                cap_at_one: cap,
                log_ratio: out.element("log_ratio"),
                row_alarm: out.alarm(),
            }),
            Ratios::Proximal { current, interpolation } => backend.run(&ProximalLogp {
                cu_seqlens: offsets,
                loss_mask: mask,
                versions: In::new(&versions),
                current,
                logp_behave: In::new(&data.element[slot::LOGP_OLD]),
                logp: In::new(&data.element[slot::LOGP]),
                interpolation,
                logp_prox: out.element("logp_prox"),
                row_alarm: out.alarm(),
            }),
            Ratios::Staleness { current, max } => backend.run(&Staleness {
                cu_seqlens: offsets,
                loss_mask: mask,
                versions: In::new(&versions),
                current,
                max_staleness: max,
                kept_mask: out.element("kept_mask"),
                // −1 as the largest number.
                row_start: out.row("row_start"),
                row_off_policy: out.row("row_off_policy"),
                row_kept: out.row("row_kept"),
            }),
            Ratios::Ess { eps } => backend.run(&EffectiveSampleSize {
                offsets,
                mask,
                weights: In::new(&data.element[slot::WEIGHTS]),
                eps,
                row_sums: out.rows(&["total", "squares"]),
                row_ess: out.row("ess"),
                row_alarm: out.alarm(),
            }),
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        match *self {
            Ratios::Scan { kind, cap } => vec![expect_scan(data, kind, cap)],
            Ratios::Proximal { current, interpolation } => {
                vec![Want::live("logp_prox", data, |_, i| {
                    let [b, p] = [slot::LOGP_OLD, slot::LOGP].map(|k| f64::from(data.element[k][i]));
                    let alpha = prox::alpha(data.index[i].cast_signed().into(), current.into());
                    // A relative error of a linear sum is an absolute error of its logarithm.
                    let (y, more) = match interpolation {
                        Interpolation::Loglinear => (prox::loglinear(b, p, alpha), 0.0),
                        Interpolation::Linear => (prox::linear(b, p, alpha), 1.0),
                    };
                    (y, more + y.abs())
                })]
            }
            Ratios::Staleness { current, max } => {
                let mut wants = ["kept_mask", "row_start", "row_off_policy", "row_kept"].map(Want::new);
                let version = |i: usize| Some(i64::from(data.index[i].cast_signed())).filter(|v| *v >= 0);
                for r in 0..data.rows() {
                    let mut left = 0;
                    for i in data.span(r) {
                        let kept = data.live(i) && stale::kept(version(i), current.into(), max.into());
                        wants[0].exact(kept);
                        left += usize::from(kept);
                    }
                    let live: Vec<Option<i64>> = data.members(r).into_iter().map(version).collect();
                    let (start, off) = stale::of_row(&live, current.into());
                    let start = if start < 0 { f64::from(u32::MAX) } else { start as f64 };
                    push_all(&mut wants[1..], [start, off as f64, left as f64].map(|value| (value, 0.0)));
                }
                wants.into()
            }
            Ratios::Ess { eps } => {
                let mut wants = ["total", "squares", "ess"].map(Want::new);
                for r in 0..data.rows() {
                    let live = data.members(r).into_iter();
                    let w: Vec<f64> = live.map(|i| data.element[slot::WEIGHTS][i].into()).collect();
                    let squares = exact_sum(w.iter().map(|w| w * w));
                    let values = [exact_sum(w.iter().copied()), squares, sizes::ess(&w, eps)];
                    push_all(&mut wants, values.map(|value| (value, value)));
                }
                wants.into()
            }
        }
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        let mut add = |params: Ratios, shape: &Shape, range: Range| {
            let k = cases.len();
            cases.push(case(params, shape, Mask::ALL[k % 6], range, source.fork(k as u64)));
        };
        for ((k, kind), (j, range)) in
            pairs(KINDS.into_iter().enumerate(), Range::ALL.into_iter().enumerate())
        {
            add(Ratios::Scan { kind, cap: j % 2 == 0 }, &small()[(k + j) % 3], range);
        }
        add(Ratios::Scan { kind: ScanKind::MinBefore, cap: true }, &large(), Range::Realistic);
        let interpolations = [Interpolation::Loglinear, Interpolation::Linear];
        for (interpolation, (j, range)) in pairs(interpolations, Range::ALL.into_iter().enumerate()) {
            add(Ratios::Proximal { current: CURRENT[j], interpolation }, &small()[j % 3], range);
        }
        for (j, max) in MAX.into_iter().enumerate() {
            add(Ratios::Staleness { current: CURRENT[j % 4], max }, &small()[j % 3], Range::Realistic);
        }
        for (j, eps) in EPS.into_iter().enumerate() {
            add(Ratios::Ess { eps }, &small()[j], Range::Realistic);
        }
        add(Ratios::Ess { eps: EPS[0] }, &large(), Range::Realistic);
        cases
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let (current, range) = (draw.pick(&CURRENT), draw.pick(&Range::ALL));
        let interpolation = if draw.yes() { Interpolation::Linear } else { Interpolation::Loglinear };
        let params = match op {
            "log_ratio_scan" => Ratios::Scan { kind: draw.pick(&KINDS), cap: draw.yes() },
            "proximal_logp" => Ratios::Proximal { current, interpolation },
            "staleness" => Ratios::Staleness { current, max: draw.pick(&MAX) },
            _ => Ratios::Ess { eps: draw.pick(&EPS) },
        };
        case(params, &draw.shape(), draw.pick(&Mask::ALL), range, draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        match self {
            Ratios::Scan { .. } | Ratios::Proximal { .. } => {
                [slot::LOGP, slot::LOGP_OLD].map(|slot| (slot, NO_LOGP)).into()
            }
            Ratios::Staleness { .. } => Vec::new(),
            Ratios::Ess { .. } => vec![(slot::WEIGHTS, NO_WEIGHT)],
        }
    }
}

const KINDS: [ScanKind; 6] = {
    use ScanKind::{Mean, Min, MinBefore, Prefix, PrefixBefore, Sum};
    [Prefix, PrefixBefore, MinBefore, Min, Sum, Mean]
};
/// Ordinary; the first; the largest valid one; ordinary.
const CURRENT: [i32; 4] = [7, 0, (1 << 24) - 1, 4];
const MAX: [i32; 5] = [0, 1, 3, 0, i32::MAX];
const EPS: [f64; 3] = [1e-8, 0.0, 1e-4];

fn case(params: Ratios, shape: &Shape, mask: Mask, range: Range, source: Source) -> Case {
    let mut data = tokens(shape, mask, range, source);
    let current = match params {
        Ratios::Proximal { current, .. } | Ratios::Staleness { current, .. } => current,
        _ => 0,
    };
    // A few versions back, none, the current one, or a later one; arbitrary under the mask.
    let version = |i: usize| current + 2 - source.fork(20).below(i, 8) as i32;
    data.index = (0..data.elements()).map(|i| version(i).clamp(-1, (1 << 24) - 1).cast_unsigned()).collect();
    Case::of(params, format!("{} {mask:?} {range:?} {params:?}", shape.name), data)
}

fn expect_scan(data: &Data, kind: ScanKind, cap: bool) -> Want {
    let oracle = same!(kind, ScanKind => scan::Kind, Prefix PrefixBefore MinBefore Min Sum Mean);
    let mut want = Want::new("log_ratio");
    for r in 0..data.rows() {
        let of = |i: &usize| difference(data.element[slot::LOGP][*i], data.element[slot::LOGP_OLD][*i]).0;
        let d: Vec<f64> = data.members(r).iter().map(of).collect();
        let magnitudes: Vec<f64> = d.iter().map(|d| d.abs()).collect();
        let values = incremental(&d, oracle, cap);
        let magnitudes: Vec<f64> = match kind {
            // For a minimum only one element counts; the largest of all errors bounds its error.
            ScanKind::MinBefore | ScanKind::Min => {
                values.iter().zip(&d).map(|(y, d)| y.abs() + d.abs()).collect()
            }
            ScanKind::PrefixBefore => incremental(&magnitudes, scan::Kind::Prefix, false),
            _ => incremental(&magnitudes, oracle, false),
        };
        let mut live = values.into_iter().zip(magnitudes);
        for i in data.span(r) {
            let found = if data.live(i) { live.next().unwrap_or((f64::NAN, 0.0)) } else { (0.0, 0.0) };
            want.push(found.0, found.1);
        }
    }
    want
}

/// The oracle over a row; a long row is processed in steps, so that the time does not grow with its square.
fn incremental(d: &[f64], kind: scan::Kind, cap: bool) -> Vec<f64> {
    if d.len() <= 300 || matches!(kind, scan::Kind::Sum | scan::Kind::Mean) {
        return scan::row(d, kind, cap);
    }
    // All that a token needs from its prefix is one number: a sum or a minimum.
    let (mut out, mut before) = (Vec::with_capacity(d.len()), Vec::new());
    for d in d {
        before.push(*d);
        out.push(*scan::row(&before, kind, cap).last().unwrap_or(&f64::NAN));
        if before.len() > 1 {
            let folded = match kind {
                scan::Kind::Prefix | scan::Kind::PrefixBefore => before[0] + before[1],
                _ => before[0].min(before[1]),
            };
            before = vec![folded];
        }
    }
    out
}

//! `group_advantage` with every baseline and scale.

use super::prelude::*;
use crate::oracle::baseline as oracle;
use crate::oracle::moments as batch;
use lockstep_core::advantage::grpo::{NO_PIVOT, status};
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale, Singleton};
use lockstep_core::aggregate::moments::{COUNT, HIGH, LOW, MEAN, MOMENTS, NONZERO, SQUARES};

/// Arguments of `group_advantage`. Per element: rewards, weights; lengths in [`Data::index`]; per row: the
/// given baseline. The pivot is wanted where there is a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    pub baseline: Baseline,
    pub scale: Scale,
    pub singleton: Singleton,
    pub limit: f64,
    /// Deviations up to this value do not divide.
    pub least_std: f64,
    /// Moments of a batch that these groups belong to.
    pub moments: [f64; MOMENTS],
}

impl OpTest for Group {
    const OPS: &'static [&'static str] = &["group_advantage"];
    const ALLOWED: &'static [Allowance] =
        &[allow("group_advantage", &["advantage", "mean", "std", "residual"], 1.0, ROUNDED)];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&GroupAdvantage {
            cu_groups: data.packed()?,
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            baseline: self.baseline,
            scale: self.scale,
            singleton: self.singleton,
            limit: self.limit,
            least_std: self.least_std,
            weights: self.baseline.needs_weights().then(|| In::new(&data.element[1][..])),
            lengths: (self.baseline == Baseline::Length).then(|| In::new(&data.index[..])),
            given: self.baseline.needs_given().then(|| In::new(&data.row[0][..])),
            moments: self.scale.needs_moments().then(|| In::new(&self.moments[..])),
            advantage: out.element("advantage"),
            mean: out.row("mean"),
            std: out.row("std"),
            counted: out.row("counted"),
            status: out.row("status"),
            pivot: (!data.row.is_empty()).then(|| out.row("pivot")),
            residual: (!data.row.is_empty()).then(|| out.element("residual")),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let names = ["advantage", "residual", "mean", "std", "counted", "status", "pivot"];
        let [mut advantage, mut residual, mut mean, mut std, mut counted, mut bits, mut pivot] =
            names.map(Want::new);
        let weigh = |i: usize| match self.baseline {
            Baseline::Length => f64::from(data.index[i]),
            Baseline::Weighted { .. } => f64::from(data.element[1][i]),
            _ => 0.0,
        };
        for r in 0..data.rows() {
            let span = data.span(r);
            let member = |i: usize| oracle::Member { reward: data.element[0][i].into(), weight: weigh(i) };
            let members: Vec<Option<oracle::Member>> =
                span.clone().map(|i| data.scored(i).then(|| member(i))).collect();
            let given = if self.baseline.needs_given() { f64::from(data.row[0][r]) } else { 0.0 };
            let raw = self.singleton == Singleton::RawReward;
            let (baseline, scale) = (self.oracle_baseline(), self.oracle_scale());
            let limits = [self.limit, self.least_std];
            let group = oracle::group(baseline, scale, limits, &members, given, raw);
            let kept: Vec<f64> = members.iter().flatten().map(|m| m.reward).collect();
            // Core sums in binary64 in its own order: off by 1e-8 of a unit of 2^-24 of the largest number.
            let noise = 1e-8 * kept.iter().fold(given.abs(), |m: f64, r| m.max(r.abs()));
            for (k, a) in group.advantage.iter().enumerate() {
                let relative = noise / group.divisor[k].abs();
                let noise = if *a == 0.0 && group.baseline == 0.0 { 0.0 } else { relative * (1.0 + a.abs()) };
                let exact = members[k].is_none() || (*a == 0.0 && self.is_exactly_zero(&kept, raw));
                advantage.push(*a, if exact { 0.0 } else { a.abs() + noise });
                // At most half a place of the advantage; tests/all/whole.rs has their sum.
                residual.push(0.0, if exact { 0.0 } else { a.abs() + noise });
            }
            mean.push(group.baseline, group.baseline.abs() + noise);
            std.push(
                group.spread,
                group.spread.abs() + if matches!(self.scale, Scale::Mean { .. }) { noise } else { 0.0 },
            );
            counted.push(kept.len() as f64, 0.0);
            let constant = kept.iter().all(|r| *r == kept[0]) && !kept.is_empty();
            let nan = span.clone().any(|i| data.live(i) && !data.scored(i));
            bits.exact(
                u32::from(kept.len() == 1) * status::SINGLETON
                    + u32::from(constant) * status::CONSTANT
                    + u32::from(kept.is_empty()) * status::NONE_COUNTED
                    + u32::from(nan) * status::NAN_EXCLUDED,
            );
            pivot.push(group.pivot.map_or(f64::from(NO_PIVOT), |p| p as f64), 0.0);
        }
        vec![advantage, residual, mean, std, counted, bits, pivot]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        let none = Scale::None { ddof: 1 };
        let (std, of_all) = (Scale::Std { ddof: 1, eps: 1e-6 }, Scale::Std { ddof: 0, eps: 0.0 });
        let mad = |floor| Scale::Mad { floor };
        let others = Scale::LeaveOneOutStd { ddof: 1, eps: 1e-6 };
        let batch = Scale::Batch { ddof: 1, eps: 1e-4 };
        let around = |ddof| Scale::RootMeanSquare { ddof, eps: 1e-5 };
        let choices = [
            (Baseline::LeaveOneOut, none, "RLOO"),
            (Baseline::LeaveOneOut, others, "NeMo: a residual deviation of equal others (NeMo-RL #4158)"),
            (Baseline::Mean, Scale::LeaveOneOutStd { ddof: 0, eps: 0.0 }, "0/0 where the others are equal"),
            (Baseline::Mean, batch, "batch std: a group's own deviation instead"),
            (Baseline::Mean, Scale::Nonzero { norm: 1.5 }, "GPG: alpha upside down"),
            (Baseline::Mean, Scale::Mean { eps: 1e-6 }, "MaxRL: a mean of 0"),
            (Baseline::Length, none, "OPO: padded lengths; a group without tokens"),
            (Baseline::Weighted { eps: 1e-8 }, of_all, "VCPO: weights of those not counted"),
            (Baseline::Weighted { eps: 0.0 }, batch, "all weights 0"),
            (Baseline::Median, mad(1e-3), "MC-GRPO: the upper median; a pivot that is not the lowest"),
            (Baseline::Median, none, "a median without its MAD"),
            (Baseline::Mean, mad(0.5), "a MAD around the median instead of the baseline"),
            (Baseline::Second, std, "pass@k: a tie of maxima; a second best that is not counted"),
            (Baseline::Second, none, "pass@k without the deviation"),
            (Baseline::Given, none, "ReMax: zeros for equal rewards"),
            (Baseline::Given, std, "a division by the deviation 0 of equal rewards"),
            (Baseline::Given, mad(0.0), "the same for the MAD"),
            (Baseline::Shrunk { tau2: 0.0, laplace: false }, none, "V0.5: a weight above 1"),
            (Baseline::Shrunk { tau2: 0.05, laplace: true }, none, "V0.5: no data at all"),
            (Baseline::Given, around(1), "AReaL: a deviation around the mean; a group of one"),
            (Baseline::LeaveOneOut, around(0), "AReaL: a deviation around the mean of all"),
        ];
        for (k, (baseline, scale, catches)) in choices.into_iter().enumerate() {
            for (s, singleton) in [Singleton::Zero, Singleton::RawReward].into_iter().enumerate() {
                let limit = if k % 3 == 2 && s == 1 { 1.25 } else { f64::INFINITY };
                let source = source.fork(2 * k as u64 + s as u64);
                let params =
                    Group { singleton, limit, moments: moments(source), ..Group::of(baseline, scale) };
                cases.push(case(params, catches, &rewards::sizes(), (k + s) % 2 == 1, source));
            }
        }
        for (k, index) in [9, 1].into_iter().enumerate() {
            let (baseline, scale, _) = choices[index];
            let (source, catches) =
                (source.fork(1000 + k as u64), "a block of pairs left out of a large group");
            let params = Group { moments: moments(source), ..Group::of(baseline, scale) };
            cases.push(case(params, catches, &[1000, 0, 777], true, source));
        }
        // Deviations on both sides of it, both of the group and of the batch.
        for (k, index) in [7, 3].into_iter().enumerate() {
            let (baseline, scale, _) = choices[index];
            let (source, catches) = (source.fork(2000 + k as u64), "VCPO: a division by a small deviation");
            let params = Group { moments: moments(source), least_std: 0.45, ..Group::of(baseline, scale) };
            cases.push(case(params, catches, &rewards::sizes(), true, source));
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let (ddof, eps) = (draw.below(2) as u32, draw.pick(&[1e-6, 1e-4, 1e-8, 0.0]));
        let baseline = draw.pick(&[
            Baseline::Mean,
            Baseline::Mean,
            Baseline::LeaveOneOut,
            Baseline::Weighted { eps },
            Baseline::Length,
            Baseline::Median,
            Baseline::Second,
            Baseline::Given,
            Baseline::Shrunk { tau2: 0.0, laplace: ddof == 1 },
            Baseline::Shrunk { tau2: 0.05, laplace: ddof == 0 },
        ]);
        let scale = draw.pick(&[
            Scale::None { ddof },
            Scale::Std { ddof, eps },
            Scale::Std { ddof, eps },
            Scale::LeaveOneOutStd { ddof, eps },
            Scale::Mad { floor: 1e-3 },
            Scale::Mean { eps },
            Scale::Batch { ddof, eps },
            Scale::RootMeanSquare { ddof, eps },
            Scale::Nonzero { norm: 2.0 },
        ]);
        let sizes: Vec<u32> =
            draw.lengths().into_iter().map(|n| if n % 3 == 0 { n } else { n % 18 }).collect();
        let singleton = draw.pick(&[Singleton::Zero, Singleton::RawReward]);
        let limit = draw.pick(&[f64::INFINITY, f64::INFINITY, 0.75]);
        let (valid, source) = (draw.yes(), draw.source());
        let least_std = match scale {
            Scale::Std { .. } | Scale::Batch { .. } => draw.pick(&[0.0, 0.0, 1e-8, 0.3]),
            _ => 0.0,
        };
        let params = Group { baseline, scale, singleton, limit, moments: moments(source), least_std };
        case(params, "whatever nobody thought of", &sizes, valid, source)
    }
}

impl Group {
    /// No limits and no moments; a group of one gets 0.
    fn of(baseline: Baseline, scale: Scale) -> Group {
        let (singleton, limit) = (Singleton::Zero, f64::INFINITY);
        Group { baseline, scale, singleton, limit, least_std: 0.0, moments: [0.0; MOMENTS] }
    }

    fn oracle_baseline(&self) -> oracle::Baseline {
        match self.baseline {
            Baseline::Mean => oracle::Baseline::Mean,
            Baseline::LeaveOneOut => oracle::Baseline::LeaveOneOut,
            Baseline::Weighted { eps } => oracle::Baseline::Weighted { eps },
            Baseline::Length => oracle::Baseline::Weighted { eps: 0.0 },
            Baseline::Median => oracle::Baseline::Median,
            Baseline::Second => oracle::Baseline::Second,
            Baseline::Given => oracle::Baseline::Given,
            Baseline::Shrunk { tau2, laplace } => oracle::Baseline::Shrunk { tau2, laplace },
        }
    }

    fn oracle_scale(&self) -> oracle::Scale {
        let [count, mean, squares, low, high, nonzero] =
            [COUNT, MEAN, SQUARES, LOW, HIGH, NONZERO].map(|k| self.moments[k]);
        let batch = batch::Moments { count, mean, squares, low, high, nonzero, magnitude: 0.0 };
        match self.scale {
            Scale::None { ddof } => oracle::Scale::None { ddof: ddof.into() },
            Scale::Std { ddof, eps } => oracle::Scale::Std { ddof: ddof.into(), eps },
            Scale::LeaveOneOutStd { ddof, eps } => oracle::Scale::LeaveOneOutStd { ddof: ddof.into(), eps },
            Scale::RootMeanSquare { ddof, eps } => oracle::Scale::RootMeanSquare { ddof: ddof.into(), eps },
            Scale::Mad { floor } => oracle::Scale::Mad { floor },
            Scale::Mean { eps } => oracle::Scale::Mean { eps },
            Scale::Batch { ddof, eps } => {
                oracle::Scale::Batch { std: batch.variance(ddof.into()).sqrt(), eps }
            }
            Scale::Nonzero { norm } => oracle::Scale::Fraction { of: norm * nonzero.max(1.0) / count },
        }
    }

    /// Whether equal rewards must give exactly 0.
    fn is_exactly_zero(&self, kept: &[f64], raw: bool) -> bool {
        let constant = kept.iter().all(|r| *r == kept[0]);
        constant && self.baseline.is_of_the_group() && !(raw && kept.len() == 1)
    }
}

/// Moments of a batch; every fifth has no spread.
fn moments(source: Source) -> [f64; MOMENTS] {
    let spread = f64::from(source.fork(77).unit(0)) + 0.1;
    if source.below(5, 5) == 0 {
        return [100.0, 0.5, 0.0, 0.5, 0.5, 100.0];
    }
    [64.0, 0.25, 63.0 * spread, -1.0, 1.0, source.below(6, 64) as f64]
}

/// GRPO and Dr.GRPO: rewards alone.
pub(crate) fn grpo(source: Source) -> Vec<Case> {
    let scales = pairs([true, false], [(1, 1e-6), (0, 1e-4), (1, 0.0)]);
    let all = pairs(scales, [Singleton::Zero, Singleton::RawReward]);
    numbered(all, source, |k, ((by_std, (ddof, eps)), singleton), source| {
        let (valid, catches) = (k % 2 == 1, "see the kinds of group");
        let scale = if by_std { Scale::Std { ddof, eps } } else { Scale::None { ddof } };
        let params = Group { singleton, ..Group::of(Baseline::Mean, scale) }.into();
        let data = rewards::groups(&rewards::sizes(), valid, source);
        Case { label: format!("{k}: all kinds of group, valid {valid}"), catches, params, data }
    })
}

fn case(params: Group, catches: &'static str, sizes: &[u32], valid: bool, source: Source) -> Case {
    let mut data = rewards::groups(sizes, valid, source.fork(1));
    let n = data.elements();
    // Some groups have no weight at all.
    let group = |i: usize| data.offsets.iter().filter(|start| **start as usize <= i).count();
    let weight = |i: usize| if group(i) % 7 == 3 { 0.0 } else { values::weight(source.fork(2), i) };
    let length = |i: usize| if group(i) % 7 == 5 { 0 } else { source.fork(3).below(i, 5000) as u32 };
    let (weights, index) = (data.array(weight), (0..n).map(length).collect());
    data.element.push(weights);
    data.index = index;
    data.row = vec![data.per_row(|r| source.fork(4).unit(r))];
    Case { catches, ..Case::of_groups(params, valid, data) }
}

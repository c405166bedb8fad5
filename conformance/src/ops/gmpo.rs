//! `policy_loss_gmpo`.

use super::prelude::*;
use crate::cases::corpus::tokens;
use crate::cases::params::{BAND, COUNTED, Partials, guards};
use crate::cases::values::Range;
use crate::expect::{Sum, tokens as expected};
use crate::launch::{MAXIMA, POLICY_SUMS};
use crate::oracle::gmpo as oracle;
use lockstep_core::aggregate::{PerRow, Weight};
use lockstep_core::policy_loss::gmpo::Mean;
use lockstep_core::policy_loss::{MetricsOut, PolicyLossGmpo};
use lockstep_core::ratio::Guard;

/// Arguments of `policy_loss_gmpo`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gmpo {
    /// Guard.
    pub guard: Guard,
    /// How a sequence's ratio is made from its tokens' ratios.
    pub mean: Mean,
    /// Bounds of the log-ratio.
    pub clip: [f32; 2],
    /// Denominator.
    pub denominator: f64,
    /// If set, it is read from memory as this many [`Partials`].
    pub counted: Option<usize>,
    /// Advantages per token.
    pub per_token: bool,
    /// Whether there are weights.
    pub weights: bool,
    /// Whether the loss is wanted.
    pub loss: bool,
    /// Whether metrics are wanted.
    pub metrics: bool,
}

const CLIPS: [[f32; 2]; 4] = [[0.4, 0.4], [0.0, 0.0], [0.05, 0.1], [3.0, 0.2]];
const MEANS_OF_RATIOS: [Mean; 4] = [Mean::Geometric, Mean::ClippedSum, Mean::Product, Mean::Harmonic];
/// Ranges in which products and sums of inverses stay finite.
const NARROW: [Range; 2] = [Range::Realistic, Range::Tiny];
const TERMS: &str = "terms rounded once, summed in binary64";
const MEANS: &str = "binary64 means of rounded terms, one exponential, two products";

const fn allow(output: &'static str, units: f64, reason: &'static str) -> Allowance {
    Allowance { op: "policy_loss_gmpo", output, units, reason }
}

impl OpTest for Gmpo {
    const OPS: &'static [&'static str] = &["policy_loss_gmpo"];
    const ALLOWED: &'static [Allowance] = &[
        allow("coef", 2.0, MEANS),
        allow("row_loss", 2.0, MEANS),
        allow("sum_loss", 2.0, MEANS),
        allow("sum_policy", 2.0, MEANS),
        allow("sum_k1", 1.0, TERMS),
        allow("sum_excess", 2.0, TERMS),
        allow("sum_excess_squared", 2.0, TERMS),
        allow("sum_neg_logp", 1e-7, "binary64 sums in another order"),
        allow("max_ratio", 2.0, "exp"),
        allow("max_neg_ratio", 2.0, "exp"),
    ];

    fn op(&self) -> &'static str {
        "policy_loss_gmpo"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let input = |k: usize| In::new(&data.element[k][..]);
        let weight = Weight { per_row: PerRow::One, denominator: self.denominator, scale: 1.0 };
        let partials = Partials::of(weight, self.counted);
        let kernel = PolicyLossGmpo {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            logp: input(slot::LOGP),
            logp_old: input(slot::LOGP_OLD),
            advantage: if self.per_token { input(slot::ADVANTAGE) } else { In::new(&data.row[0][..]) },
            advantage_per_token: self.per_token,
            weights: self.weights.then(|| input(slot::WEIGHTS)),
            guard: self.guard,
            mean: self.mean,
            clip_log_low: self.clip[0],
            clip_log_high: self.clip[1],
            denominator: partials.weight.denominator,
            denominator_from: partials.from().denominator,
            coef: out.element("coef"),
            row_tokens: out.row("row_tokens"),
            row_alarm: out.alarm(),
            row_loss: self.loss.then(|| out.row("row_loss")),
            metrics: self.metrics.then(|| MetricsOut {
                row_sums: out.rows(&POLICY_SUMS),
                row_maxima: out.rows(&MAXIMA),
                band: BAND,
            }),
        };
        kernel.check().map_err(|e| e.to_string())?;
        backend.run(&kernel)
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let guard = expected::guard(self.guard);
        let mean = match self.mean {
            Mean::Geometric => oracle::Mean::Geometric,
            Mean::ClippedSum => oracle::Mean::ClippedSum,
            Mean::Product => oracle::Mean::Product,
            Mean::Harmonic => oracle::Mean::Harmonic,
        };
        let of_sum = self.mean == Mean::ClippedSum;
        let clip = oracle::Gmpo { mean, low: self.clip[0].into(), high: self.clip[1].into() };
        let [mut coef, mut row_loss, mut row_tokens] = ["coef", "row_loss", "row_tokens"].map(Want::new);
        let [mut high, mut low] = ["max_ratio", "max_neg_ratio"].map(Want::new);
        let mut sums = POLICY_SUMS.map(Want::new);
        let scale = if self.denominator == 0.0 { 0.0 } else { 1.0 / self.denominator };
        for r in 0..data.rows() {
            let at = |k: usize, i: usize| f64::from(data.element[k][i]);
            let token = |i: usize| oracle::Token {
                d: guard.value(at(slot::LOGP, i) - at(slot::LOGP_OLD, i)),
                a: if self.per_token { at(slot::ADVANTAGE, i) } else { data.row[0][r].into() },
                w: if self.weights { at(slot::WEIGHTS, i) } else { 1.0 },
            };
            let live: Vec<usize> = data.span(r).filter(|i| data.live(*i)).collect();
            let tokens: Vec<oracle::Token> = live.iter().map(|i| token(*i)).collect();
            let length = tokens.len() as f64 + 1e-8;
            let loss = clip.loss(&tokens, self.weights);
            // The exponent rounds both as a whole and term by term; the mean advantage may cancel.
            let moved = |t: &oracle::Token| if of_sum { t.d.abs() } else { clip.clipped(t.d, t.a).abs() };
            let all: f64 = tokens.iter().map(moved).sum();
            let exponent = match self.mean {
                Mean::Product => all,
                Mean::Geometric | Mean::ClippedSum => all / length,
                Mean::Harmonic => tokens.iter().map(moved).fold(0.0, f64::max),
            };
            let sum = clip.sums(&tokens).0;
            let mut slopes = clip.slopes(&tokens).into_iter();
            let least = if self.mean == Mean::Product { 1.0 } else { 1.0 / length };
            let unsure_sum =
                of_sum && [-clip.low, clip.high].iter().any(|b| (sum - b).abs() < 4.0 * expected::UNIT * all);
            let logs: f64 = tokens.iter().map(|t| (t.w + 1e-8).ln().abs()).sum::<f64>() / length;
            let mean: f64 = tokens.iter().map(|t| t.a).sum::<f64>() / length;
            let spread: f64 = tokens.iter().map(|t| t.a.abs()).sum::<f64>() / length;
            let cancel = if mean == 0.0 { 0.0 } else { loss.abs() * 1e-9 * spread / mean.abs() };
            let magnitude = loss.abs() * (2.0 + exponent + if self.weights { logs } else { 0.0 }) + cancel;
            row_loss.push(loss * scale, magnitude * scale);
            row_tokens.push(live.len() as f64, 0.0);
            let mut total = [Sum::default(); POLICY_SUMS.len()];
            total[0].add(loss * scale, magnitude * scale);
            total[1].add(loss * live.len() as f64, magnitude * live.len() as f64);
            let (mut max, mut min) = ((f64::NEG_INFINITY, 0.0), (f64::NEG_INFINITY, 0.0));
            for i in data.span(r) {
                if !data.live(i) {
                    coef.push(0.0, 0.0);
                    continue;
                }
                let t = token(i);
                let (raw, exact) =
                    expected::difference(data.element[slot::LOGP][i], data.element[slot::LOGP_OLD][i]);
                let near = |bound: f64| expected::doubtful(raw, exact, (t.d - bound).abs());
                let at_clip = if of_sum { unsure_sum } else { near(-clip.low) || near(clip.high) };
                let at_guard = expected::doubtful(raw, exact, guard.distance_to_kink(raw));
                let own = slopes.next().flatten();
                let (keeps, slope) = (own.is_some(), own.unwrap_or(least));
                let value = if keeps { loss * scale * slope * guard.derivative(raw) } else { 0.0 };
                let moved = if self.mean == Mean::Harmonic { 2.0 + t.d.abs() } else { 1.0 };
                let doubt = at_clip || at_guard;
                coef.push(value, if doubt { f64::INFINITY } else { magnitude * scale * slope * moved });
                let (ratio, spread) = (t.d.exp(), 1.0 + t.d.abs());
                let (excess, error) = (ratio - 1.0, ratio * spread + (ratio - 1.0).abs());
                total[3].add(-t.d, t.d.abs());
                total[4].add(excess, error);
                total[5].add(excess * excess, 2.0 * excess.abs() * error + excess * excess);
                total[6].count(keeps, at_clip);
                let of = if of_sum { sum } else { t.d };
                let outside = of < -clip.low || of > clip.high;
                let unsure = at_clip || (mean != 0.0 && mean.abs() < 1e-9 * spread);
                total[7].count(outside && mean > 0.0, unsure);
                total[8].count(outside && mean < 0.0, unsure);
                total[10].count(!guard.inside(raw), at_guard);
                let [from, to] = BAND.map(f64::from);
                let in_doubt =
                    expected::doubtful_ratio(t.d, ratio, from) || expected::doubtful_ratio(t.d, ratio, to);
                total[11].count(from <= ratio && ratio <= to, in_doubt);
                total[12].add(-at(slot::LOGP, i), at(slot::LOGP, i).abs());
                max = if ratio > max.0 { (ratio, ratio * spread) } else { max };
                min = if -ratio > min.0 { (-ratio, ratio * spread) } else { min };
            }
            for (want, sum) in sums.iter_mut().zip(total) {
                want.push(sum.0, sum.1);
            }
            high.push(max.0, max.1);
            low.push(min.0, min.1);
        }
        [coef, row_loss, row_tokens, high, low].into_iter().chain(sums).collect()
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for clip in CLIPS {
            for guard in guards() {
                for step in 0..2 {
                    let k: usize = cases.len();
                    let bits = source.fork(7).bits(k);
                    let on = |bit: u32| bits >> bit & 1 == 1;
                    let params = Gmpo {
                        mean: Mean::Geometric,
                        guard,
                        clip,
                        denominator: [1.0, 12.0, 1017.0, 0.0][k % 4],
                        counted: None,
                        per_token: on(0),
                        weights: on(1),
                        loss: on(2),
                        metrics: step == 1,
                    };
                    let shape = if k == 8 { large() } else { small().swap_remove(k % 5) };
                    let range = if k == 8 { Range::Realistic } else { Range::ALL[k / 5 % 4] };
                    cases.push(case(params, &shape, Mask::ALL[k % 6], range, source.fork(k as u64), k));
                }
            }
        }
        for mean in &MEANS_OF_RATIOS[1..] {
            for clip in CLIPS {
                for (n, guard) in guards().into_iter().enumerate() {
                    let k = cases.len();
                    let bits = source.fork(8).bits(k);
                    let on = |bit: u32| bits >> bit & 1 == 1;
                    let params = Gmpo {
                        mean: *mean,
                        guard,
                        clip,
                        denominator: [1.0, 12.0, 1017.0, 0.0][k % 4],
                        counted: None,
                        per_token: on(0),
                        weights: on(1),
                        loss: on(2),
                        metrics: n % 2 == 0,
                    };
                    let mut shape = small().swap_remove(k % 5);
                    if *mean == Mean::Product {
                        shape.lengths.iter_mut().for_each(|length| *length %= 40);
                    }
                    cases.push(case(
                        params,
                        &shape,
                        Mask::ALL[k % 6],
                        NARROW[k % 2],
                        source.fork(k as u64),
                        k,
                    ));
                }
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let clip = if draw.yes() { draw.pick(&CLIPS) } else { [draw.unit(), draw.unit()] };
        let mean = draw.pick(&MEANS_OF_RATIOS);
        let params = Gmpo {
            mean,
            guard: draw.pick(&guards()),
            clip,
            denominator: draw.pick(&[1.0, 12.0, 1017.0]),
            counted: draw.pick(&COUNTED),
            per_token: draw.yes(),
            weights: draw.yes(),
            loss: draw.yes(),
            metrics: draw.yes(),
        };
        let mut lengths = draw.lengths();
        if mean == Mean::Product {
            lengths.iter_mut().for_each(|length| *length %= 40);
        }
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths };
        let free = matches!(mean, Mean::Geometric | Mean::ClippedSum);
        let range = if free { draw.pick(&Range::ALL) } else { draw.pick(&NARROW) };
        case(params, &shape, draw.pick(&Mask::ALL), range, draw.source(), 0)
    }

    fn fault_slots(&self) -> Vec<(usize, &'static [f32])> {
        let logp: &[f32] = &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5];
        let mut slots = vec![(slot::LOGP, logp), (slot::LOGP_OLD, logp)];
        if self.weights {
            slots.push((slot::WEIGHTS, &[f32::NAN, f32::INFINITY, -1.0]));
        }
        if self.per_token {
            slots.push((slot::ADVANTAGE, &[f32::NAN, f32::INFINITY]));
        }
        slots
    }
}

fn case(params: Gmpo, shape: &Shape, mask: Mask, range: Range, source: Source, k: usize) -> Case {
    Case {
        label: format!("{k}: {} {mask:?} {range:?}", shape.name),
        catches: "a mean over the padded width; a bound of the ratio instead of its logarithm; a clip by the \
                  wrong sign",
        params: params.into(),
        data: tokens(shape, mask, range, source),
    }
}

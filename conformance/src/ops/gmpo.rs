//! `policy_loss_gmpo`.

use super::policy_loss::{MAXIMA, POLICY_SUMS};
use super::prelude::*;
use crate::cases::params::{BAND, COUNTED, Partials, guards};
use crate::expect::tokens as expected;
use crate::expect::tokens::Ratios;
use crate::oracle::gmpo as oracle;
use lockstep_core::aggregate::{PerRow, Weight};
use lockstep_core::policy_loss::gmpo::Mean;
use lockstep_core::policy_loss::{MetricsOut, PolicyLossGmpo};
use lockstep_core::ratio::Guard;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gmpo {
    pub guard: Guard,
    /// How a sequence's ratio is made from its tokens' ratios.
    pub mean: Mean,
    /// Bounds of the log-ratio.
    pub clip: [f32; 2],
    pub denominator: f64,
    /// If set, it is read from memory as this many [`Partials`].
    pub counted: Option<usize>,
    pub per_token: bool,
    pub weights: bool,
    pub loss: bool,
    pub metrics: bool,
}

const CLIPS: [[f32; 2]; 4] = [[0.4, 0.4], [0.0, 0.0], [0.05, 0.1], [3.0, 0.2]];
const MEANS_OF_RATIOS: [Mean; 4] = [Mean::Geometric, Mean::ClippedSum, Mean::Product, Mean::Harmonic];
/// Ranges in which products and sums of inverses stay finite.
const NARROW: [Range; 2] = [Range::Realistic, Range::Tiny];
const MEANS: &str = "binary64 means of rounded terms, one exponential, two products";

impl OpTest for Gmpo {
    const OPS: &'static [&'static str] = &["policy_loss_gmpo"];
    const ALLOWED: &'static [Allowance] = &[
        allow("policy_loss_gmpo", &["coef", "row_loss", "sum_loss", "sum_policy"], 2.0, MEANS),
        allow("policy_loss_gmpo", &["sum_k1"], 1.0, TERMS),
        allow("policy_loss_gmpo", &["sum_excess", "sum_excess_squared"], 2.0, TERMS),
        allow("policy_loss_gmpo", &["sum_neg_logp"], 1e-7, "binary64 sums in another order"),
        allow("policy_loss_gmpo", &MAXIMA, 2.0, "exp"),
    ];
    const CATCHES: &'static str = "a mean over the padded width; a bound of the ratio instead of its \
                                   logarithm; a clip by the wrong sign";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let input = |k: usize| In::new(&data.element[k][..]);
        let weight = Weight { per_row: PerRow::One, denominator: self.denominator, scale: 1.0 };
        let partials = Partials::of(weight, self.counted);
        backend.run(&PolicyLossGmpo {
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
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let guard = expected::guard(self.guard);
        let mean = same!(self.mean, Mean => oracle::Mean, Geometric ClippedSum Product Harmonic);
        let of_sum = self.mean == Mean::ClippedSum;
        let clip = oracle::Gmpo { mean, low: self.clip[0].into(), high: self.clip[1].into() };
        let [mut coef, mut row_loss, mut row_tokens] = ["coef", "row_loss", "row_tokens"].map(Want::new);
        let (mut maxima, mut sums) = (MAXIMA.map(Want::new), POLICY_SUMS.map(Want::new));
        let scale = if self.denominator == 0.0 { 0.0 } else { 1.0 / self.denominator };
        for r in 0..data.rows() {
            let at = |k: usize, i: usize| f64::from(data.element[k][i]);
            let token = |i: usize| oracle::Token {
                d: guard.value(at(slot::LOGP, i) - at(slot::LOGP_OLD, i)),
                a: if self.per_token { at(slot::ADVANTAGE, i) } else { data.row[0][r].into() },
                w: if self.weights { at(slot::WEIGHTS, i) } else { 1.0 },
            };
            let live = data.members(r);
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
            let logs: f64 = tokens.iter().map(|t| (t.w + 1e-10).ln().abs()).sum::<f64>() / length;
            let mean: f64 = tokens.iter().map(|t| t.a).sum::<f64>() / length;
            let spread: f64 = tokens.iter().map(|t| t.a.abs()).sum::<f64>() / length;
            let cancel = if mean == 0.0 { 0.0 } else { loss.abs() * 1e-9 * spread / mean.abs() };
            let magnitude = loss.abs() * (2.0 + exponent + if self.weights { logs } else { 0.0 }) + cancel;
            row_loss.push(loss * scale, magnitude * scale);
            row_tokens.push(live.len() as f64, 0.0);
            let mut total = [Sum::default(); POLICY_SUMS.len()];
            total[0].add(loss * scale, magnitude * scale);
            total[1].add(loss * live.len() as f64, magnitude * live.len() as f64);
            let mut ratios = Ratios::default();
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
                ratios.add(t.d, t.d.exp(), t.d);
                total[6].count(keeps, at_clip);
                let of = if of_sum { sum } else { t.d };
                let outside = of < -clip.low || of > clip.high;
                let unsure = at_clip || (mean != 0.0 && mean.abs() < 1e-9 * spread);
                total[7].count(outside && mean > 0.0, unsure);
                total[8].count(outside && mean < 0.0, unsure);
                total[10].count(!guard.inside(raw), at_guard);
                total[12].add(-at(slot::LOGP, i), at(slot::LOGP, i).abs());
            }
            [total[3], total[4], total[5], total[11]] = ratios.sums;
            push_all(&mut sums, total);
            push_all(&mut maxima, ratios.maxima);
        }
        [coef, row_loss, row_tokens].into_iter().chain(maxima).chain(sums).collect()
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        let mut add = |mean: Mean, clip: [f32; 2], guard: Guard, metrics: bool| {
            let (k, first) = (cases.len(), mean == Mean::Geometric);
            let bits = source.fork(if first { 7 } else { 8 }).bits(k);
            let on = |bit: u32| bits >> bit & 1 == 1;
            let params = Gmpo {
                mean,
                guard,
                clip,
                denominator: [1.0, 12.0, 1017.0, 0.0][k % 4],
                counted: None,
                per_token: on(0),
                weights: on(1),
                loss: on(2),
                metrics,
            };
            let shape = of_mean(mean, if k == 8 { large() } else { small().swap_remove(k % 5) });
            let range = match k {
                8 => Range::Realistic,
                _ if first => Range::ALL[k / 5 % 4],
                _ => NARROW[k % 2],
            };
            cases.push(case(params, &shape, Mask::ALL[k % 6], range, source.fork(k as u64), k));
        };
        for ((clip, guard), metrics) in pairs(pairs(CLIPS, guards()), [false, true]) {
            add(Mean::Geometric, clip, guard, metrics);
        }
        for (&mean, clip) in pairs(&MEANS_OF_RATIOS[1..], CLIPS) {
            for (n, guard) in guards().into_iter().enumerate() {
                add(mean, clip, guard, n % 2 == 0);
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
        let shape = of_mean(mean, draw.shape());
        let free = matches!(mean, Mean::Geometric | Mean::ClippedSum);
        let range = if free { draw.pick(&Range::ALL) } else { draw.pick(&NARROW) };
        case(params, &shape, draw.pick(&Mask::ALL), range, draw.source(), 0)
    }

    fn fault_slots(&self) -> Vec<Fault> {
        let mut slots = vec![(slot::LOGP, NO_LOGP), (slot::LOGP_OLD, NO_LOGP)];
        slots.extend(self.weights.then_some((slot::WEIGHTS, NO_WEIGHT)));
        slots.extend(self.per_token.then_some((slot::ADVANTAGE, NOT_FINITE)));
        slots
    }
}

/// A product of more than 40 ratios is too large or too small.
fn of_mean(mean: Mean, mut shape: Shape) -> Shape {
    if mean == Mean::Product {
        shape.lengths.iter_mut().for_each(|length| *length %= 40);
    }
    shape
}

fn case(params: Gmpo, shape: &Shape, mask: Mask, range: Range, source: Source, k: usize) -> Case {
    let label = format!("{k}: {} {mask:?} {range:?}", shape.name);
    Case::of(params, label, tokens(shape, mask, range, source))
}

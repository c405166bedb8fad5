//! `draw_tokens` and `otr_sampled`: tokens drawn from rows of logits, and the loss on them.

use super::logits::{COEF, LABEL, LIVE, batch, of_rows};
use super::logits_kl::SIZES;
use super::prelude::*;
use crate::oracle::statistics::{Softmax, softmax};
use crate::oracle::{draw as oracle, otr_sampled};
use crate::output::POISON;
use lockstep_core::logits::{DrawTokens, LogitRows, OtrSampled};
use lockstep_core::num::Suffix;
use lockstep_core::ragged::Mask;

/// Which op, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Which {
    /// `draw_tokens`, with the position of row 0.
    Tokens { temperature: f32, seed: u64, first: u64 },
    /// `otr_sampled`, with candidates from a hash of the row.
    Otr { beta: f32, gradient: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub which: Which,
    pub draws: usize,
    pub masked: bool,
}

const REASON: &str =
    "the exponent rounds three times (in the magnitude), exp and log1p within 1 ULP, the rest in binary64";

impl OpTest for Sampling {
    names! {
        Sampling { which: Which::Tokens { .. }, .. } => "draw_tokens",
        Sampling { which: Which::Otr { .. }, .. } => "otr_sampled",
    }
    const ALLOWED: &'static [Allowance] = &[
        // Counts must be equal, except where a point sits on an edge; those are left out.
        allow("draw_tokens", &["counts"], 0.0, "whole numbers"),
        allow("otr_sampled", &["loss", "gradient"], 6.0, REASON),
    ];
    const CATCHES: &'static str =
        "a draw in two pieces or in none; a token drawn several times; 1 − p near 1";
    const ROWS_ARE_EQUAL: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (labels, live) = of_rows(data);
        let (n, vocab, draws) = (data.rows(), data.elements() / data.rows(), self.draws);
        let live = Mask::new(self.masked.then_some(&live[..]));
        let rows = LogitRows { logits: In::new(&data.element[0]), rows: n, vocab, live };
        match self.which {
            Which::Tokens { temperature, seed, first } => backend.run(&DrawTokens {
                rows,
                temperature,
                draws: self.draws,
                seed,
                first,
                tokens: out.array(n * self.draws, move |tokens| {
                    vec![element("counts", Values::U32(counted(&tokens, vocab, draws)))]
                }),
                row_alarm: out.alarm(),
            }),
            Which::Otr { beta, gradient: wanted } => {
                let candidates: Vec<u32> =
                    (0..n).flat_map(|r| candidates(&data.element[0][data.span(r)], self.draws)).collect();
                backend.run(&OtrSampled {
                    rows,
                    labels: In::new(&labels),
                    candidates: In::new(&candidates),
                    draws: self.draws,
                    beta,
                    coef: In::new(&data.row[COEF]),
                    loss: out.row("loss"),
                    row_alarm: out.alarm(),
                    gradient: wanted.then(|| out.element("gradient")),
                })
            }
        }
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let live = |r: usize| !self.masked || data.row[LIVE][r] != 0.0;
        let mut wants = match self.which {
            Which::Tokens { .. } => vec![Want::new("counts")],
            Which::Otr { .. } => vec![Want::new("loss"), Want::new("gradient")],
        };
        for r in 0..data.rows() {
            match self.which {
                Which::Tokens { temperature, seed, first } if live(r) => {
                    let row = first.wrapping_add(r as u64).wrapping_mul(self.draws as u64);
                    let points: Vec<f64> =
                        (0..self.draws as u64).map(|j| oracle::point(seed, row.wrapping_add(j))).collect();
                    let p = softmax(&data.wide(0, r), temperature.into());
                    for (count, certain) in oracle::counts(&p.p, &points, uncertain(&p)) {
                        wants[0].push(count as f64, if certain { 0.0 } else { f64::INFINITY });
                    }
                }
                // All draws of a masked row are token 0.
                Which::Tokens { .. } => data.span(r).enumerate().for_each(|(v, _)| {
                    wants[0].exact(if v == 0 { self.draws as f64 } else { 0.0 });
                }),
                Which::Otr { beta, .. } if live(r) => {
                    let p = softmax(&data.wide(0, r), 1.0);
                    let drawn = candidates(&data.element[0][data.span(r)], self.draws);
                    otr_row(&p, data, r, &drawn, beta.into(), &mut wants);
                }
                Which::Otr { .. } => {
                    wants[0].push(0.0, 0.0);
                    data.span(r).for_each(|_| wants[1].push(0.0, 0.0));
                }
            }
        }
        wants
    }

    fn corpus(source: Source) -> Vec<Case> {
        let all = pairs(SIZES, 0..4usize).filter(|((_, vocab), j)| *vocab <= 100_000 || j % 2 == 0);
        numbered(all, source, |k, ((rows, vocab), j), source| {
            let temperature = [1.3, 1.0, 2.0][k % 3];
            let which = match j {
                0 => Which::Tokens { temperature, seed: 77 + k as u64, first: 0 },
                1 => Which::Tokens { temperature, seed: k as u64, first: (1 << 40) + 3 },
                2 => Which::Otr { beta: -0.1, gradient: true },
                _ => Which::Otr { beta: [0.0, 1.0][k / 4 % 2], gradient: k % 8 < 4 },
            };
            let params = Sampling { which, draws: [256, 1, 17, 5][k % 4], masked: k % 2 == 1 && rows > 1 };
            case(params, rows, vocab, source).numbered(k)
        })
    }

    fn random(op: &str, draw: &mut Draw) -> Case {
        let which = match op {
            "draw_tokens" => Which::Tokens {
                temperature: if draw.yes() { 1.3 } else { 0.25 + 2.0 * draw.unit() },
                seed: draw.below(1 << 40) as u64,
                first: draw.below(1 << 40) as u64,
            },
            _ => Which::Otr { beta: draw.pick(&[0.0, -0.1, 0.5, 1.0, -3.0]), gradient: draw.yes() },
        };
        let vocab = draw.vocab(3);
        let draws = if draw.yes() { 1 + draw.below(20) } else { 1 + draw.below(1024) };
        case(Sampling { which, draws, masked: draw.yes() }, 1 + draw.below(12), vocab, draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        if self.masked { Vec::new() } else { vec![(0, &NOT_FINITE[..2])] }
    }

    /// A row's points depend on its position.
    fn rows_are_blocks(&self) -> bool {
        matches!(self.which, Which::Tokens { .. })
    }
}

/// How often each token occurs among each row's draws; poison if one is missing, out of order or out of
/// range.
fn counted(tokens: &[u32], vocab: usize, draws: usize) -> Vec<u32> {
    let mut counts = Vec::with_capacity(tokens.len() / draws * vocab);
    for row in tokens.chunks(draws) {
        let mut of_row = vec![0u32; vocab];
        let good = row.is_sorted() && row.iter().all(|token| (*token as usize) < vocab);
        match good {
            true => row.iter().for_each(|token| of_row[*token as usize] += 1),
            false => of_row.fill(POISON),
        }
        counts.extend(of_row);
    }
    counts
}

/// How far an edge on the line from 0 to 1 may be off: exponentials by their units, pieces by the part cut
/// off.
fn uncertain(p: &Softmax) -> f64 {
    let bits = 64 - (p.p.len() as u64).leading_zeros();
    let cut = p.p.iter().filter(|p| **p > 0.0).count() as f64 * 2f64.powi(bits as i32 - 53);
    (4.0 + 2.0 * p.spread()) / 16_777_216.0 + cut
}

/// Candidates of a row, ascending, among the possible tokens, chosen by a hash of the row; likelier ones
/// occur more often.
pub fn candidates(z: &[f32], draws: usize) -> Vec<u32> {
    let possible: Vec<u32> = (0..z.len() as u32).filter(|v| z[*v as usize].is_finite()).collect();
    if possible.is_empty() {
        return vec![0; draws];
    }
    let own = Source::new(z.iter().fold(0, |sum: u64, z| sum.rotate_left(5) ^ u64::from(z.to_bits())));
    let top =
        possible.iter().copied().fold(possible[0], |m, v| if z[v as usize] > z[m as usize] { v } else { m });
    let pick = |j: usize| match own.below(j, 3) {
        0 => top,
        _ => possible[own.fork(1).below(j, possible.len())],
    };
    let mut drawn: Vec<u32> = (0..draws).map(pick).collect();
    drawn.sort_unstable();
    drawn
}

fn otr_row(p: &Softmax, data: &Data, r: usize, drawn: &[u32], beta: f64, wants: &mut [Want]) {
    let (label, c) = (data.row[LABEL][r] as usize, f64::from(data.row[COEF][r]));
    let drawn: Vec<usize> = drawn.iter().map(|a| *a as usize).collect();
    let k = drawn.len() as f64;
    let (spread, ln_z) = (2.0 + p.spread(), -p.logp[p.top]);
    let reward = |a: usize| if a == label { 1.0 } else { beta.abs() };
    let size = |a: usize| reward(a) * (p.below[a].abs() + ln_z + spread);
    wants[0].push(otr_sampled::loss(p, label, &drawn, beta), drawn.iter().map(|a| size(*a)).sum::<f64>() / k);
    let all: f64 = drawn.iter().map(|a| reward(*a)).sum();
    let mut own = vec![0.0; p.p.len()];
    drawn.iter().for_each(|a| own[*a] += reward(*a));
    for (v, want) in otr_sampled::gradient(p, label, &drawn, beta).into_iter().enumerate() {
        let rounding = spread + if p.below[v] > -1e3 { -p.below[v] } else { 0.0 };
        let miss = if own[v] == 0.0 { 0.0 } else { p.miss(v) };
        // 1 − π computed from Z, which keeps a relative accuracy of 2⁻⁵³.
        let lost = own[v] * 2f64.powi(-29);
        wants[1].push(c * want, c.abs() * ((own[v] * miss + p.p[v] * all) * rounding + lost) / k);
    }
}

fn case(params: Sampling, rows: usize, vocab: usize, source: Source) -> Case {
    let data = batch(params.masked, rows, vocab, source, Suffix::None);
    Case::of(params, format!("{params:?} {rows} rows of {vocab}"), data)
}

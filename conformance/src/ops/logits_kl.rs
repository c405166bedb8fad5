//! `logits_kl`: two rows of logits.

use super::logits::{COEF, LABEL, LIVE, batch, of_rows};
use super::prelude::*;
use crate::oracle::logits_kl::{divergence, reverse_slope, slope};
use crate::oracle::statistics::{Softmax, softmax};
use lockstep_core::logits::kl::Direction;
use lockstep_core::logits::{LogitRows, LogitsKl as Kernel};
use lockstep_core::num::Suffix;
use lockstep_core::ragged::Mask;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitsKl {
    /// Direction of the divergence: which side is averaged over.
    pub direction: Direction,
    pub temperature: f32,
    pub masked: bool,
    pub gradient: bool,
}

/// Rows and the length of each.
pub(super) const SIZES: [(usize, usize); 7] =
    [(24, 1), (24, 2), (25, 33), (8, 129), (8, 2049), (40, 257), (1, 151_936)];

const REASON: &str = "two exponents round three times each (in the magnitude), exp, log1p and expm1mx within \
                      2.5 ULP, three products";

impl OpTest for LogitsKl {
    const OPS: &'static [&'static str] = &["logits_kl"];
    const ALLOWED: &'static [Allowance] = &[allow("logits_kl", &["kl", "gradient"], 6.0, REASON)];
    const CATCHES: &'static str =
        "the difference of two nearly equal rows; a token that one side forbids; sides exchanged";
    const ROWS_ARE_EQUAL: bool = true;

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let (_, live) = of_rows(data);
        let (rows, vocab) = (data.rows(), data.elements() / data.rows());
        backend.run(&Kernel {
            rows: LogitRows {
                logits: In::new(&data.element[0]),
                rows,
                vocab,
                live: Mask::new(self.masked.then_some(&live[..])),
            },
            reference: In::new(&data.element[1]),
            direction: self.direction,
            temperature: self.temperature,
            coef: In::new(&data.row[COEF]),
            value: out.row("kl"),
            row_alarm: out.alarm(),
            gradient: self.gradient.then(|| out.element("gradient")),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (mut kl, mut gradient) = (Want::new("kl"), Want::new("gradient"));
        for r in 0..data.rows() {
            if self.masked && data.row[LIVE][r] == 0.0 {
                kl.push(0.0, 0.0);
                data.span(r).for_each(|_| gradient.push(0.0, 0.0));
                continue;
            }
            let side = |k: usize| softmax(&data.wide(k, r), self.temperature.into());
            self.row(&side(0), &side(1), data.row[COEF][r].into(), &mut kl, &mut gradient);
        }
        vec![kl, gradient]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let all = pairs(pairs(SIZES, [Direction::Policy, Direction::Reference]), [true, false]);
        let all = all.filter(|(((_, vocab), _), gradient)| *vocab <= 100_000 || *gradient);
        numbered(all, source, |k, (((rows, vocab), direction), gradient), source| {
            let (temperature, masked) = ([1.0, 0.7, 1.0, 2.5][k % 4], k % 3 == 1 && rows > 1);
            let params = LogitsKl { direction, temperature, masked, gradient };
            case(params, rows, vocab, source).numbered(k)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let direction = draw.pick(&[Direction::Policy, Direction::Reference]);
        let (temperature, vocab) = (draw.temperature(), draw.vocab(3));
        let params = LogitsKl { direction, temperature, masked: draw.yes(), gradient: draw.yes() };
        case(params, 1 + draw.below(12), vocab, draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        let bad = &NOT_FINITE[..2];
        if self.masked { Vec::new() } else { vec![(0, bad), (1, bad)] }
    }
}

impl LogitsKl {
    fn row(&self, policy: &Softmax, reference: &Softmax, c: f64, kl: &mut Want, gradient: &mut Want) {
        let t = f64::from(self.temperature);
        let (a, b, slopes) = match self.direction {
            Direction::Policy => (policy, reference, slope(policy, reference)),
            Direction::Reference => (reference, policy, reverse_slope(policy, reference)),
        };
        let value = divergence(a, b);
        // How the rounding of y affects an exponential; beyond the cut it does not.
        let rounding = |y: f64| if y > -1e3 { 1.0 - y } else { 1.0 };
        let known = |y: f64| if y.is_finite() { -y } else { 0.0 };
        let common = 2.0 + a.spread() + b.spread() - a.logp[a.top] - b.logp[b.top];
        // The error of u = ln b − ln a, in units.
        let of_u = |v: usize| common + known(a.below[v]) + known(b.below[v]);
        let term = |v: usize| {
            let (p, q) = (a.p[v], b.p[v]);
            let u = if p > 0.0 { b.logp[v] - a.logp[v] } else { 0.0 };
            let own = if p > 0.0 { (q - p * (1.0 + u)).abs() } else { q };
            let far =
                if u > 1.0 { q * rounding(b.below[v]) + p * (1.0 + u) * rounding(a.below[v]) } else { 0.0 };
            // Where both sides agree to the last bit, only the square of u's error remains.
            let square = p * of_u(v) * of_u(v) / 16_777_216.0;
            own * (rounding(a.below[v]) + common) + (q - p).abs() * of_u(v) + square + far
        };
        let of_kl: f64 = (0..a.p.len()).map(term).sum();
        kl.push(value, of_kl);
        for (v, want) in slopes.into_iter().enumerate() {
            let (p, q) = (a.p[v], b.p[v]);
            let size = match self.direction {
                Direction::Policy => p * (of_u(v) + of_kl) + want.abs() * (rounding(a.below[v]) + common),
                Direction::Reference => (p * rounding(a.below[v]) + q * rounding(b.below[v])) * common,
            };
            gradient.push(c * want / t, (c / t).abs() * size);
        }
    }
}

fn case(params: LogitsKl, rows: usize, vocab: usize, source: Source) -> Case {
    let mut data = batch(params.masked, rows, vocab, source, Suffix::None);
    let other = batch(false, rows, vocab, source.fork(777), Suffix::None);
    let mut reference = Vec::with_capacity(data.elements());
    for r in 0..rows {
        let label = data.span(r).start + data.row[LABEL][r] as usize;
        for i in data.span(r) {
            let z = data.element[0][i];
            let noise = source.fork(7).signed(i);
            let near = match source.fork(8).below(r, 5) {
                0 => z + 1e-3 * noise,
                1 => z,
                2 => 0.5 * z,
                3 => z + noise,
                _ => other.element[0][i],
            };
            // The side that is averaged over may forbid more tokens than the other, but not fewer.
            let near = match params.direction {
                Direction::Policy if near == f32::NEG_INFINITY && z > f32::NEG_INFINITY => z.max(-5.0),
                Direction::Reference if z == f32::NEG_INFINITY => f32::NEG_INFINITY,
                Direction::Reference if i == label && near == f32::NEG_INFINITY => z,
                _ => near,
            };
            reference.push(near);
        }
    }
    data.element.push(reference);
    Case::of(params, format!("{params:?} {rows} rows of {vocab}"), data)
}

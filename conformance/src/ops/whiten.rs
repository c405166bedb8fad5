//! `whiten`, with the moments of a larger batch.

use super::prelude::*;
use crate::oracle::whiten as oracle;
use lockstep_core::advantage::{Divisor, Whiten as Kernel};
use lockstep_core::aggregate::moments::MOMENTS;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whiten {
    pub nan_is_missing: bool,
    pub centre: bool,
    pub divisor: Divisor,
    pub ddof: u32,
    pub eps: f64,
    pub moments: [f64; MOMENTS],
}

impl OpTest for Whiten {
    const OPS: &'static [&'static str] = &["whiten"];
    const ALLOWED: &'static [Allowance] = &[allow("whiten", &["whitened"], 1.0, ROUNDED)];
    const CATCHES: &'static str = "eps on the other side of the root; a division by 0 for equal values";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
            offsets: data.packed()?,
            mask: data.masked(),
            values: In::new(&data.element[0]),
            nan_is_missing: self.nan_is_missing,
            moments: In::new(&self.moments),
            centre: self.centre,
            divisor: self.divisor,
            ddof: self.ddof,
            eps: self.eps,
            whitened: out.element("whitened"),
            row_alarm: out.alarm(),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let [count, mean, squares, low, high, _] = self.moments;
        let varied = count >= 2.0 && low < high;
        let variance = if varied { squares / (count - f64::from(self.ddof)) } else { 0.0 };
        let kind = same!(self.divisor, Divisor => oracle::Divisor, Inside Floor Outside One);
        let divisor = oracle::divisor(kind, variance, self.eps);
        let mean = if self.centre { mean } else { 0.0 };
        vec![Want::live("whitened", data, |_, i| {
            let x = f64::from(data.element[0][i]);
            let y = if x.is_nan() { 0.0 } else { oracle::whiten(x, mean, divisor, varied) };
            (y, y.abs())
        })]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let divisors = [Divisor::Inside, Divisor::Floor, Divisor::Outside];
        numbered(pairs(divisors, BATCHES), source, |k, (divisor, (moments, eps)), source| {
            let (ddof, centre) = (1 - (k % 2) as u32, k % 5 != 3);
            let params = Whiten { nan_is_missing: k % 2 == 1, centre, divisor, ddof, eps, moments };
            let shape = if k == 4 { large() } else { small().swap_remove(k % 5) };
            case(params, &shape, Mask::ALL[k % 6], source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let (moments, eps) = draw.pick(&BATCHES);
        let params = Whiten {
            nan_is_missing: draw.yes(),
            centre: draw.yes(),
            divisor: draw.pick(&[Divisor::Inside, Divisor::Floor, Divisor::Outside, Divisor::One]),
            ddof: draw.below(2) as u32,
            eps,
            moments,
        };
        case(params, &draw.shape(), draw.pick(&Mask::ALL), draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        vec![(0, if self.nan_is_missing { &NOT_FINITE[1..] } else { NOT_FINITE })]
    }
}

/// Moments and eps: ordinary; nearly no spread; no spread; one value; no value; eps 0.
const BATCHES: [([f64; MOMENTS], f64); 6] = [
    ([1000.0, 0.3, 1700.0, -50.0, 50.0, 990.0], 1e-8),
    ([1000.0, 1.0, 1e-5, 0.999, 1.001, 1000.0], 1e-8),
    ([1000.0, 0.1, 1e-30, 0.1, 0.1, 1000.0], 1e-8),
    ([1.0, 0.5, 0.0, 0.5, 0.5, 1.0], 1e-4),
    ([0.0, 0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 0.0], 1e-8),
    ([2.0, -2.0, 8.0, -4.0, 0.0, 1.0], 0.0),
];

fn case(params: Whiten, shape: &Shape, mask: Mask, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    let missing = |i: usize| params.nan_is_missing && source.below(i, 9) == 0;
    data.element =
        vec![data.array(|i| if missing(i) { f32::NAN } else { values::advantage(source.fork(1), i) })];
    Case::of(params, format!("{} {mask:?} {params:?}", shape.name), data)
}

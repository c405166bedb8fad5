//! `whiten`, with the moments of a larger batch.

use super::prelude::*;
use crate::oracle::whiten as oracle;
use lockstep_core::advantage::{Divisor, Whiten as Kernel};
use lockstep_core::aggregate::moments::MOMENTS;

/// Arguments of `whiten`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whiten {
    /// Whether NaN means "no value".
    pub nan_is_missing: bool,
    /// Whether to subtract the mean.
    pub centre: bool,
    /// Where eps is added.
    pub divisor: Divisor,
    /// ddof.
    pub ddof: u32,
    /// eps.
    pub eps: f64,
    /// Moments.
    pub moments: [f64; MOMENTS],
}

impl OpTest for Whiten {
    const OPS: &'static [&'static str] = &["whiten"];
    const ALLOWED: &'static [Allowance] = &[Allowance {
        op: "whiten",
        output: "whitened",
        units: 1.0,
        reason: "binary64 inside, rounded to binary32 once: half an ULP is at most one unit",
    }];

    fn op(&self) -> &'static str {
        "whiten"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let kernel = Kernel {
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
        };
        kernel.check().map_err(|e| e.to_string())?;
        backend.run(&kernel)
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let [count, mean, squares, low, high, _] = self.moments;
        let varied = count >= 2.0 && low < high;
        let variance = if varied { squares / (count - f64::from(self.ddof)) } else { 0.0 };
        let kind = match self.divisor {
            Divisor::Inside => oracle::Divisor::Inside,
            Divisor::Floor => oracle::Divisor::Floor,
            Divisor::Outside => oracle::Divisor::Outside,
            Divisor::One => oracle::Divisor::One,
        };
        let divisor = oracle::divisor(kind, variance, self.eps);
        let mean = if self.centre { mean } else { 0.0 };
        let mut want = Want::new("whitened");
        for i in 0..data.elements() {
            let x = f64::from(data.element[0][i]);
            let out = !data.live(i) || x.is_nan();
            let y = if out { 0.0 } else { oracle::whiten(x, mean, divisor, varied) };
            want.push(y, y.abs());
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for divisor in [Divisor::Inside, Divisor::Floor, Divisor::Outside] {
            for (moments, eps) in BATCHES {
                let k = cases.len();
                let (ddof, centre) = (1 - (k % 2) as u32, k % 5 != 3);
                let params = Whiten { nan_is_missing: k % 2 == 1, centre, divisor, ddof, eps, moments };
                let shape = if k == 4 { large() } else { small().swap_remove(k % 5) };
                cases.push(case(params, &shape, Mask::ALL[k % 6], source.fork(k as u64)));
            }
        }
        cases
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
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths: draw.lengths() };
        case(params, &shape, draw.pick(&Mask::ALL), draw.source())
    }

    fn fault_slots(&self) -> Vec<(usize, &'static [f32])> {
        let bad: &[f32] = &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        vec![(0, if self.nan_is_missing { &bad[..2] } else { bad })]
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
    let offsets = shape.offsets();
    let bytes = mask.bytes(&offsets, source.fork(0));
    let n = offsets[offsets.len() - 1] as usize;
    let live = |i: usize| bytes.as_ref().is_none_or(|bytes| bytes[i] != 0);
    let value = |i: usize| match live(i) {
        false => garbage(i),
        true if params.nan_is_missing && source.below(i, 9) == 0 => f32::NAN,
        true => values::advantage(source.fork(1), i),
    };
    let element = vec![(0..n).map(value).collect()];
    Case {
        label: format!("{} {mask:?} {params:?}", shape.name),
        catches: "eps on the other side of the root; a division by 0 for equal values",
        params: params.into(),
        data: Data { offsets, mask: bytes, element, ..Data::default() },
    }
}

//! `discounted_return`.

use super::prelude::*;
use crate::oracle::discounted_return as oracle;
use lockstep_core::advantage::DiscountedReturn as Kernel;

/// Arguments of `discounted_return`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiscountedReturn {
    /// Discount.
    pub gamma: f64,
}

const GAMMAS: [f64; 5] = [1.0, 0.9, 0.999, 0.5, 0.0];

impl OpTest for DiscountedReturn {
    const OPS: &'static [&'static str] = &["discounted_return"];
    const ALLOWED: &'static [Allowance] = &[Allowance {
        op: "discounted_return",
        output: "returns",
        units: 1.0,
        reason: "binary64 inside, rounded to binary32 once: half an ULP is at most one unit",
    }];

    fn op(&self) -> &'static str {
        "discounted_return"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let kernel = Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            rewards: In::new(&data.element[0]),
            gamma: self.gamma,
            returns: out.element("returns"),
        };
        kernel.check().map_err(|e| e.to_string())?;
        backend.run(&kernel)
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("returns");
        for r in 0..data.rows() {
            let span = data.span(r);
            let rewards: Vec<f64> = span.clone().map(|i| data.element[0][i].into()).collect();
            let live: Vec<bool> = span.map(|i| data.live(i)).collect();
            for (value, magnitude) in oracle::row(&rewards, &live, self.gamma) {
                // The binary64 maps before the single rounding add 1e-6 of a unit of the magnitudes.
                want.push(value, value.abs() + 1e-6 * magnitude);
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        let mut shapes = small();
        shapes.push(large());
        for shape in &shapes {
            for gamma in GAMMAS {
                let k = cases.len();
                if shape.name != "large" || k % 2 == 0 {
                    cases.push(case(gamma, shape, Mask::ALL[k % 6], source.fork(k as u64)));
                }
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let gamma = if draw.yes() { draw.pick(&GAMMAS) } else { f64::from(draw.unit()) };
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths: draw.lengths() };
        case(gamma, &shape, draw.pick(&Mask::ALL), draw.source())
    }
}

fn case(gamma: f64, shape: &Shape, mask: Mask, source: Source) -> Case {
    let offsets = shape.offsets();
    let bytes = mask.bytes(&offsets, source.fork(0));
    let n = offsets[offsets.len() - 1] as usize;
    let live = |i: usize| bytes.as_ref().is_none_or(|bytes| bytes[i] != 0);
    let value = |i: usize| if live(i) { values::advantage(source.fork(1), i) } else { garbage(i) };
    let element = vec![(0..n).map(value).collect()];
    Case {
        label: format!("gamma {gamma} {} {mask:?}", shape.name),
        catches: "a masked token that costs a step; a carry lost between blocks; maps joined in the wrong \
                  order",
        params: DiscountedReturn { gamma }.into(),
        data: Data { offsets, mask: bytes, element, ..Data::default() },
    }
}

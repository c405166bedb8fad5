//! `discounted_return`.

use super::prelude::*;
use crate::oracle::discounted_return as oracle;
use lockstep_core::advantage::DiscountedReturn as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiscountedReturn {
    pub gamma: f64,
}

const GAMMAS: [f64; 5] = [1.0, 0.9, 0.999, 0.5, 0.0];

impl OpTest for DiscountedReturn {
    const OPS: &'static [&'static str] = &["discounted_return"];
    const ALLOWED: &'static [Allowance] = &[allow("discounted_return", &["returns"], 1.0, ROUNDED)];
    const CATCHES: &'static str =
        "a masked token that costs a step; a carry lost between blocks; maps joined in the wrong order";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            rewards: In::new(&data.element[0]),
            gamma: self.gamma,
            returns: out.element("returns"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let row = |r| oracle::row(&data.wide(0, r), &data.lives(r), self.gamma);
        vec![Want::rounded("returns", (0..data.rows()).flat_map(row))]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for (shape, gamma) in pairs(shapes::all(), GAMMAS) {
            let k = cases.len();
            if shape.name != "large" || k % 2 == 0 {
                cases.push(case(gamma, &shape, Mask::ALL[k % 6], source.fork(k as u64)));
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let gamma = if draw.yes() { draw.pick(&GAMMAS) } else { f64::from(draw.unit()) };
        case(gamma, &draw.shape(), draw.pick(&Mask::ALL), draw.source())
    }
}

fn case(gamma: f64, shape: &Shape, mask: Mask, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    data.element = vec![data.array(|i| values::advantage(source.fork(1), i))];
    Case::of(DiscountedReturn { gamma }, format!("gamma {gamma} {} {mask:?}", shape.name), data)
}

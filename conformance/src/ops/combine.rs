//! `combine`: up to three components.

use super::prelude::*;
use crate::oracle::combine as oracle;
use lockstep_core::advantage::Combine as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combine {
    /// Number of components.
    pub kinds: usize,
    pub weights: [f32; 3],
}

impl OpTest for Combine {
    const OPS: &'static [&'static str] = &["combine"];
    const ALLOWED: &'static [Allowance] = &[allow("combine", &["combined"], 1.0, ROUNDED)];
    const CATCHES: &'static str =
        "components indexed [sequence][component]; a NaN that enters the sum; 0 for no score";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let components = data.element[..self.kinds].concat();
        backend.run(&Kernel {
            cu_groups: data.packed()?,
            components: In::new(&components),
            weights: In::new(&self.weights[..self.kinds]),
            combined: out.scores("combined"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("combined");
        let weights: Vec<f64> = self.weights[..self.kinds].iter().map(|w| f64::from(*w)).collect();
        for i in 0..data.elements() {
            let components: Vec<f64> = data.element[..self.kinds].iter().map(|x| f64::from(x[i])).collect();
            let (sum, magnitude) = oracle::sum(&components, &weights);
            if sum.is_nan() {
                want.push(NO_SCORE.into(), 0.0);
            } else {
                want.push(sum, sum.abs() + 1e-8 * magnitude);
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(1..=3, small()), source, |_, (kinds, shape), source| {
            case(kinds, [1.0, 0.5, -0.1], &shape, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let weights = [draw.unit(), 2.0 * draw.unit(), -draw.unit()];
        let shape = draw.shape();
        case(1 + draw.below(3), weights, &shape, draw.source())
    }
}

fn case(kinds: usize, weights: [f32; 3], shape: &Shape, source: Source) -> Case {
    let offsets = shape.offsets();
    let n = offsets[offsets.len() - 1] as usize;
    let value = |k: u64, i: usize| match source.fork(k).below(i, 4) {
        0 => f32::NAN,
        _ => values::advantage(source.fork(10 + k), i),
    };
    let element = (0..3).map(|k| (0..n).map(|i| value(k, i)).collect()).collect();
    let label = format!("{kinds} components {} {weights:?}", shape.name);
    Case::of(Combine { kinds, weights }, label, Data { offsets, element, ..Data::default() })
}

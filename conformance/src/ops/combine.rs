//! `combine`: up to three components.

use super::OpTest;
use crate::backend::Backend;
use crate::cases::hash::Source;
use crate::cases::random::Draw;
use crate::cases::shapes::{Shape, small};
use crate::cases::{Case, Data, values};
use crate::expect::Want;
use crate::launch::{element, f32s};
use crate::oracle::combine as oracle;
use crate::output::Output;
use crate::precision::Allowance;
use lockstep_core::advantage::Combine as Kernel;
use lockstep_core::ragged::{In, Offsets, Out};

/// Arguments of `combine`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combine {
    /// Number of components.
    pub kinds: usize,
    /// Their weights.
    pub weights: [f32; 3],
}

impl OpTest for Combine {
    const OPS: &'static [&'static str] = &["combine"];
    const ALLOWED: &'static [Allowance] = &[Allowance {
        op: "combine",
        output: "combined",
        units: 1.0,
        reason: "binary64 inside, rounded to binary32 once: half an ULP is at most one unit",
    }];

    fn op(&self) -> &'static str {
        "combine"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data) -> Result<Vec<Output>, String> {
        let n = data.elements();
        let mut combined = f32s(n);
        let components = data.element[..self.kinds].concat();
        backend.run(&Kernel {
            cu_groups: Offsets::new("offsets", &data.offsets, n, "elements").map_err(|e| e.to_string())?,
            components: In::new(&components),
            weights: In::new(&self.weights[..self.kinds]),
            combined: Out::new(&mut combined),
        })?;
        // NaN means that there is no score at all. The oracle compares numbers, so it is replaced here by a
        // number that no sum equals.
        let none = |x: f32| if x.to_bits() == 0x7fc0_0000 { NONE } else { x };
        Ok(vec![element("combined", combined.into_iter().map(none).collect())])
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("combined");
        let weights: Vec<f64> = self.weights[..self.kinds].iter().map(|w| f64::from(*w)).collect();
        for i in 0..data.elements() {
            let components: Vec<f64> = data.element[..self.kinds].iter().map(|x| f64::from(x[i])).collect();
            let (sum, magnitude) = oracle::sum(&components, &weights);
            if sum.is_nan() {
                want.push(NONE.into(), 0.0);
            } else {
                want.push(sum, sum.abs() + 1e-8 * magnitude);
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for kinds in 1..=3 {
            for shape in small() {
                cases.push(case(kinds, [1.0, 0.5, -0.1], &shape, source.fork(cases.len() as u64)));
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let weights = [draw.unit(), 2.0 * draw.unit(), -draw.unit()];
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths: draw.lengths() };
        case(1 + draw.below(3), weights, &shape, draw.source())
    }
}

const NONE: f32 = 1e38;

fn case(kinds: usize, weights: [f32; 3], shape: &Shape, source: Source) -> Case {
    let offsets = shape.offsets();
    let n = offsets[offsets.len() - 1] as usize;
    let value = |k: u64, i: usize| match source.fork(k).below(i, 4) {
        0 => f32::NAN,
        _ => values::advantage(source.fork(10 + k), i),
    };
    let element = (0..3).map(|k| (0..n).map(|i| value(k, i)).collect()).collect();
    Case {
        label: format!("{kinds} components {} {weights:?}", shape.name),
        catches: "components indexed [sequence][component]; a NaN that enters the sum; 0 for no score",
        params: Combine { kinds, weights }.into(),
        data: Data { offsets, element, ..Data::default() },
    }
}

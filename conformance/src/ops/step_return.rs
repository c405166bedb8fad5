//! `step_return`. Whether a step matches is given in place of the case's mask; no step is masked out.

use super::prelude::*;
use crate::oracle::step_return as oracle;
use lockstep_core::advantage::StepReturn as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReturn {
    pub gamma: f64,
    /// Whether to use the paper's sum.
    pub include_first_mismatch: bool,
}

/// Whether each step matches, from the case's indices; all do if there are none.
pub fn matches(data: &Data) -> Vec<u8> {
    (0..data.elements()).map(|i| data.index.get(i).map_or(1, |x| (*x % 256) as u8)).collect()
}

const GAMMAS: [f64; 4] = [0.5, 0.9, 0.0, 1.0];

impl OpTest for StepReturn {
    const OPS: &'static [&'static str] = &["step_return"];
    const ALLOWED: &'static [Allowance] = &[allow("step_return", &["returns"], 1.0, ROUNDED)];
    const CATCHES: &'static str = "credit that passes a step that differs; a cut that takes the step's own \
                                   reward; a cut at a block's edge";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let matches = matches(data);
        backend.run(&Kernel {
            cu_steps: data.packed()?,
            rewards: In::new(&data.element[0]),
            matches: In::new(&matches),
            gamma: self.gamma,
            include_first_mismatch: self.include_first_mismatch,
            returns: out.element("returns"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut returns = Vec::new();
        let of = if self.include_first_mismatch { oracle::paper } else { oracle::code };
        for r in 0..data.rows() {
            let rewards = data.wide(0, r);
            let magnitudes: Vec<f64> = rewards.iter().map(|x| x.abs()).collect();
            let ok: Vec<bool> = matches(data)[data.span(r)].iter().map(|x| *x != 0).collect();
            let magnitudes = of(&magnitudes, &ok, self.gamma);
            returns.extend(of(&rewards, &ok, self.gamma).into_iter().zip(magnitudes));
        }
        vec![Want::rounded("returns", returns)]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(small(), GAMMAS), source, |k, (shape, gamma), source| {
            let params = StepReturn { gamma, include_first_mismatch: (k + k / 4) % 2 == 1 };
            case(params, [2, 9, 1000][k % 3], &shape, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = StepReturn { gamma: draw.pick(&GAMMAS), include_first_mismatch: draw.yes() };
        let shape = draw.shape();
        case(params, 1 + draw.below(20), &shape, draw.source())
    }
}

/// One step in `rare` does not match.
fn case(params: StepReturn, rare: usize, shape: &Shape, source: Source) -> Case {
    let offsets = shape.offsets();
    let n = offsets[offsets.len() - 1] as usize;
    let element = vec![(0..n).map(|i| values::advantage(source.fork(1), i)).collect()];
    let matching = |i: usize| if source.below(i, rare) == 0 { 0 } else { 1 + source.below(i, 255) as u32 };
    let data = Data { offsets, element, index: (0..n).map(matching).collect(), ..Data::default() };
    Case::of(params, format!("{params:?} {} {rare}", shape.name), data)
}

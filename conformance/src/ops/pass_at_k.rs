//! `pass_at_k`.

use super::prelude::*;
use crate::oracle::pass_at_k as oracle;
use crate::output::Values;
use crate::outputs::row;
use lockstep_core::advantage::PassAtK as Kernel;

/// Arguments of `pass_at_k`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassAtK {
    /// Attempts.
    pub k: u32,
    /// Rewards above this are correct.
    pub threshold: f32,
}

impl OpTest for PassAtK {
    const OPS: &'static [&'static str] = &["pass_at_k"];
    const ALLOWED: &'static [Allowance] = &[allow("pass_at_k", &["advantage", "pass_at_k"], 1.0, ROUNDED)];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&checked!(Kernel {
            cu_groups: data.packed()?,
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            k: self.k,
            threshold: self.threshold,
            advantage: out.element("advantage"),
            pass_at_k: out.array(data.rows(), |values| vec![row("pass_at_k", estimates(values))]),
            counted: out.row("counted"),
        }))
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let [mut advantage, mut rate, mut counted] = ["advantage", "pass_at_k", "counted"].map(Want::new);
        for r in 0..data.rows() {
            let reward = |i: usize| data.element[0][i];
            let member = |i: usize| data.live(i) && !reward(i).is_nan();
            let correct = |i: usize| member(i) && reward(i) > self.threshold;
            let n = data.span(r).filter(|i| member(*i)).count();
            let c = data.span(r).filter(|i| correct(*i)).count();
            let group = oracle::group(c, n - c, self.k);
            let (estimate, good, bad) = group.unwrap_or((-1.0, 0.0, 0.0));
            for i in data.span(r) {
                let a = if correct(i) { good } else { bad };
                let a = if member(i) { a } else { 0.0 };
                advantage.push(a, a.abs());
            }
            rate.push(estimate, estimate);
            counted.push(n as f64, 0.0);
        }
        vec![advantage, rate, counted]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for k in [1, 2, 4, 8, 64, 1000] {
            for valid in [false, true] {
                let source = source.fork(cases.len() as u64);
                cases.push(case(PassAtK { k, threshold: 0.5 }, &rewards::sizes(), valid, source));
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = PassAtK { k: 1 + draw.below(12) as u32, threshold: draw.pick(&[0.5, 0.0, -0.25]) };
        let sizes: Vec<u32> = draw.lengths();
        let (valid, source) = (draw.yes(), draw.source());
        case(params, &sizes, valid, source)
    }
}

/// A group with too few members has no estimate, i.e. NaN; −1 here, because an oracle compares numbers.
fn estimates(values: Vec<f32>) -> Values {
    Values::F32(values.into_iter().map(|x| if x.to_bits() == 0x7fc0_0000 { -1.0 } else { x }).collect())
}

fn case(params: PassAtK, sizes: &[u32], valid: bool, source: Source) -> Case {
    Case {
        label: format!("{params:?}, {} groups, valid {valid}", sizes.len()),
        catches: "a binomial that wraps for k above the number of wrong ones; 0/0 with none correct",
        params: params.into(),
        data: rewards::groups(sizes, valid, source.fork(1)),
    }
}

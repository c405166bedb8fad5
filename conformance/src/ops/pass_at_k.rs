//! `pass_at_k`.

use super::prelude::*;
use crate::oracle::pass_at_k as oracle;
use lockstep_core::advantage::PassAtK as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassAtK {
    pub k: u32,
    /// Rewards above this are correct.
    pub threshold: f32,
    pub eps: f64,
}

impl OpTest for PassAtK {
    const OPS: &'static [&'static str] = &["pass_at_k"];
    const ALLOWED: &'static [Allowance] = &[allow("pass_at_k", &["advantage", "pass_at_k"], 1.0, ROUNDED)];
    const CATCHES: &'static str =
        "a binomial that wraps for k above the number of wrong ones; 0/0 with none correct";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
            cu_groups: data.packed()?,
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            k: self.k,
            threshold: self.threshold,
            eps: self.eps,
            advantage: out.element("advantage"),
            pass_at_k: out.array(data.rows(), |values| vec![row("pass_at_k", estimates(values))]),
            counted: out.row("counted"),
            too_few: out.row("too_few"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let names = ["advantage", "pass_at_k", "counted", "too_few"];
        let [mut advantage, mut rate, mut counted, mut too_few] = names.map(Want::new);
        for r in 0..data.rows() {
            let correct = |i: usize| data.scored(i) && data.element[0][i] > self.threshold;
            let n = data.span(r).filter(|i| data.scored(*i)).count();
            let c = data.span(r).filter(|i| correct(*i)).count();
            let group = oracle::group(c, n - c, self.k, self.eps);
            let (estimate, good, bad) = group.unwrap_or((-1.0, 0.0, 0.0));
            for i in data.span(r) {
                let a = if correct(i) { good } else { bad };
                let a = if data.scored(i) { a } else { 0.0 };
                advantage.push(a, a.abs());
            }
            rate.push(estimate, estimate);
            counted.push(n as f64, 0.0);
            too_few.exact(u32::from((n as u32) < self.k && !data.span(r).is_empty()));
        }
        vec![advantage, rate, counted, too_few]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs([1, 2, 4, 8, 64, 1000], [false, true]), source, |_, (k, valid), source| {
            let eps = if k % 4 == 0 { 1e-6 } else { 0.0 };
            case(PassAtK { k, threshold: 0.5, eps }, &rewards::sizes(), valid, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let (k, threshold) = (1 + draw.below(12) as u32, draw.pick(&[0.5, 0.0, -0.25]));
        let params = PassAtK { k, threshold, eps: draw.pick(&[1e-6, 0.0, 0.1]) };
        case(params, &draw.lengths(), draw.yes(), draw.source())
    }
}

/// A group with too few members has no estimate, i.e. NaN; −1 here, because an oracle compares numbers.
fn estimates(values: Vec<f32>) -> Values {
    Values::F32(values.into_iter().map(|x| if x.to_bits() == 0x7fc0_0000 { -1.0 } else { x }).collect())
}

fn case(params: PassAtK, sizes: &[u32], valid: bool, source: Source) -> Case {
    Case::of_groups(params, valid, rewards::groups(sizes, valid, source.fork(1)))
}

//! `sharpen`.

use super::prelude::*;
use crate::oracle::sharpen as oracle;
use lockstep_core::advantage::{Sharpen as Kernel, Sharpening};

/// Arguments of `sharpen`: rewards and advantages per element; lengths are [`Data::index`], log-probabilities
/// [`Data::element64`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharpen {
    pub sharpening: Sharpening,
    pub reference: bool,
    pub per_token: bool,
}

const LIST: [Sharpening; 5] = [
    Sharpening::Novelty { lambda: 2.5, kappa: 0.5 },
    Sharpening::Novelty { lambda: 0.125, kappa: 10.0 },
    Sharpening::Overconfidence { alpha: 1.0, cap: 5.0, relu: false },
    Sharpening::Overconfidence { alpha: 0.5, cap: f64::INFINITY, relu: false },
    Sharpening::Overconfidence { alpha: 1.0, cap: 3.0, relu: true },
];

fn reference(data: &Data, i: usize) -> f64 {
    f64::from(data.element[2][i])
}

const REASON: &str =
    "exp and log1p within 1 ULP, products in binary64; the rounding of their arguments is in the magnitude";

impl OpTest for Sharpen {
    const OPS: &'static [&'static str] = &["sharpen"];
    const ALLOWED: &'static [Allowance] = &[allow("sharpen", &["sharpened"], 2.0, REASON)];
    const CATCHES: &'static str = "a mean over members that are not counted; 0/0 tokens; a positive \
                                   advantage that grows with confidence";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let references: Vec<f64> = (0..data.elements()).map(|i| reference(data, i)).collect();
        backend.run(&Kernel {
            cu_groups: data.packed()?,
            advantage: In::new(&data.element[1]),
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            threshold: 0.5,
            logp: In::new(&data.element64),
            logp_ref: self.reference.then(|| In::new(&references[..])),
            tokens: self.per_token.then(|| In::new(&data.index[..])),
            sharpening: self.sharpening,
            sharpened: out.element("sharpened"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("sharpened");
        for r in 0..data.rows() {
            let x = |i: usize| {
                let reference = if self.reference { reference(data, i) } else { 0.0 };
                let length = if self.per_token { f64::from(data.index[i]) } else { 1.0 };
                if length == 0.0 { 0.0 } else { (data.element64[i] - reference) / length }
            };
            let members: Vec<f64> = data.span(r).filter(|i| data.scored(*i)).map(x).collect();
            let mean = members.iter().sum::<f64>() / members.len() as f64;
            for i in data.span(r) {
                let a = f64::from(data.element[1][i]);
                if !data.scored(i) {
                    want.push(0.0, 0.0);
                    continue;
                }
                let correct = data.element[0][i] > 0.5;
                let (sharp, magnitude) = match self.sharpening {
                    Sharpening::Novelty { lambda, kappa } if correct => {
                        let d = x(i) - mean;
                        // When d rounds, e^d changes by |d| of itself; where the bonus is well beyond its
                        // limit it does not change.
                        let moved = lambda * d.exp() * (1.0 + d.abs());
                        let moved = if lambda * (1.0 - d.exp()) < 1.001 * kappa * a { moved } else { 0.0 };
                        let y = oracle::novelty(a, x(i), mean, lambda, kappa);
                        // The sum rounds once: a bonus may be larger than the advantage.
                        (y, y.abs() + moved)
                    }
                    Sharpening::Novelty { .. } => (a, a.abs()),
                    Sharpening::Overconfidence { .. } if a >= 0.0 => (a, a.abs()),
                    Sharpening::Overconfidence { alpha, cap, relu } => {
                        let y = a * oracle::factor(x(i), alpha, cap, relu);
                        (y, y.abs() * (1.0 + alpha))
                    }
                };
                want.push(sharp, magnitude);
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(LIST, [false, true]), source, |k, (sharpening, valid), source| {
            let params = Sharpen { sharpening, reference: k / 2 % 2 == 0, per_token: k < 4 || valid };
            case(params, &rewards::sizes(), valid, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = Sharpen { sharpening: draw.pick(&LIST), reference: draw.yes(), per_token: draw.yes() };
        case(params, &draw.lengths(), draw.yes(), draw.source())
    }
}

fn case(params: Sharpen, sizes: &[u32], valid: bool, source: Source) -> Case {
    let mut data = rewards::groups(sizes, valid, source.fork(1));
    let n = data.elements();
    let advantage = data.array(|i| values::advantage(source.fork(2), i));
    let near =
        (0..n).map(|i| if data.live(i) { -8.0 - 4.0 * source.fork(3).unit(i) } else { f32::NAN }).collect();
    data.index = (0..n).map(|i| [0, 1, 7, 20][source.fork(4).below(i, 4)]).collect();
    data.element64 = (0..n).map(|i| -10.0 + 6.0 * f64::from(source.fork(5).signed(i))).collect();
    data.element.extend([advantage, near]);
    Case::of_groups(params, valid, data)
}

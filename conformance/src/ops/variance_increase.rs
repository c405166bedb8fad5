//! `variance_increase`, against an exhaustive search.

use super::prelude::*;
use crate::oracle::variance_increase as oracle;
use lockstep_core::reward::VarianceIncrease as Kernel;

/// Arguments of `variance_increase`; log-probabilities are [`Data::element64`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VarianceIncrease {
    pub weighted: bool,
    pub bounds: [f64; 2],
    /// Margin beyond the group's own range.
    pub margin: f64,
    pub merge_ties: bool,
}

const OWN: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];

const REASON: &str = "exponentials within 1 ULP (two units) in numerator and denominator; the rounding of \
                      their arguments is in the magnitude";

impl OpTest for VarianceIncrease {
    const OPS: &'static [&'static str] = &["variance_increase"];
    const ALLOWED: &'static [Allowance] = &[allow("variance_increase", &["shaped"], 4.0, REASON)];
    const CATCHES: &'static str =
        "a search that stops at the first end it cannot move; 1 - S_A - S_C that cancels; ties that part";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
            cu_groups: data.packed()?,
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            logp: self.weighted.then(|| In::new(&data.element64[..])),
            low: self.bounds[0],
            high: self.bounds[1],
            margin: self.margin,
            merge_ties: self.merge_ties,
            shaped: out.scores("shaped"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("shaped");
        for r in 0..data.rows() {
            let span = data.span(r);
            let members: Vec<usize> = span.clone().filter(|i| data.scored(*i)).collect();
            let x: Vec<f64> = members.iter().map(|i| data.element[0][*i].into()).collect();
            let logp = |i: &usize| if self.weighted { data.element64[*i] } else { 0.0 };
            let logp: Vec<f64> = members.iter().map(logp).collect();
            let p = oracle::softmax(&logp);
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let least = x.iter().copied().fold(f64::INFINITY, f64::min);
            let own = [least - self.margin, most + self.margin];
            let given = [self.bounds[0].min(least), self.bounds[1].max(most)];
            let [low, high] = [0, 1].map(|k| if self.bounds[k].is_infinite() { own[k] } else { given[k] });
            let splits = oracle::splits(&x, &p, [low, high], self.merge_ties);
            let best = oracle::best(&splits);
            let furthest = logp.iter().map(|l| logp[0] - l).fold(0.0, |m: f64, d| m.max(d.abs()));
            for i in span {
                let Some(k) = members.iter().position(|m| *m == i) else {
                    want.push(NO_SCORE.into(), 0.0);
                    continue;
                };
                let (z, magnitude) = match best {
                    Some(best) if most > least => {
                        // Splits as good as the best to the accuracy of binary32 probabilities, but with a
                        // different z: undecidable.
                        let close = |s: &&oracle::Split| s.variance >= best.variance * (1.0 - 1e-5);
                        let near = 1e-5 * (high - low);
                        let doubtful = splits.iter().filter(close).any(|s| (s.z[k] - best.z[k]).abs() > near);
                        let size = best.z[k].abs() + best.magnitude * (2.0 + furthest);
                        (best.z[k], if doubtful { f64::INFINITY } else { size })
                    }
                    _ => (x[k], x[k].abs()),
                };
                want.push(z, magnitude);
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let sizes: Vec<u32> = rewards::sizes().into_iter().map(|n| n.min(16)).collect();
        let all = [
            (false, OWN, 0.0, false),
            (false, OWN, 0.25, true),
            (true, OWN, 0.0, true),
            (true, OWN, 0.5, false),
            (true, [-1.5, 1.5], 0.0, true),
        ];
        numbered(all, source, |k, (weighted, bounds, margin, merge_ties), source| {
            case(VarianceIncrease { weighted, bounds, margin, merge_ties }, &sizes, k % 2 == 1, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let sizes: Vec<u32> = draw.lengths().into_iter().map(|n| n % 13).collect();
        let bounds = draw.pick(&[OWN, OWN, [-2.0, 2.0], [0.0, 1.0]]);
        let (weighted, merge_ties) = (draw.yes(), draw.yes());
        let margin = draw.pick(&[0.0, 0.125, 1.0]);
        let params = VarianceIncrease { weighted, bounds, margin, merge_ties };
        case(params, &sizes, draw.yes(), draw.source())
    }
}

fn case(params: VarianceIncrease, sizes: &[u32], valid: bool, source: Source) -> Case {
    let mut data = rewards::groups(sizes, valid, source.fork(1));
    data.element64 =
        (0..data.elements()).map(|i| -40.0 + 2.0 * f64::from(source.fork(2).signed(i))).collect();
    Case::of_groups(params, valid, data)
}

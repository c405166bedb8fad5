//! `filter_groups`.

use super::prelude::*;
use crate::oracle::filter as oracle;
use lockstep_core::reward::{Criterion, FilterGroups as Kernel};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    pub criterion: Criterion,
}

const CRITERIA: [Criterion; 8] = [
    Criterion::Varied,
    Criterion::Spread { eta: 0.3 },
    Criterion::SolveRate { threshold: 0.0, limit: 0.9 },
    Criterion::SolveRate { threshold: 0.5, limit: 0.5 },
    Criterion::Balanced { tau: 0.6 },
    Criterion::Equal { value: 1.0 },
    Criterion::Nonzero,
    Criterion::AtMost { limit: 0.25 },
];

impl OpTest for Filter {
    const OPS: &'static [&'static str] = &["filter_groups"];
    const ALLOWED: &'static [Allowance] = &[allow("filter_groups", &["statistic"], 1.0, ROUNDED)];
    const CATCHES: &'static str = "a deviation of 1e-9 that keeps a group of eight times 0.1; a rate over \
                                   members that are not counted";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
            cu_groups: data.packed()?,
            metric: In::new(&data.element[0]),
            valid: data.masked(),
            criterion: self.criterion,
            keep: out.element("keep"),
            kept: out.row("kept"),
            statistic: out.row("statistic"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let [mut keep, mut kept, mut statistic] = ["keep", "kept", "statistic"].map(Want::new);
        for r in 0..data.rows() {
            let span = data.span(r);
            let x: Vec<f64> =
                span.clone().filter(|i| data.scored(*i)).map(|i| data.element[0][i].into()).collect();
            let n = x.len();
            let mean = x.iter().sum::<f64>() / n as f64;
            let fraction = |holds: &dyn Fn(f64) -> bool| oracle::fraction(&x, holds);
            let std = if oracle::is_constant(&x) { 0.0 } else { oracle::std(&x) };
            // Whether whole groups or single sequences are kept.
            type One = Box<dyn Fn(f64) -> bool>;
            let (number, whole, one): (f64, Option<bool>, One) = match self.criterion {
                Criterion::Varied => {
                    let varied = n > 0 && !oracle::is_constant(&x);
                    (std, Some(varied || n == 1 || span.len() <= 1), Box::new(|_| false))
                }
                Criterion::Spread { eta } => (std, Some(n > 0 && std > eta), Box::new(|_| false)),
                Criterion::SolveRate { threshold, limit } => {
                    let rate = fraction(&|x| x > threshold);
                    (rate, Some(rate < limit), Box::new(|_| false))
                }
                Criterion::Balanced { tau } => (mean.abs(), Some(mean.abs() <= tau), Box::new(|_| false)),
                Criterion::Equal { value } => {
                    (fraction(&|x| x == value), None, Box::new(move |x| x == value))
                }
                Criterion::Nonzero => (fraction(&|x| x != 0.0), None, Box::new(|x| x != 0.0)),
                Criterion::AtMost { limit } => {
                    (fraction(&|x| x <= limit), None, Box::new(move |x| x <= limit))
                }
            };
            let mut count = 0.0;
            for i in span {
                let yes = whole.unwrap_or_else(|| data.scored(i) && one(data.element[0][i].into()));
                keep.push(f64::from(u8::from(yes)), 0.0);
                count += f64::from(u8::from(yes));
            }
            kept.push(count, 0.0);
            let sizes = x.iter().map(|x| x.abs()).sum::<f64>() / n.max(1) as f64;
            // A mean of both signs may cancel: binary64 sums leave 1e-8 units of the terms.
            let number = if n == 0 { 0.0 } else { number };
            statistic.push(number, number.abs() + 1e-8 * sizes);
        }
        vec![keep, kept, statistic]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(CRITERIA, [false, true]), source, |_, (criterion, valid), source| {
            case(Filter { criterion }, &rewards::sizes(), valid, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        case(Filter { criterion: draw.pick(&CRITERIA) }, &draw.lengths(), draw.yes(), draw.source())
    }
}

fn case(params: Filter, sizes: &[u32], valid: bool, source: Source) -> Case {
    Case::of_groups(params, valid, rewards::groups(sizes, valid, source.fork(1)))
}

//! `kl`.

use super::prelude::*;
use crate::cases::corpus::token_case;
use crate::cases::params::kls_of_ops;
use crate::cases::shapes::named;
use crate::expect::Sum;
use crate::expect::tokens::{estimator, kl_token};
use lockstep_core::kl::{Kl, KlDivergence as Kernel};

/// Arguments of `kl`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KlDivergence {
    /// Estimator and guards.
    pub kl: Kl,
    /// Whether per-token outputs are wanted.
    pub outputs: bool,
}

impl OpTest for KlDivergence {
    const OPS: &'static [&'static str] = &["kl"];
    const ALLOWED: &'static [Allowance] = &[
        allow("kl", &["kl"], 3.0, "one subtraction, then a square or expm1mx within its bound"),
        allow("kl", &["gradient"], 2.0, "one subtraction, then expm1 within its bound"),
        allow("kl", &["row_sum"], 2.0, TERMS),
    ];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            logp: In::new(&data.element[slot::LOGP]),
            logp_ref: In::new(&data.element[slot::LOGP_OLD]),
            kl: self.kl,
            value: self.outputs.then(|| out.element("kl")),
            gradient: self.outputs.then(|| out.element("gradient")),
            row_sum: out.row("row_sum"),
            row_alarm: out.alarm(),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let oracle = estimator(self.kl);
        let [mut value, mut gradient, mut row_sum] = ["kl", "gradient", "row_sum"].map(Want::new);
        for row in 0..data.rows() {
            let mut sum = Sum::default();
            for i in data.span(row) {
                let [v, g] = match data.live(i) {
                    true => kl_token(&oracle, data.element[slot::LOGP][i], data.element[slot::LOGP_OLD][i]),
                    false => [(0.0, 0.0); 2],
                };
                value.push(v.0, v.1);
                gradient.push(g.0, g.1);
                sum.add(v.0, v.1);
            }
            row_sum.push(sum.0, sum.1);
        }
        vec![value, gradient, row_sum]
    }

    fn stream(root: Source) -> Source {
        root.fork(400)
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for kl in kls_of_ops() {
            for range in Range::ALL {
                let k = cases.len();
                let params = KlDivergence { kl, outputs: k % 7 != 6 };
                cases.push(token_case(params, &small()[k % 3], Mask::ALL[k % 6], range, k, source));
            }
        }
        for (shape, mask) in [("large", Mask::Random), ("one", Mask::Absent), ("nothing", Mask::Full)] {
            let (params, k) = (KlDivergence { kl: kls_of_ops()[8], outputs: true }, cases.len());
            cases.push(token_case(params, &named(shape), mask, Range::Realistic, k, source));
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = KlDivergence { kl: draw.pick(&kls_of_ops()), outputs: draw.yes() };
        draw.tokens(params)
    }

    fn fault_slots(&self) -> Vec<Fault> {
        vec![(slot::LOGP, NO_LOGP), (slot::LOGP_OLD, NO_LOGP)]
    }
}

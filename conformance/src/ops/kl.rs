//! `kl`.

use super::prelude::*;
use crate::cases::corpus::token_cases;
use crate::cases::params::kls_of_ops;
use crate::expect::tokens::{estimator, kl_token};
use lockstep_core::kl::{Kl, KlDivergence as Kernel};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KlDivergence {
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
    const FAULTS: &'static [Fault] = &[(slot::LOGP, NO_LOGP), (slot::LOGP_OLD, NO_LOGP)];

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
        let all = pairs(kls_of_ops(), Range::ALL).enumerate();
        let all = all.map(|(k, (kl, range))| (KlDivergence { kl, outputs: k % 7 != 6 }, range));
        token_cases(all, KlDivergence { kl: kls_of_ops()[8], outputs: true }, source)
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = KlDivergence { kl: draw.pick(&kls_of_ops()), outputs: draw.yes() };
        draw.tokens(params)
    }
}

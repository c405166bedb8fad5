//! `token_ratio`.

use super::policy_loss::MAXIMA;
use super::prelude::*;
use crate::cases::corpus::token_cases;
use crate::cases::params::{BAND, guards};
use crate::expect::tokens::{Ratios, difference, doubtful, guard};
use crate::oracle::kl::k3;
use lockstep_core::ratio::{Guard, TokenRatio as Kernel, token};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRatio {
    pub guard: Guard,
    /// Whether per-token outputs are wanted.
    pub outputs: bool,
}

/// Names of the statistics, in the order of [`token::sum`].
const SUMS: [&str; token::sum::SUMS] =
    ["sum_k1", "sum_k3", "sum_excess", "sum_excess_squared", "sum_guarded", "sum_in_band"];

impl OpTest for TokenRatio {
    const OPS: &'static [&'static str] = &["token_ratio"];
    const ALLOWED: &'static [Allowance] = &[
        allow("token_ratio", &["ratio", "max_ratio", "max_neg_ratio"], 2.0, EXP),
        allow("token_ratio", &["log_ratio"], 1.0, "one subtraction"),
        allow("token_ratio", &["sum_k1"], 1.0, TERMS),
        allow("token_ratio", &["sum_k3", "sum_excess", "sum_excess_squared"], 2.0, TERMS),
    ];
    const FAULTS: &'static [Fault] = &[(slot::LOGP, NO_LOGP), (slot::LOGP_OLD, NO_LOGP)];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            logp: In::new(&data.element[slot::LOGP]),
            logp_old: In::new(&data.element[slot::LOGP_OLD]),
            guard: self.guard,
            band: BAND,
            ratio: self.outputs.then(|| out.element("ratio")),
            log_ratio: self.outputs.then(|| out.element("log_ratio")),
            row_sums: out.rows(&SUMS),
            row_maxima: out.rows(&MAXIMA),
            row_alarm: out.alarm(),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let oracle = guard(self.guard);
        let [mut ratio, mut log_ratio] = ["ratio", "log_ratio"].map(Want::new);
        let (mut sums, mut maxima) = (SUMS.map(Want::new), MAXIMA.map(Want::new));
        for row in 0..data.rows() {
            let (mut ratios, mut k3s, mut guarded) = (Ratios::default(), Sum::default(), Sum::default());
            for i in data.span(row) {
                if !data.live(i) {
                    ratio.push(0.0, 0.0);
                    log_ratio.push(0.0, 0.0);
                    continue;
                }
                let (raw, exact) = difference(data.element[slot::LOGP][i], data.element[slot::LOGP_OLD][i]);
                let d = oracle.value(raw);
                let (r, spread) = (d.exp(), 1.0 + d.abs());
                ratio.push(r, r * spread);
                log_ratio.push(raw, raw.abs());
                ratios.add(d, r, d);
                k3s.add(k3(d), k3(d) * (1.0 + spread));
                guarded.count(!oracle.inside(raw), doubtful(raw, exact, oracle.distance_to_kink(raw)));
            }
            let [k1, excess, squared, in_band] = ratios.sums;
            push_all(&mut sums, [k1, k3s, excess, squared, guarded, in_band]);
            push_all(&mut maxima, ratios.maxima);
        }
        [ratio, log_ratio].into_iter().chain(sums).chain(maxima).collect()
    }

    fn stream(root: Source) -> Source {
        root.fork(200)
    }

    fn corpus(source: Source) -> Vec<Case> {
        let all = pairs(guards(), Range::ALL).enumerate();
        let all = all.map(|(k, (guard, range))| (TokenRatio { guard, outputs: k % 5 != 4 }, range));
        token_cases(all, TokenRatio { guard: guards()[1], outputs: true }, source)
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = TokenRatio { guard: draw.pick(&guards()), outputs: draw.yes() };
        draw.tokens(params)
    }
}

//! `kl_importance`.

use super::prelude::*;
use crate::cases::params::{guards, kls_of_ops};
use crate::expect::tokens as expected;
use crate::oracle::{kl as oracle_kl, kl_importance as oracle};
use lockstep_core::kl::Kl;
use lockstep_core::kl_importance::KlImportance as Kernel;
use lockstep_core::ratio::Guard;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KlImportance {
    pub kl: Kl,
    pub guard: Guard,
    /// Whether the gradient flows through r.
    pub through: bool,
    /// Whether per-token outputs are wanted.
    pub outputs: bool,
}

const REASON: &str = "exp within 1 ULP, expm1mx or expm1 within 2.5, two products; the rounding of both \
                      differences is in the magnitude";

impl OpTest for KlImportance {
    const OPS: &'static [&'static str] = &["kl_importance"];
    const ALLOWED: &'static [Allowance] =
        &[allow("kl_importance", &["kl", "gradient", "row_sum"], 4.0, REASON)];
    const CATCHES: &'static str =
        "old and reference swapped; a gradient that forgets r, or flows through it where it should not";
    const FAULTS: &'static [Fault] =
        &[(slot::LOGP, NO_LOGP), (slot::LOGP_OLD, NO_LOGP), (slot::LOGP_REF, NO_LOGP)];

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let input = |k: usize| In::new(&data.element[k][..]);
        backend.run(&Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            logp: input(slot::LOGP),
            logp_old: input(slot::LOGP_OLD),
            logp_ref: input(slot::LOGP_REF),
            kl: self.kl,
            guard: self.guard,
            through_ratio: self.through,
            row_sum: out.row("row_sum"),
            row_alarm: out.alarm(),
            value: self.outputs.then(|| out.element("kl")),
            gradient: self.outputs.then(|| out.element("gradient")),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (kl, guard) = (expected::estimator(self.kl), expected::guard(self.guard));
        let [mut value, mut gradient, mut row_sum] = ["kl", "gradient", "row_sum"].map(Want::new);
        for r in 0..data.rows() {
            let mut sum = Sum::default();
            for i in data.span(r) {
                if !data.live(i) {
                    value.exact(0.0);
                    gradient.exact(0.0);
                    continue;
                }
                let at = |k: usize| data.element[k][i];
                let (d, exact) = expected::difference(at(slot::LOGP), at(slot::LOGP_OLD));
                let (x, exact_x) = expected::difference(at(slot::LOGP), at(slot::LOGP_REF));
                let free = oracle_kl::Kl { clamp_out: f64::INFINITY, ..kl };
                let [v, g] = expected::kl_token(&free, at(slot::LOGP), at(slot::LOGP_REF));
                let want = oracle::token(&kl, guard, self.through, x, d);
                let ratio = guard.value(d).exp();
                let spread = ratio * (1.0 + guard.value(d).abs());
                value.push(want.0, v.1 * spread);
                sum.add(want.0, v.1 * spread);
                let product = v.0.abs() * ratio;
                let exact_product = guard.value(d) == 0.0 && expected::kl_is_exact(&kl, x, exact_x);
                let near = 8.0 * expected::UNIT * product * (2.0 + x.abs() + d.abs());
                let at_clamp_out = !exact_product && (product - kl.clamp_out).abs() < near;
                let jumps = (self.through && expected::doubtful(d, exact, guard.distance_to_kink(d)))
                    || (at_clamp_out && !kl.straight_through);
                let through = if self.through { v.1 } else { 0.0 };
                gradient.push(want.1, if jumps { f64::INFINITY } else { (g.1 + through) * spread });
            }
            row_sum.push(sum.0, sum.1);
        }
        vec![value, gradient, row_sum]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(kls_of_ops(), Range::ALL), source, |k, (kl, range), source| {
            // Without a guard, r·k3 at log-ratios of ±30 overflows f32.
            let guard = if range == Range::Wide { guards()[1 + k % 3] } else { guards()[k % 5] };
            let kl = if range == Range::Wide { Kl { clamp_in: 20.0, ..kl } } else { kl };
            let params = KlImportance { kl, guard, through: k % 2 == 0, outputs: k % 7 != 6 };
            case(params, &small()[k % 3], Mask::ALL[k % 6], range, source).numbered(k)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let kl = Kl { clamp_in: 20.0, ..draw.pick(&kls_of_ops()) };
        let guard = draw.pick(&guards()[1..4]);
        let params = KlImportance { kl, guard, through: draw.yes(), outputs: draw.yes() };
        case(params, &draw.shape(), draw.pick(&Mask::ALL), draw.pick(&Range::ALL), draw.source())
    }
}

fn case(params: KlImportance, shape: &Shape, mask: Mask, range: Range, source: Source) -> Case {
    let mut data = tokens(shape, mask, range, source);
    data.element.truncate(3);
    data.row.clear();
    Case::of(params, format!("{params:?} {} {mask:?} {range:?}", shape.name), data)
}

//! Runs a case: launches once, and returns the outputs by name.

use crate::backend::Backend;
use crate::cases::params::{BAND, Partials};
use crate::cases::{AnyGate, Case, Params, Policy, Taus, slot};
use crate::output::Output;
use crate::outputs::{Outputs, Space};
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale};
use lockstep_core::aggregate::{Aggregate, FoldRows, RowScan};
use lockstep_core::gate::{Gate, Sapo};
use lockstep_core::kl::KlDivergence;
use lockstep_core::policy_loss::{KlTerm, LossOut, MetricsOut, PolicyLoss, sum};
use lockstep_core::ragged::In;
use lockstep_core::ratio::{TokenRatio, token};
use lockstep_cpu::Compiled;

/// Names of the policy loss's statistics, in the order of [`sum`].
pub const POLICY_SUMS: [&str; sum::SUMS] = [
    "sum_loss",
    "sum_policy",
    "sum_kl_ref",
    "sum_k1",
    "sum_excess",
    "sum_excess_squared",
    "sum_gate",
    "sum_clip_high",
    "sum_clip_low",
    "sum_clip_dual",
    "sum_guarded",
    "sum_in_band",
    "sum_neg_logp",
];

/// Names of the ratio's statistics, in the order of [`token::sum`].
pub const RATIO_SUMS: [&str; token::sum::SUMS] =
    ["sum_k1", "sum_k3", "sum_excess", "sum_excess_squared", "sum_guarded", "sum_in_band"];

pub(crate) const MAXIMA: [&str; 2] = ["max_ratio", "max_neg_ratio"];

/// Runs a case and returns every output.
pub fn run<B: Backend>(backend: &B, case: &Case) -> Result<Vec<Output>, String> {
    let space = Space::new();
    let mut out = Outputs::of(&case.data, &space);
    launch(backend, case, &mut out).map_err(|error| format!("{} {}: {error}", case.op(), case.label))?;
    Ok(out.take())
}

fn launch<B: Backend>(backend: &B, case: &Case, out: &mut Outputs<'_>) -> Result<(), String> {
    let data = &case.data;
    let (offsets, mask) = (data.packed()?, data.masked());
    let input = |k: usize| In::new(&data.element[k][..]);
    match case.params {
        Params::GroupAdvantage { norm_by_std, ddof, eps, singleton } => backend.run(&GroupAdvantage {
            cu_groups: offsets,
            rewards: input(slot::FIRST),
            valid: mask,
            baseline: Baseline::Mean,
            scale: if norm_by_std { Scale::Std { ddof, eps } } else { Scale::None { ddof } },
            singleton,
            limit: f64::INFINITY,
            least_std: 0.0,
            weights: None,
            lengths: None,
            given: None,
            moments: None,
            advantage: out.element("advantage"),
            mean: out.row("mean"),
            std: out.row("std"),
            counted: out.row("counted"),
            status: out.row("status"),
            pivot: None,
        }),
        Params::TokenRatio { guard, outputs } => backend.run(&TokenRatio {
            cu_seqlens: offsets,
            loss_mask: mask,
            logp: input(slot::LOGP),
            logp_old: input(slot::LOGP_OLD),
            guard,
            band: BAND,
            ratio: outputs.then(|| out.element("ratio")),
            log_ratio: outputs.then(|| out.element("log_ratio")),
            row_sums: out.rows(&RATIO_SUMS),
            row_maxima: out.rows(&MAXIMA),
            row_alarm: out.alarm(),
        }),
        Params::Policy(policy) => match policy.gate {
            AnyGate::Ppo(gate) => policy_loss(backend, case, &policy, gate, out),
            AnyGate::Sapo(Taus { tau_pos, tau_neg }) => {
                policy_loss(backend, case, &policy, Sapo::new(tau_pos, tau_neg), out)
            }
            AnyGate::Cispo(gate) => policy_loss(backend, case, &policy, gate, out),
            AnyGate::Reinforce(gate) => policy_loss(backend, case, &policy, gate, out),
            AnyGate::DppoTv(gate) => policy_loss(backend, case, &policy, gate, out),
            AnyGate::DppoKl(gate) => policy_loss(backend, case, &policy, gate, out),
            AnyGate::MiniRl(gate) => policy_loss(backend, case, &policy, gate, out),
            AnyGate::Remix(gate) => policy_loss(backend, case, &policy, gate, out),
            AnyGate::TrustRegion(gate) => policy_loss(backend, case, &policy, gate, out),
        },
        Params::Kl { kl, outputs } => backend.run(&KlDivergence {
            cu_seqlens: offsets,
            loss_mask: mask,
            logp: input(slot::LOGP),
            logp_ref: input(slot::LOGP_OLD),
            kl,
            value: outputs.then(|| out.element("kl")),
            gradient: outputs.then(|| out.element("gradient")),
            row_sum: out.row("row_sum"),
            row_alarm: out.alarm(),
        }),
        Params::Aggregate { values } => backend.run(&Aggregate {
            cu_seqlens: offsets,
            loss_mask: mask,
            values: values.then(|| input(slot::FIRST)),
            row_sum: out.row("row_sum"),
            row_tokens: out.row("row_tokens"),
            row_alarm: out.alarm(),
        }),
        Params::RowScan { direction } => backend.run(&RowScan {
            cu_seqlens: offsets,
            loss_mask: mask,
            values: input(slot::FIRST),
            direction,
            scanned: out.element("scanned"),
        }),
        Params::FoldRows => {
            let partials = In::new(&data.element64[..]);
            let rows = data.elements() / data.rows();
            backend.run(&FoldRows { partials, rows, totals: out.row("totals") })
        }
        Params::Op(any) => any.run(backend, data, out),
    }
}

fn policy_loss<B: Backend, G: Gate>(
    backend: &B,
    case: &Case,
    policy: &Policy,
    gate: G,
    out: &mut Outputs<'_>,
) -> Result<(), String>
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    let data = &case.data;
    let input = |k: usize| In::new(&data.element[k][..]);
    let partials = Partials::of(policy.weight, policy.counted);
    let kernel = PolicyLoss {
        cu_seqlens: data.packed()?,
        loss_mask: data.masked(),
        logp: input(slot::LOGP),
        logp_old: input(slot::LOGP_OLD),
        logp_second: policy.gate.reads_second().then(|| input(policy.gate.second())),
        advantage: if policy.per_token { input(slot::ADVANTAGE) } else { In::new(&data.row[0][..]) },
        advantage_per_token: policy.per_token,
        weights: policy.weights.then(|| input(slot::WEIGHTS)),
        level: policy.level,
        guard: policy.guard,
        gate,
        kl: policy.kl.map(|(kl, coef)| KlTerm { logp_ref: input(slot::LOGP_REF), kl, coef, weighted: false }),
        weight: partials.weight,
        weight_from: partials.from(),
        coef: out.element("coef"),
        loss: policy.wants_loss().then(|| LossOut {
            token_loss: policy.token_loss.then(|| out.element("token_loss")),
            row_loss: out.row("row_loss"),
        }),
        row_tokens: out.row("row_tokens"),
        row_alarm: out.alarm(),
        metrics: policy.metrics.then(|| MetricsOut {
            row_sums: out.rows(&POLICY_SUMS),
            row_maxima: out.rows(&MAXIMA),
            band: BAND,
        }),
    };
    kernel.weight_from.check(&kernel.weight).map_err(|e| e.to_string())?;
    backend.run(&kernel)
}

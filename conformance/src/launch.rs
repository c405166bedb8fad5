//! Runs a case's kernel: poisons the outputs, launches once, and returns named outputs.

use crate::backend::Backend;
use crate::cases::params::{BAND, Partials};
use crate::cases::{AnyGate, Case, Params, Policy, Taus, slot};
use crate::output::{Output, POISON, POISON64, Place, Values};
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale};
use lockstep_core::aggregate::{Aggregate, FoldRows, RowScan};
use lockstep_core::gate::{Gate, Sapo};
use lockstep_core::kl::KlDivergence;
use lockstep_core::policy_loss::{KlTerm, LossOut, MetricsOut, PolicyLoss, sum};
use lockstep_core::ragged::{In, Mask, Offsets, Out, flag};
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

const MAXIMA: [&str; 2] = ["max_ratio", "max_neg_ratio"];

pub(crate) fn f32s(n: usize) -> Vec<f32> {
    vec![f32::from_bits(POISON); n]
}
pub(crate) fn f64s(n: usize) -> Vec<f64> {
    vec![f64::from_bits(POISON64); n]
}
pub(crate) fn u32s(n: usize) -> Vec<u32> {
    vec![POISON; n]
}
pub(crate) fn u64s(n: usize) -> Vec<u64> {
    vec![POISON64; n]
}
/// Counts below 2⁵³ as numbers; poison stays poison.
pub(crate) fn counts(values: &[u64]) -> Values {
    let number = |n: &u64| if *n == POISON64 { f64::from_bits(POISON64) } else { *n as f64 };
    Values::F64(values.iter().map(number).collect())
}

/// A byte that no kernel writes.
const POISON_BYTE: u8 = 0xba;
pub(crate) fn bytes(n: usize) -> Vec<u8> {
    vec![POISON_BYTE; n]
}
/// Bytes as numbers; poison stays poison.
pub(crate) fn widened(bytes: Vec<u8>) -> Values {
    Values::U32(bytes.into_iter().map(|b| if b == POISON_BYTE { POISON } else { b.into() }).collect())
}

/// Stands for "no score" in comparisons with an oracle, which compares numbers.
pub(crate) const NO_SCORE: f32 = 1e38;
/// Replaces the canonical NaN by [`NO_SCORE`].
pub(crate) fn scored(values: Vec<f32>) -> Vec<f32> {
    values.into_iter().map(|x| if x.to_bits() == 0x7fc0_0000 { NO_SCORE } else { x }).collect()
}

pub(crate) fn element(name: &'static str, values: Vec<f32>) -> Output {
    Output { name, place: Place::Element, values: Values::F32(values) }
}
pub(crate) fn row(name: &'static str, values: Values) -> Output {
    Output { name, place: Place::Row, values }
}

/// Which alarms are raised, as 0 or 1. An alarm's exact value is unspecified both below the limit (the
/// magnitudes that enter it depend on the requested outputs) and above it.
pub(crate) fn raised(alarm: Vec<u32>) -> Output {
    let raised = |alarm: u32| if alarm == POISON { POISON } else { u32::from(alarm > flag::LIMIT) };
    row("alarm", Values::U32(alarm.into_iter().map(raised).collect()))
}

/// Splits `[K][rows]` into K outputs.
pub(crate) fn statistics(names: &[&'static str], values: &[f64], rows: usize) -> Vec<Output> {
    let chunk = |k: usize| Values::F64(values[k * rows..(k + 1) * rows].to_vec());
    names.iter().enumerate().map(|(k, name)| row(name, chunk(k))).collect()
}

pub(crate) fn maxima(values: &[f32], rows: usize) -> Vec<Output> {
    let chunk = |k: usize| Values::F32(values[k * rows..(k + 1) * rows].to_vec());
    MAXIMA.iter().enumerate().map(|(k, name)| row(name, chunk(k))).collect()
}

/// A case's offsets, which are well-formed by construction.
fn offsets(case: &Case) -> Offsets<'_> {
    match Offsets::new("offsets", &case.data.offsets, case.data.elements(), "elements") {
        Ok(offsets) => offsets,
        Err(error) => panic!("{} {}: {error}", case.op(), case.label),
    }
}

/// Runs a case and returns every output.
pub fn run<B: Backend>(backend: &B, case: &Case) -> Result<Vec<Output>, String> {
    let (rows, n) = (case.data.rows(), case.data.elements());
    let (offsets, mask) = (offsets(case), Mask::new(case.data.mask.as_deref()));
    let input = |k: usize| In::new(&case.data.element[k][..]);
    Ok(match case.params {
        Params::GroupAdvantage { norm_by_std, ddof, eps, singleton } => {
            let (mut advantage, mut mean, mut std) = (f32s(n), f32s(rows), f32s(rows));
            let (mut counted, mut status) = (u32s(rows), u32s(rows));
            backend.run(&GroupAdvantage {
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
                advantage: Out::new(&mut advantage),
                mean: Out::new(&mut mean),
                std: Out::new(&mut std),
                counted: Out::new(&mut counted),
                status: Out::new(&mut status),
                pivot: None,
            })?;
            vec![
                element("advantage", advantage),
                row("mean", Values::F32(mean)),
                row("std", Values::F32(std)),
                row("counted", Values::U32(counted)),
                row("status", Values::U32(status)),
            ]
        }
        Params::TokenRatio { guard, outputs } => {
            let (mut ratio, mut log_ratio) = (f32s(n), f32s(n));
            let (mut sums, mut max, mut alarm) = (f64s(rows * token::sum::SUMS), f32s(rows * 2), u32s(rows));
            backend.run(&TokenRatio {
                cu_seqlens: offsets,
                loss_mask: mask,
                logp: input(slot::LOGP),
                logp_old: input(slot::LOGP_OLD),
                guard,
                band: BAND,
                ratio: outputs.then(|| Out::new(&mut ratio)),
                log_ratio: outputs.then(|| Out::new(&mut log_ratio)),
                row_sums: Out::new(&mut sums),
                row_maxima: Out::new(&mut max),
                row_alarm: Out::new(&mut alarm),
            })?;
            let mut out = Vec::new();
            if outputs {
                out.extend([element("ratio", ratio), element("log_ratio", log_ratio)]);
            }
            out.extend(statistics(&RATIO_SUMS, &sums, rows));
            out.extend(maxima(&max, rows));
            out.push(raised(alarm));
            out
        }
        Params::Policy(policy) => match policy.gate {
            AnyGate::Ppo(gate) => policy_loss(backend, case, &policy, gate)?,
            AnyGate::Sapo(Taus { tau_pos, tau_neg }) => {
                policy_loss(backend, case, &policy, Sapo::new(tau_pos, tau_neg))?
            }
            AnyGate::Cispo(gate) => policy_loss(backend, case, &policy, gate)?,
            AnyGate::Reinforce(gate) => policy_loss(backend, case, &policy, gate)?,
            AnyGate::DppoTv(gate) => policy_loss(backend, case, &policy, gate)?,
            AnyGate::DppoKl(gate) => policy_loss(backend, case, &policy, gate)?,
            AnyGate::MiniRl(gate) => policy_loss(backend, case, &policy, gate)?,
            AnyGate::Remix(gate) => policy_loss(backend, case, &policy, gate)?,
            AnyGate::TrustRegion(gate) => policy_loss(backend, case, &policy, gate)?,
        },
        Params::Kl { kl, outputs } => {
            let (mut value, mut gradient) = (f32s(n), f32s(n));
            let (mut sums, mut alarm) = (f64s(rows), u32s(rows));
            backend.run(&KlDivergence {
                cu_seqlens: offsets,
                loss_mask: mask,
                logp: input(slot::LOGP),
                logp_ref: input(slot::LOGP_OLD),
                kl,
                value: outputs.then(|| Out::new(&mut value)),
                gradient: outputs.then(|| Out::new(&mut gradient)),
                row_sum: Out::new(&mut sums),
                row_alarm: Out::new(&mut alarm),
            })?;
            let mut out = Vec::new();
            if outputs {
                out.extend([element("kl", value), element("gradient", gradient)]);
            }
            out.extend([row("row_sum", Values::F64(sums)), raised(alarm)]);
            out
        }
        Params::Aggregate { values } => {
            let (mut sums, mut tokens, mut alarm) = (f64s(rows), u32s(rows), u32s(rows));
            backend.run(&Aggregate {
                cu_seqlens: offsets,
                loss_mask: mask,
                values: values.then(|| input(slot::FIRST)),
                row_sum: Out::new(&mut sums),
                row_tokens: Out::new(&mut tokens),
                row_alarm: Out::new(&mut alarm),
            })?;
            vec![row("row_sum", Values::F64(sums)), row("row_tokens", Values::U32(tokens)), raised(alarm)]
        }
        Params::RowScan { direction } => {
            let mut scanned = f32s(n);
            backend.run(&RowScan {
                cu_seqlens: offsets,
                loss_mask: mask,
                values: input(slot::FIRST),
                direction,
                scanned: Out::new(&mut scanned),
            })?;
            vec![element("scanned", scanned)]
        }
        Params::FoldRows => {
            let mut totals = f64s(rows);
            let partials = In::new(&case.data.element64[..]);
            backend.run(&FoldRows { partials, rows: n / rows, totals: Out::new(&mut totals) })?;
            vec![row("totals", Values::F64(totals))]
        }
        Params::Op(any) => any.run(backend, &case.data)?,
    })
}

fn policy_loss<B: Backend, G: Gate>(
    backend: &B,
    case: &Case,
    policy: &Policy,
    gate: G,
) -> Result<Vec<Output>, String>
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    let (data, rows, n) = (&case.data, case.data.rows(), case.data.elements());
    let (mut coef, mut token_loss, mut row_loss) = (f32s(n), f32s(n), f64s(rows));
    let (mut tokens, mut alarm) = (u32s(rows), u32s(rows));
    let (mut sums, mut max) = (f64s(rows * sum::SUMS), f32s(rows * 2));
    let input = |k: usize| In::new(&data.element[k][..]);
    let partials = Partials::of(policy.weight, policy.counted);
    let kernel = PolicyLoss {
        cu_seqlens: offsets(case),
        loss_mask: Mask::new(data.mask.as_deref()),
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
        coef: Out::new(&mut coef),
        loss: policy.wants_loss().then(|| LossOut {
            token_loss: policy.token_loss.then(|| Out::new(&mut token_loss)),
            row_loss: Out::new(&mut row_loss),
        }),
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarm),
        metrics: policy.metrics.then(|| MetricsOut {
            row_sums: Out::new(&mut sums),
            row_maxima: Out::new(&mut max),
            band: BAND,
        }),
    };
    kernel.weight_from.check(&kernel.weight).map_err(|e| e.to_string())?;
    backend.run(&kernel)?;
    let mut out = vec![element("coef", coef)];
    if policy.token_loss {
        out.push(element("token_loss", token_loss));
    }
    if policy.wants_loss() {
        out.push(row("row_loss", Values::F64(row_loss)));
    }
    out.extend([row("row_tokens", Values::U32(tokens)), raised(alarm)]);
    if policy.metrics {
        out.extend(statistics(&POLICY_SUMS, &sums, rows));
        out.extend(maxima(&max, rows));
    }
    Ok(out)
}

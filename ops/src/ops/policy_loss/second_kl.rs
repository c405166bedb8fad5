//! An additional KL term of a policy loss: ReMix has two, and GMPO has none of its own.

use super::{Outputs, PolicyInput, PolicyOutput, PolicyParams, policy_loss};
use crate::ops::aggregate::{aggregate, fold_rows};
use crate::ops::kl::KlOutput;
use crate::ops::kl_importance::{ThreePolicies, kl_importance_into};
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::advantage::Combine;
use lockstep_core::aggregate::Weight;
use lockstep_core::gate::Reinforce;
use lockstep_core::kl::Kl;
use lockstep_core::ragged::{In, Out};
use lockstep_core::ratio::{Guard, RatioGranularity};

/// Adds W·coef·kl(logp, logp_ref) to a loss and its coefficients: to `coef`, and to `token_loss`, `row_loss`
/// and `loss` if `out` has them. `out` must be of the same batch and `logp`. The metrics stay those of the
/// first launch. Returns Σ W·coef·kl.
///
/// ReMix's KL-convex term consists of two such terms, with coefficients β·λ and β·(1 − λ), where λ is
/// [`kl_convex_lambda`](lockstep_core::gate::remix::kl_convex_lambda).
///
/// Errors: those of [`policy_loss`].
#[doc(alias = "KL penalty")]
pub fn add_kl(
    device: &Device,
    batch: &Batch<'_>,
    [logp, logp_ref]: [&[f32]; 2],
    (kl, coef): (Kl, f32),
    weight: Weight,
    out: &mut PolicyOutput,
) -> Result<f64, Error> {
    if kl.clamps_apart() {
        let values = crate::ops::kl(device, batch, logp, logp_ref, &kl)?;
        return add_kl_values(device, batch, (logp, &values), coef, weight, out);
    }
    // With advantages of 0, only the KL term remains.
    let none = vec![0.0; batch.sequences()];
    let params = PolicyParams {
        gate: Reinforce,
        level: RatioGranularity::Token,
        guard: Guard::NONE,
        kl: Some((kl, coef)),
        kl_weighted: false,
        weight,
        band: [0.0, 1.0],
    };
    let outputs = Outputs { loss: true, token_loss: !out.token_loss.is_empty(), metrics: false };
    let input = PolicyInput {
        logp_ref: Some(logp_ref),
        outputs,
        ..PolicyInput::new(logp, logp, Advantage::PerSequence(&none))
    };
    let mut term = out.spare().term();
    policy_loss(device, batch, &input, &params, &mut term)?;
    join(device, batch, out, (&term.coef, &term.token_loss, 1.0), &term.row_loss)?;
    let added = term.loss.unwrap_or(0.0);
    out.spare().keep_term(term);
    Ok(added)
}

/// Adds W·coef·r·kl(logp, logp_ref), where r = exp(guard(logp − logp_old)), to a loss and its coefficients,
/// like [`add_kl`]; formula: [`lockstep_core::kl_importance`]. Returns Σ W·coef·r·kl.
///
/// Errors: those of [`kl_importance`](crate::ops::kl_importance()) and [`policy_loss`].
#[doc(alias = "KL penalty")]
pub fn add_kl_importance(
    device: &Device,
    batch: &Batch<'_>,
    policies: &ThreePolicies<'_>,
    (kl, coef): (Kl, f32),
    (guard, through_ratio): (Guard, bool),
    weight: Weight,
    out: &mut PolicyOutput,
) -> Result<f64, Error> {
    let mut values = std::mem::take(&mut out.spare().kl);
    kl_importance_into(device, batch, policies, &kl, (guard, through_ratio), &mut values)?;
    let added = add_kl_values(device, batch, (policies.logp, &values), coef, weight, out);
    out.spare().kl = values;
    added
}

/// Adds W·coef·k, given values k and gradients dk/dlogp, like [`add_kl`]. Returns Σ W·coef·k.
#[doc(hidden)]
pub fn add_kl_values(
    device: &Device,
    batch: &Batch<'_>,
    (logp, values): (&[f32], &KlOutput),
    coef: f32,
    weight: Weight,
    out: &mut PolicyOutput,
) -> Result<f64, Error> {
    let weight = Weight { scale: weight.scale * f64::from(coef), ..weight };
    let sums = aggregate(device, batch, &values.kl, &weight)?;
    // W of a row multiplies −A, so the gradients are passed as advantages and the scale is negated.
    let params = PolicyParams {
        gate: Reinforce,
        level: RatioGranularity::Token,
        guard: Guard::NONE,
        kl: None,
        kl_weighted: false,
        weight: Weight { scale: -weight.scale, ..weight },
        band: [0.0, 1.0],
    };
    let input = PolicyInput {
        outputs: Outputs::COEF,
        ..PolicyInput::new(logp, logp, Advantage::PerToken(&values.gradient))
    };
    let mut term = out.spare().term();
    policy_loss(device, batch, &input, &params, &mut term)?;
    let rows: Vec<f64> =
        sums.row_sum.iter().zip(&sums.row_tokens).map(|(sum, n)| weight.of(u64::from(*n)) * sum).collect();
    join(device, batch, out, (&term.coef, &values.kl, coef), &rows)?;
    out.spare().keep_term(term);
    Ok(sums.value)
}

/// Adds `coef`, `scale` times `token_loss`, and `row_loss` to `out`.
fn join(
    device: &Device,
    batch: &Batch<'_>,
    out: &mut PolicyOutput,
    (coef, token_loss, scale): (&[f32], &[f32], f32),
    row_loss: &[f64],
) -> Result<(), Error> {
    let mut both = out.spare().take();
    let mut sum = |a: &mut Vec<f32>, b: &[f32], scale: f32| -> Result<(), Error> {
        both.clear();
        both.extend_from_slice(a);
        both.extend_from_slice(b);
        let weights = [1.0, scale];
        device.run(&Combine {
            cu_groups: batch.cu_seqlens(),
            components: In::new(&both),
            weights: In::new(&weights),
            combined: Out::new(a),
        })
    };
    batch.check_tokens("out.coef", out.coef.len())?;
    sum(&mut out.coef, coef, 1.0)?;
    if !out.token_loss.is_empty() {
        sum(&mut out.token_loss, token_loss, scale)?;
    }
    out.spare().give(Some(both));
    if out.loss.is_some() {
        out.row_loss.iter_mut().zip(row_loss).for_each(|(a, b)| *a += b);
        out.loss = Some(fold_rows(device, &out.row_loss, batch.sequences())?[0]);
    }
    Ok(())
}

//! A further KL term of a policy loss: ReMix has two, GMPO brings none.

use super::{Outputs, PolicyInput, PolicyOutput, PolicyParams, policy_loss};
use crate::ops::aggregate::fold_rows;
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::advantage::Combine;
use lockstep_core::aggregate::Weight;
use lockstep_core::gate::Reinforce;
use lockstep_core::kl::Kl;
use lockstep_core::ragged::{In, Out};
use lockstep_core::ratio::{Guard, Level};

/// Adds W·coef·kl(logp, logp_ref) to a loss and its coefficients: to `coef`, and to `token_loss`, `row_loss` and `loss` where `out` has
/// them. `out` is of the same batch and `logp`. The metrics stay those of the first launch. Returns Σ W·coef·kl.
///
/// ReMix's KL-convex term is two of them, with coefficients β·λ and β·(1 − λ) and
/// [`kl_convex_lambda`](lockstep_core::gate::remix::kl_convex_lambda). Errors: those of [`policy_loss`].
pub fn add_kl(
    device: &Device,
    batch: &Batch<'_>,
    [logp, logp_ref]: [&[f32]; 2],
    (kl, coef): (Kl, f32),
    weight: Weight,
    out: &mut PolicyOutput,
) -> Result<f64, Error> {
    // Advantages of 0 leave the KL term alone.
    let none = vec![0.0; batch.sequences()];
    let params = PolicyParams {
        gate: Reinforce,
        level: Level::Token,
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
    let mut term = PolicyOutput::default();
    policy_loss(device, batch, &input, &params, &mut term)?;
    let sum = |a: &mut Vec<f32>, b: &[f32]| -> Result<(), Error> {
        let (both, weights) = ([&a[..], b].concat(), [1.0, 1.0]);
        device.run(&Combine {
            cu_groups: batch.cu_seqlens(),
            components: In::new(&both),
            weights: In::new(&weights),
            combined: Out::new(a),
        })
    };
    batch.check_tokens("out.coef", out.coef.len())?;
    sum(&mut out.coef, &term.coef)?;
    if outputs.token_loss {
        sum(&mut out.token_loss, &term.token_loss)?;
    }
    if out.loss.is_some() {
        out.row_loss.iter_mut().zip(&term.row_loss).for_each(|(a, b)| *a += b);
        out.loss = Some(fold_rows(device, &out.row_loss, batch.sequences())?[0]);
    }
    Ok(term.loss.unwrap_or(0.0))
}

//! Gates of mixture-of-experts routers, natural or replayed, and their gradients.

use super::locate::each_finite;
use crate::routing::Ids;
use crate::{Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::ragged::{In, Out, flag};
use lockstep_core::require;
use lockstep_core::routing::{BalanceLoss, ChosenOut, GatingBackward, GatingForward, Replay, Router};

/// The experts and gates that a router chose for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Gating {
    /// Experts, `[rows, K]`, in order of selection, or as recorded.
    pub chosen: Ids,
    /// Gates of these experts, `[rows, K]`.
    pub gates: Vec<f32>,
    /// Number of rows that were replayed.
    pub replayed: usize,
    /// 1 where the row was replayed, `[rows]`.
    pub row_replayed: Vec<u32>,
}

/// Computes the experts and gates of `scores` `[rows, E]`; formula: [`lockstep_core::routing`].
///
/// Without `replay`, every row selects its own experts. With it (R2: the old policy's trace; R3: the
/// rollout's), rows that have a record and whose token is in the mask take their experts from the record.
/// `bias` `[E]` affects only the selection. No state is kept between calls.
///
/// Errors: sizes that disagree; a score or bias that is not finite (index); a record with an expert that is
/// out of range, repeated, or missing next to others (token, layer and entry).
///
/// ```
/// use lockstep_ops::{Device, ops::gating_forward, routing::{Ids, RoutingTrace}};
/// use lockstep_ops::core::{ragged::Mask, routing::{Replay, Router, RouterKind}};
/// let router = Router::new(RouterKind::SoftmaxChosen, 4, 2);
/// let scores = [1.0, 2.0, 0.5, -1.0];
/// let natural = gating_forward(&Device::cpu(), &router, &scores, None, None)?;
/// assert_eq!(natural.chosen, Ids::U8(vec![1, 0]));
/// let record = RoutingTrace::from_ids(&[0, 2], 1, 4, 1, 2)?;
/// let replay = Replay { trace: record.view(), mask: Mask::all() };
/// let replayed = gating_forward(&Device::cpu(), &router, &scores, None, Some(replay))?;
/// assert!((replayed.gates[0] - 0.622459).abs() < 1e-6 && replayed.replayed == 1);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("mixture of experts", "MoE", "router"))]
pub fn gating_forward(
    device: &Device,
    router: &Router,
    scores: &[f32],
    bias: Option<&[f32]>,
    replay: Option<Replay<'_>>,
) -> Result<Gating, Error> {
    router.check()?;
    let rows = scores.len() / router.experts;
    require::length("scores", rows * router.experts, "a multiple of the number of experts", scores.len())?;
    if let Some(Replay { trace, mask }) = replay {
        if trace.layers() == 0 || !rows.is_multiple_of(trace.layers()) {
            let expected = "as many layers as `scores` has rows per token";
            return Err(Argument::Combination { argument: "trace", expected }.into());
        }
        let tokens = rows / trace.layers();
        trace.validate(tokens, router.experts)?;
        if let Some(bytes) = mask.bytes() {
            require::length("replay mask", tokens, "one per token of the trace", bytes.len())?;
        }
    }
    let entries = rows * router.top_k;
    // The type that a trace with this number of experts has, so that the choice can be recorded.
    let narrow = router.experts <= 256 - usize::from(router.top_k == 1);
    let mut chosen = if narrow { Ids::U8(vec![0; entries]) } else { Ids::U16(vec![0; entries]) };
    let (mut gates, mut row_replayed, mut alarms) = (vec![0.0; entries], vec![0; rows], vec![0; rows]);
    let mut group_scores = vec![0.0; if router.groups > 1 { rows * router.groups } else { 0 }];
    device.run(&GatingForward {
        router: *router,
        rows,
        scores: In::new(scores),
        bias: bias.map(In::new),
        replay,
        chosen: match &mut chosen {
            Ids::U8(ids) => ChosenOut::narrow(Out::new(ids)),
            Ids::U16(ids) => ChosenOut::wide(Out::new(ids)),
        },
        gates: Out::new(&mut gates),
        group_scores: (router.groups > 1).then(|| Out::new(&mut group_scores)),
        row_replayed: Out::new(&mut row_replayed),
        row_alarm: Out::new(&mut alarms),
    })?;
    if alarms.iter().any(|alarm| *alarm > flag::LIMIT) {
        each_finite("bias", bias.unwrap_or_default())?;
        each_finite("scores", scores)?;
        return Err(Argument::NotFinite { result: "gates", index: 0, hint: "scale the scores" }.into());
    }
    let replayed = row_replayed.iter().filter(|replayed| **replayed != 0).count();
    Ok(Gating { chosen, gates, replayed, row_replayed })
}

/// Computes dL/dscores `[rows, E]` from dL/dgates `[rows, K]`; formula:
/// [`lockstep_core::routing::gating_backward`].
///
/// `gating` is the result of [`gating_forward`] for the same scores, natural or replayed; the gradient is
/// that of the gates that ran.
///
/// Errors: sizes that disagree; scores or gate gradients that are not finite (index).
#[doc(alias = "MoE")]
pub fn gating_backward(
    device: &Device,
    router: &Router,
    scores: &[f32],
    gating: &Gating,
    gate_gradients: &[f32],
) -> Result<Vec<f32>, Error> {
    router.check()?;
    let rows = scores.len() / router.experts;
    let mut gradient = vec![0.0; scores.len()];
    let mut alarms = vec![0; rows];
    let chosen = gating.chosen.view(1, router.top_k);
    device.run(&GatingBackward {
        router: *router,
        rows,
        scores: In::new(scores),
        chosen,
        gates: In::new(&gating.gates),
        coef: In::new(gate_gradients),
        gradient: Out::new(&mut gradient),
        row_alarm: Out::new(&mut alarms),
    })?;
    each_finite("gate gradients", gate_gradients)?;
    match alarms.iter().position(|alarm| *alarm > flag::LIMIT) {
        None => Ok(gradient),
        Some(row) => {
            each_finite("scores", scores)?;
            chosen.validate(rows, router.experts)?;
            let (index, hint) = (row * router.experts, "scale the scores or the gate gradients");
            Err(Argument::NotFinite { result: "gradient", index, hint }.into())
        }
    }
}

/// The result of [`balance_loss`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Balance {
    /// The loss coef · E Σ f P.
    pub loss: f64,
    /// dL/dscores, `[rows, E]`.
    pub gradient: Vec<f32>,
}

/// Computes the load-balance loss coef · E Σ f_e P_e of `scores` `[rows, E]`, and its gradient. The load f
/// `[E]` is counted from the natural or the replayed routing by [`crate::routing::load`] (verl: natural even
/// under replay); formula: [`lockstep_core::routing::balance`].
///
/// Errors: sizes that disagree; scores or loads that are not finite (index).
#[doc(alias("auxiliary loss", "load balancing", "MoE"))]
pub fn balance_loss(device: &Device, scores: &[f32], load: &[f32], coef: f64) -> Result<Balance, Error> {
    let experts = load.len();
    if experts == 0 || scores.is_empty() {
        let argument = if experts == 0 { "load" } else { "scores" };
        return Err(Argument::Empty { argument, expected: "one entry per expert" }.into());
    }
    let rows = scores.len() / experts;
    let (mut gradient, mut row_loss, mut alarms) = (vec![0.0; scores.len()], vec![0.0; rows], vec![0; rows]);
    device.run(&BalanceLoss {
        experts,
        rows,
        scores: In::new(scores),
        load: In::new(load),
        weight: coef * experts as f64 / rows as f64,
        gradient: Out::new(&mut gradient),
        row_loss: Out::new(&mut row_loss),
        row_alarm: Out::new(&mut alarms),
    })?;
    if let Some(row) = alarms.iter().position(|alarm| *alarm > flag::LIMIT) {
        each_finite("load", load)?;
        each_finite("scores", scores)?;
        let (index, hint) = (row * experts, "scale the coefficient");
        return Err(Argument::NotFinite { result: "gradient", index, hint }.into());
    }
    Ok(Balance { loss: super::fold_rows(device, &row_loss, rows)?[0], gradient })
}

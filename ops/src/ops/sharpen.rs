//! Adjustments of advantages: sharpening by likelihood, subtraction of a role's moving average, and an
//! entropy bonus.

use super::locate::{self, Domain};
use super::reward::{check_scores, not_infinite};
use super::roles::Roles;
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{EntropyBonus, Order, RoleBaseline, Sharpen, Sharpening};
use lockstep_core::aggregate::Aggregate;
use lockstep_core::ragged::{In, Mask, Out, flag};
use lockstep_core::require;

/// Parameters of [`sharpen`]; formula: [`lockstep_core::advantage::sharpen`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharpenParams<'a> {
    /// The formula.
    pub sharpening: Sharpening,
    /// A reward above this is correct.
    pub threshold: f32,
    /// Log-probabilities per token, `[N]`: of the sampling policy for XRPO, of the current one for ACE.
    pub logp: &'a [f32],
    /// Log-probabilities of the reference, `[N]`.
    pub logp_ref: Option<&'a [f32]>,
    /// Whether to use the mean over tokens instead of the sum.
    pub per_token: bool,
}

/// Σ of `logp` over each sequence's live tokens, `[S]`.
#[doc(hidden)]
pub fn sequence_logp(
    device: &Device,
    batch: &Batch<'_>,
    argument: &'static str,
    logp: &[f32],
) -> Result<Vec<f64>, Error> {
    locate::live(batch, argument, logp, Domain::LogProbability)?;
    let sequences = batch.sequences();
    let (mut sums, mut tokens, mut alarm) = (vec![0.0; sequences], vec![0; sequences], vec![0; sequences]);
    device.run(&Aggregate {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        values: Some(In::new(logp)),
        row_sum: Out::new(&mut sums),
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarm),
    })?;
    Ok(sums)
}

/// Sharpens `advantage` `[S]` by how likely the policy finds its own answers. Sequences with a NaN reward or
/// a 0 in `valid` `[S]` have advantage 0.
///
/// Errors: lengths that disagree; an infinite reward, an advantage that is not finite, or a live
/// log-probability out of its domain (index); parameters out of their domain; a result that is not finite
/// (index).
///
/// ```
/// use lockstep_ops::core::advantage::Sharpening;
/// use lockstep_ops::{Batch, Device, ops::{sharpen, sharpen::SharpenParams}};
/// let batch = Batch::new(&[0, 1, 2], &[0, 2], None)?;
/// let ace = SharpenParams {
///     sharpening: Sharpening::Overconfidence { alpha: 1.0, cap: 5.0, relu: true },
///     threshold: 0.5,
///     logp: &[-1.0, -1.0],
///     logp_ref: Some(&[-2.0, -2.0]),
///     per_token: false,
/// };
/// assert_eq!(sharpen(&Device::cpu(), &batch, &[1.0, -1.0], &[1.0, 0.0], None, &ace)?, [1.0, -2.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("XRPO", "ACE"))]
pub fn sharpen(
    device: &Device,
    batch: &Batch<'_>,
    advantage: &[f32],
    rewards: &[f32],
    valid: Option<&[u8]>,
    params: &SharpenParams<'_>,
) -> Result<Vec<f32>, Error> {
    check_scores(batch, "rewards", rewards, valid)?;
    require::length("advantage", batch.sequences(), "one per sequence", advantage.len())?;
    locate::each_finite("advantage", advantage)?;
    let logp = sequence_logp(device, batch, "logp", params.logp)?;
    let logp_ref = match params.logp_ref {
        Some(logp_ref) => Some(sequence_logp(device, batch, "logp_ref", logp_ref)?),
        None => None,
    };
    let tokens = if params.per_token { Some(batch.lengths(device)?) } else { None };
    let mut sharpened = vec![0.0; batch.sequences()];
    device.run(&Sharpen {
        cu_groups: batch.cu_groups(),
        advantage: In::new(advantage),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        threshold: params.threshold,
        logp: In::new(&logp),
        logp_ref: logp_ref.as_deref().map(In::new),
        tokens: tokens.as_deref().map(In::new),
        sharpening: params.sharpening,
        sharpened: Out::new(&mut sharpened),
    })?;
    not_infinite("sharpened", sharpened, "the factor is too large: set a cap")
}

/// Computes SPIRAL's RAE advantages: `rewards` `[S]` minus the moving average of their role's reward, where
/// the games of a batch are processed in order. `roles` `[S]` gives the role of each sequence. `state` `[P]`
/// has one number per role: the result of the last call, or 0 at the start. A NaN reward leaves the state
/// unchanged and has advantage 0.
///
/// Returns the advantages `[S]` and the new state `[P]`.
///
/// Errors: lengths that disagree; a role without a state or of 2¹⁶ or more, an infinite reward, or a state
/// that is not finite (index); a decay outside 0..=1.
///
/// ```
/// use lockstep_ops::core::advantage::Order;
/// use lockstep_ops::{Device, ops::role_baseline};
/// let (roles, rewards) = ([0, 1, 0, 1], [1.0, -1.0, 1.0, -1.0]);
/// let (a, state) =
///     role_baseline(&Device::cpu(), &rewards, &roles, &[0.0, 0.0], 0.5, Order::SubtractThenUpdate)?;
/// assert_eq!((&a[..], &state[..]), (&[1.0, -1.0, 0.5, -0.5][..], &[0.75, -0.75][..]));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "SPIRAL")]
pub fn role_baseline(
    device: &Device,
    rewards: &[f32],
    roles: &[u32],
    state: &[f64],
    decay: f64,
    order: Order,
) -> Result<(Vec<f32>, Vec<f64>), Error> {
    require::length("roles", rewards.len(), "one per reward", roles.len())?;
    locate::each("state", state, "a finite number", |_, x| x.is_finite())?;
    locate::each("rewards", rewards, Domain::Reward.expected(), |_, r| !r.is_infinite())?;
    let by_role = Roles::new(roles, state.len())?;
    let sorted: Vec<f32> = by_role.order.iter().map(|i| rewards[*i as usize]).collect();
    let (mut advantage, mut after) = (vec![0.0; rewards.len()], vec![0.0; state.len()]);
    device.run(&RoleBaseline {
        cu_roles: by_role.offsets()?,
        rewards: In::new(&sorted),
        valid: Mask::all(),
        decay,
        order,
        state: In::new(state),
        advantage: Out::new(&mut advantage),
        state_out: Out::new(&mut after),
    })?;
    let mut out = vec![0.0; rewards.len()];
    by_role.order.iter().zip(&advantage).for_each(|(i, a)| out[*i as usize] = *a);
    Ok((not_infinite("advantage", out, "the reward is too large for f32")?, after))
}

/// The entropy that [`entropy_bonus`] uses (docs/maths/disagreements.md row 18).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EntropyOf<'a> {
    /// −p log p of the sampled token, from log-probabilities `[N]` (the released code).
    Sampled(&'a [f32]),
    /// Entropies of the full distributions in nats, `[N]`.
    Distribution(&'a [f32]),
}

/// Computes MSSR's entropy-shaped advantages A + min(α H, |A|/κ) per token, `[N]`; 0 where masked. Formula:
/// [`lockstep_core::advantage::entropy_bonus`].
///
/// Errors: lengths that disagree; a live advantage, log-probability or entropy out of its domain (index);
/// parameters out of their domain.
#[doc(alias = "MSSR")]
pub fn entropy_bonus(
    device: &Device,
    batch: &Batch<'_>,
    advantage: Advantage<'_>,
    entropy: EntropyOf<'_>,
    alpha: f32,
    kappa: f32,
) -> Result<Vec<f32>, Error> {
    let (values, per_token) = advantage.values();
    let (expected, because) =
        if per_token { (batch.tokens(), "one per token") } else { (batch.sequences(), "one per sequence") };
    require::length("advantage", expected, because, values.len())?;
    let (argument, source, domain) = match entropy {
        EntropyOf::Sampled(logp) => ("logp", logp, Domain::LogProbability),
        EntropyOf::Distribution(entropy) => ("entropy", entropy, Domain::Weight),
    };
    batch.check_tokens(argument, source.len())?;
    let (mut shaped, mut alarm) = (vec![0.0; batch.tokens()], vec![0; batch.sequences()]);
    device.run(&EntropyBonus {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        advantage: In::new(values),
        per_token,
        source: In::new(source),
        full: matches!(entropy, EntropyOf::Distribution(_)),
        alpha,
        kappa,
        shaped: Out::new(&mut shaped),
        row_alarm: Out::new(&mut alarm),
    })?;
    let Some(row) = alarm.iter().position(|alarm| *alarm > flag::LIMIT) else { return Ok(shaped) };
    let span = batch.cu_seqlens().span(row);
    for t in (span.start..span.end).filter(|t| batch.loss_mask().at(*t)) {
        let own = if per_token { t } else { row };
        let checks = [(argument, source[t], domain, t), ("advantage", values[own], Domain::Finite, own)];
        for (argument, value, domain, index) in checks {
            if !domain.holds(value) {
                return Err(require::value(argument, Some(index), domain.expected(), value).into());
            }
        }
    }
    let hint = "advantage and bonus are too large for f32";
    Err(Argument::NotFinite { result: "shaped", index: span.start, hint }.into())
}

//! KL with importance weights, and KL in the reward.

use super::aggregate::fold_rows;
use super::kl::{KlOutput, kl};
use super::locate::{self, Checked, Domain};
use crate::{Batch, Device, Error};
use lockstep_core::advantage::Combine;
use lockstep_core::kl::Kl;
use lockstep_core::kl_importance::KlImportance;
use lockstep_core::ragged::{In, Out};
use lockstep_core::ratio::Guard;
use lockstep_core::require;

/// Log-probabilities of one batch under three policies.
#[derive(Clone, Copy, Debug)]
pub struct ThreePolicies<'a> {
    /// Of the current policy, `[N]`; the only differentiable input.
    pub logp: &'a [f32],
    /// Of the policy that sampled, `[N]`.
    pub logp_old: &'a [f32],
    /// Of the reference policy, `[N]`.
    pub logp_ref: &'a [f32],
}

/// Computes r·k of every token, `[N]`, the KL estimate k weighted by the importance ratio r, and its
/// gradient, which flows through r if `through_ratio`; formula: [`lockstep_core::kl_importance`].
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0; a result that
/// overflows (choose guards).
///
/// ```
/// use lockstep_ops::core::{kl::{KlFormula, Kl}, ratio::Guard};
/// use lockstep_ops::ops::kl_importance::{ThreePolicies, kl_importance};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 1], &[0, 1], None)?;
/// // u = 0.5, r = e⁰·⁵ = 1.648721: through r, the gradient of r·k3 is r·(logp − logp_ref).
/// let policies = ThreePolicies { logp: &[-1.5], logp_old: &[-2.0], logp_ref: &[-1.0] };
/// let (k3, none) = (Kl::new(KlFormula::K3), Guard::NONE);
/// let out = kl_importance(&Device::cpu(), &batch, &policies, &k3, none, true)?;
/// assert!((out.kl[0] - 1.648721 * 0.148721).abs() < 1e-6);
/// assert!((out.gradient[0] + 1.648721 * 0.5).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "KL penalty")]
pub fn kl_importance(
    device: &Device,
    batch: &Batch<'_>,
    policies: &ThreePolicies<'_>,
    estimator: &Kl,
    guard: Guard,
    through_ratio: bool,
) -> Result<KlOutput, Error> {
    let mut out = KlOutput::default();
    kl_importance_into(device, batch, policies, estimator, (guard, through_ratio), &mut out)?;
    Ok(out)
}

/// Like [`kl_importance`], but into `out`, whose memory is reused. `out` is unspecified after an error.
pub fn kl_importance_into(
    device: &Device,
    batch: &Batch<'_>,
    policies: &ThreePolicies<'_>,
    estimator: &Kl,
    (guard, through_ratio): (Guard, bool),
    out: &mut KlOutput,
) -> Result<(), Error> {
    let ThreePolicies { logp, logp_old, logp_ref } = *policies;
    let arguments = [
        Checked::logp("logp", logp),
        Checked::logp("logp_old", logp_old),
        Checked::logp("logp_ref", logp_ref),
    ];
    locate::lengths(batch, &arguments)?;
    let (tokens, rows) = (batch.tokens(), batch.sequences());
    out.kl.resize(tokens, 0.0);
    out.gradient.resize(tokens, 0.0);
    out.row_sum.resize(rows, 0.0);
    let mut alarm = vec![0; rows];
    device.run(&KlImportance {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(logp),
        logp_old: In::new(logp_old),
        logp_ref: In::new(logp_ref),
        kl: *estimator,
        guard,
        through_ratio,
        value: Some(Out::new(&mut out.kl)),
        gradient: Some(Out::new(&mut out.gradient)),
        row_sum: Out::new(&mut out.row_sum),
        row_alarm: Out::new(&mut alarm),
    })?;
    let results = [Checked::finite("kl", &out.kl[..]), Checked::finite("kl gradient", &out.gradient[..])];
    let hint = "set clamp_in or clamp_out, or a guard of the ratio";
    locate::check(batch, &alarm, &arguments, &results, hint)?;
    out.sum = fold_rows(device, &out.row_sum, rows)?[0];
    Ok(())
}

/// Computes rewards with a KL penalty, r_t − β·k per token, `[N]` (PPO, REINFORCE++; docs/maths/kl.md). k
/// estimates KL(old ‖ reference), where old is the policy that sampled: k1 in most recipes, any estimator in
/// verl. No gradient flows. Masked tokens get 0.
///
/// Errors: lengths that disagree; a live reward (index) or β that is not finite; those of [`kl`].
///
/// ```
/// use lockstep_ops::{Batch, Device, core::kl::{KlFormula, Kl}, ops::kl_importance::kl_in_reward};
/// let batch = Batch::new(&[0, 3], &[0, 1], Some(&[1, 0, 1]))?;
/// let (rewards, k1) = ([0.0, f32::NAN, 1.0], Kl::new(KlFormula::K1));
/// let out = kl_in_reward(&Device::cpu(), &batch, &rewards, &[-1.0; 3], &[-1.5, -9.0, -0.5], &k1, 0.5)?;
/// assert_eq!(out, [-0.25, 0.0, 1.25]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "KL penalty")]
pub fn kl_in_reward(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    logp_old: &[f32],
    logp_ref: &[f32],
    estimator: &Kl,
    beta: f32,
) -> Result<Vec<f32>, Error> {
    require::finite("kl beta", beta)?;
    locate::live(batch, "token rewards", rewards, Domain::Finite)?;
    let live = |i: usize| batch.loss_mask().at(i);
    let penalty = kl(device, batch, logp_old, logp_ref, estimator)?.kl;
    let mut components: Vec<f32> =
        rewards.iter().enumerate().map(|(i, r)| if live(i) { *r } else { 0.0 }).collect();
    components.extend(penalty);
    let mut penalised = vec![0.0; rewards.len()];
    // The op adds arrays whatever their offsets are, so sequences of tokens stand in for groups of sequences.
    device.run(&Combine {
        cu_groups: batch.cu_seqlens(),
        components: In::new(&components),
        weights: In::new(&[1.0, -beta]),
        combined: Out::new(&mut penalised),
    })?;
    let hint = "the penalty is too large for f32: set clamps or a smaller beta";
    locate::finite("penalised reward", &penalised, hint)?;
    Ok(penalised)
}

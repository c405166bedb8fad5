//! V-trace value targets and advantages.

use super::gae::Ends;
use super::locate::{self, Checked};
use crate::{Batch, Device, Error};
use lockstep_core::advantage::VTrace;
use lockstep_core::ragged::{In, Mask, Out};

/// The inputs of [`vtrace`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VTraceInput<'a> {
    /// Log-probabilities under the policy being trained, `[N]`.
    pub logp: &'a [f32],
    /// Log-probabilities under the policy that sampled, `[N]`.
    pub logp_rollout: &'a [f32],
    /// Rewards per token, `[N]`.
    pub rewards: &'a [f32],
    /// The critic's values, `[N]`.
    pub values: &'a [f32],
    /// How the sequences end.
    pub ends: Ends<'a>,
}

/// The discount, λ and bounds of [`vtrace`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VTraceParams {
    /// Discount per live token.
    pub gamma: f64,
    /// λ.
    pub lambda: f64,
    /// ρ̄, the largest weight of a TD error.
    pub rho_bar: f64,
    /// ρ̄_pg, the largest weight of an advantage.
    pub rho_pg: f64,
    /// c̄, the largest weight that propagates an error to earlier tokens.
    pub c_bar: f64,
}

impl Default for VTraceParams {
    /// rlax's: no discount, all bounds 1.
    fn default() -> Self {
        VTraceParams { gamma: 1.0, lambda: 1.0, rho_bar: 1.0, rho_pg: 1.0, c_bar: 1.0 }
    }
}

/// Value targets and advantages.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct VTraceOutput {
    /// The critic's regression targets, `[N]`; a masked token has that of the next live token.
    pub vs: Vec<f32>,
    /// Advantages, `[N]`; 0 where masked.
    pub advantage: Vec<f32>,
}

/// Computes V-trace value targets and advantages under the policy of `logp`; formula:
/// [`lockstep_core::advantage::vtrace`].
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0 (index); a live
/// reward or value, or a bootstrap value of a truncated sequence, that is not finite (index); a sequence that
/// is both terminated and truncated, or neither (index); a gamma or λ outside 0..=1, or a bound that is not
/// positive; a result that overflows (index).
///
/// ```
/// use lockstep_ops::ops::gae::Ends;
/// use lockstep_ops::ops::vtrace::{VTraceInput, VTraceParams, vtrace};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 2], &[0, 1], None)?;
/// let logp = [-0.5, -0.25];
/// let (rewards, values) = ([0.0, 1.0], [0.5, 0.75]);
/// let (rewards, values, ends) = (&rewards, &values, Ends::Terminated);
/// let input = VTraceInput { logp: &logp, logp_rollout: &logp, rewards, values, ends };
/// let out = vtrace(&Device::cpu(), &batch, &input, &VTraceParams::default())?;
/// assert_eq!((out.vs, out.advantage), (vec![1.0, 1.0], vec![0.5, 0.25]));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("V-trace", "IMPALA"))]
pub fn vtrace(
    device: &Device,
    batch: &Batch<'_>,
    input: &VTraceInput<'_>,
    params: &VTraceParams,
) -> Result<VTraceOutput, Error> {
    let VTraceInput { logp, logp_rollout, rewards, values, ends } = *input;
    let arguments = [
        Checked::logp("logp", logp),
        Checked::logp("logp_rollout", logp_rollout),
        Checked::finite("token rewards", rewards),
        Checked::finite("values", values),
    ];
    locate::lengths(batch, &arguments)?;
    let (truncated, bootstrap) = ends.check(batch)?;
    let tokens = batch.tokens();
    let (mut vs, mut advantage, mut alarm) =
        (vec![0.0; tokens], vec![0.0; tokens], vec![0; batch.sequences()]);
    device.run(&VTrace {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(logp),
        logp_rollout: In::new(logp_rollout),
        rewards: In::new(rewards),
        values: In::new(values),
        bootstrap: bootstrap.map(In::new),
        truncated: Mask::new(truncated),
        gamma: params.gamma,
        lambda: params.lambda,
        rho_bar: params.rho_bar,
        rho_pg: params.rho_pg,
        c_bar: params.c_bar,
        vs: Out::new(&mut vs),
        advantage: Out::new(&mut advantage),
        row_alarm: Out::new(&mut alarm),
    })?;
    let results = [Checked::finite("vs", &vs[..]), Checked::finite("advantage", &advantage[..])];
    let hint = "weights, rewards or values are too large for f32: choose smaller bounds";
    locate::check(batch, &alarm, &arguments, &results, hint)?;
    Ok(VTraceOutput { vs, advantage })
}

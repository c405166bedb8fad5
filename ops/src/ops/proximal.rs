//! The interpolated proximal policy of decoupled PPO.

use super::locate::{self, Checked};
use crate::{Batch, Device, Error};
use lockstep_core::ragged::{In, Out};
use lockstep_core::ratio::{Interpolation, ProximalLogp};

/// Computes log-probabilities of the proximal policy, `[N]`, interpolated between `logp_behave` and `logp`
/// `[N]`; 0 where masked. `versions` `[N]` is the policy version that sampled each token (−1: none) and
/// `current` the version being trained. Formula: [`lockstep_core::ratio::proximal`].
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0 (argument, index).
///
/// ```
/// use lockstep_ops::core::ratio::Interpolation::Loglinear;
/// use lockstep_ops::{Batch, Device, ops::proximal_logp};
/// let batch = Batch::new(&[0, 2], &[0, 1], None)?;
/// let prox = proximal_logp(&Device::cpu(), &batch, &[3, 2], 4, &[-1.0, -1.0], &[-2.0, -2.0], Loglinear)?;
/// assert_eq!(prox, [-1.0, -1.5]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("decoupled PPO", "AReaL"))]
pub fn proximal_logp(
    device: &Device,
    batch: &Batch<'_>,
    versions: &[i32],
    current: i32,
    logp_behave: &[f32],
    logp: &[f32],
    interpolation: Interpolation,
) -> Result<Vec<f32>, Error> {
    batch.check_tokens("versions", versions.len())?;
    let arguments = [Checked::logp("logp_behave", logp_behave), Checked::logp("logp", logp)];
    locate::lengths(batch, &arguments)?;
    let (mut logp_prox, mut alarm) = (vec![0.0; batch.tokens()], vec![0; batch.sequences()]);
    device.run(&ProximalLogp {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        versions: In::new(versions),
        current,
        logp_behave: In::new(logp_behave),
        logp: In::new(logp),
        interpolation,
        logp_prox: Out::new(&mut logp_prox),
        row_alarm: Out::new(&mut alarm),
    })?;
    locate::check(batch, &alarm, &arguments, &[], "")?;
    Ok(logp_prox)
}

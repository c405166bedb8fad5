//! Discounted returns.

use super::locate::{self, Domain};
use crate::{Batch, Device, Error};
use lockstep_core::advantage::DiscountedReturn;
use lockstep_core::ragged::{In, Out};

/// Computes the return of each token `[N]`: the sum of `rewards` `[N]` from that token on, discounted by
/// `gamma` per live token; formula: [`lockstep_core::advantage::discounted_return`].
///
/// Errors: lengths that disagree; a live reward that is not finite (index); a gamma outside 0..=1; a return
/// that overflows (index).
///
/// ```
/// use lockstep_ops::{Batch, Device, ops::discounted_return};
/// let batch = Batch::new(&[0, 4], &[0, 1], Some(&[1, 0, 1, 1]))?;
/// let returns = discounted_return(&Device::cpu(), &batch, &[0.0, f32::NAN, 0.0, 1.0], 0.5)?;
/// assert_eq!(returns, [0.25, 0.5, 0.5, 1.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("REINFORCE", "reward-to-go"))]
pub fn discounted_return(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    gamma: f64,
) -> Result<Vec<f32>, Error> {
    locate::live(batch, "token rewards", rewards, Domain::Finite)?;
    let mut returns = vec![0.0; batch.tokens()];
    device.run(&DiscountedReturn {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        rewards: In::new(rewards),
        gamma,
        returns: Out::new(&mut returns),
    })?;
    locate::finite("returns", &returns, "the discounted sum is too large for f32")?;
    Ok(returns)
}

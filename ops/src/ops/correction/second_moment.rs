//! M2PO: a trust region on the second moment of the log-ratios over the batch.

use super::Correction;
use crate::{Batch, Error};
use lockstep_core::require;

/// Computes the mask of the tokens that M2PO keeps, `[N]` (2510.01161; AReaL). It drops the live tokens with
/// the largest squared log-ratios d² = (logp_old − logp_rollout)², as few as bring the mean of d² over the
/// remaining ones below `threshold`. Of equal d², the token with the higher index is kept (a stable
/// descending sort drops from the front); at least one token is always kept.
///
/// Errors: lengths that disagree; a threshold that is not above 0; a log-ratio of a live token that is not
/// finite (index).
///
/// ```
/// use lockstep_ops::{Batch, ops::correction::second_moment_mask};
/// let batch = Batch::new(&[0, 3], &[0, 1], None)?;
/// let kept = second_moment_mask(&batch, &[-1.0, -1.0, -1.0], &[-1.1, -2.0, -1.2], 0.04)?;
/// assert_eq!(kept, [1, 0, 1]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "M2PO")]
pub fn second_moment_mask(
    batch: &Batch<'_>,
    logp_old: &[f32],
    logp_rollout: &[f32],
    threshold: f64,
) -> Result<Vec<u8>, Error> {
    batch.check_tokens("logp_old", logp_old.len())?;
    batch.check_tokens("logp_rollout", logp_rollout.len())?;
    require::scalar("m2_threshold", threshold > 0.0, "a positive number", threshold)?;
    let mut moments = Vec::new();
    for i in (0..batch.tokens()).filter(|i| batch.loss_mask().at(*i)) {
        let d = f64::from(logp_old[i]) - f64::from(logp_rollout[i]);
        if !d.is_finite() {
            return Err(require::value("logp_old - logp_rollout", Some(i), "a finite number", d).into());
        }
        moments.push((d * d, i));
    }
    moments.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    // The mean of the n smallest values does not fall as n grows.
    let (mut sum, mut left) = (0.0, 0);
    for (n, (moment, _)) in moments.iter().enumerate() {
        sum += moment;
        if sum / (n + 1) as f64 >= threshold {
            break;
        }
        left = n + 1;
    }
    let mut kept = vec![0; batch.tokens()];
    moments.iter().take(left.max(1)).for_each(|(_, i)| kept[*i] = 1);
    Ok(kept)
}

impl Correction {
    /// Restricts the kept tokens to those of `mask`, `[N]`.
    #[doc(hidden)]
    pub fn keep_only(&mut self, batch: &Batch<'_>, mask: &[u8]) {
        for (i, mask) in mask.iter().enumerate().filter(|(_, mask)| **mask == 0) {
            (self.kept_mask[i], self.weights[i]) = (*mask, 0.0);
        }
        self.counts_after.tokens = self.kept_mask.iter().map(|kept| u64::from(*kept)).sum();
        for (row, kept) in self.kept.iter_mut().enumerate() {
            let span = batch.cu_seqlens().span(row);
            *kept = u8::from(self.kept_mask[span.start..span.end].iter().any(|kept| *kept != 0));
        }
        self.counts_after.nonempty = self.kept.iter().map(|kept| u64::from(*kept)).sum();
    }
}

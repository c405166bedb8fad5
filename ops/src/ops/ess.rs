//! Effective sample sizes, and VCPO's scale for the learning rate.

use super::aggregate::fold_rows;
use super::locate::{self, Checked, Domain};
use crate::{Batch, Device, Error};
use lockstep_core::num::Soft;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::ratio::ess::{EPS, EffectiveSampleSize, LrRule, ess, lr_scale};
use lockstep_core::require;

/// Effective sample sizes of rows of weights and of the whole batch.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SampleSizes {
    /// Effective sample size of each row, `[R]`.
    pub rows: Vec<f64>,
    /// Effective sample size of the batch.
    pub batch: f64,
    /// Number of weights counted in the batch.
    pub count: u64,
}

impl SampleSizes {
    /// Computes VCPO's factor for the learning rate of this step; formula: [`lockstep_core::ratio::ess`].
    ///
    /// Errors: a `rho_base` that is not positive and finite.
    pub fn lr_scale(&self, rho_base: f64, rule: LrRule) -> Result<f64, Error> {
        require::positive("rho_base", rho_base)?;
        Ok(lr_scale::<Soft>(self.batch, self.count as f64, rho_base, rule))
    }
}

/// Computes the effective sample size of token `weights` `[N]` in each sequence and in the batch; formula:
/// [`lockstep_core::ratio::ess`].
///
/// Errors: lengths that disagree; a live weight that is not a finite number of at least 0 (index).
#[doc(alias("ESS", "effective sample size"))]
pub fn token_sample_sizes(device: &Device, batch: &Batch<'_>, weights: &[f32]) -> Result<SampleSizes, Error> {
    batch.check_tokens("weights", weights.len())?;
    run(device, batch.cu_seqlens(), batch.loss_mask(), weights)
}

/// Computes the effective sample size of sequence `weights` `[S]` in each group and in the batch; formula:
/// [`lockstep_core::ratio::ess`]. Sequences whose entry in `valid` `[S]` is 0 are excluded.
///
/// Errors: those of [`token_sample_sizes`].
///
/// ```
/// use lockstep_ops::core::ratio::LrRule;
/// use lockstep_ops::{Batch, Device, ops::sequence_sample_sizes};
/// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None)?;
/// let sizes = sequence_sample_sizes(&Device::cpu(), &batch, &[4.0, 1.0, 1.0, 1.0], None)?;
/// assert!((sizes.batch - 49.0 / 19.0).abs() < 1e-8);
/// assert!((sizes.lr_scale(1.0, LrRule::Sqrt)? - 0.802955).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("ESS", "effective sample size"))]
pub fn sequence_sample_sizes(
    device: &Device,
    batch: &Batch<'_>,
    weights: &[f32],
    valid: Option<&[u8]>,
) -> Result<SampleSizes, Error> {
    batch.check_sequences("weights", weights.len())?;
    if let Some(valid) = valid {
        batch.check_sequences("valid", valid.len())?;
    }
    run(device, batch.cu_groups(), Mask::new(valid), weights)
}

fn run(device: &Device, offsets: Offsets<'_>, mask: Mask<'_>, weights: &[f32]) -> Result<SampleSizes, Error> {
    let rows = offsets.rows();
    let mut out = SampleSizes { rows: vec![0.0; rows], ..SampleSizes::default() };
    let (mut sums, mut alarm) = (vec![0.0; 2 * rows], vec![0; rows]);
    device.run(&EffectiveSampleSize {
        offsets,
        mask,
        weights: In::new(weights),
        eps: EPS,
        row_sums: Out::new(&mut sums),
        row_ess: Out::new(&mut out.rows),
        row_alarm: Out::new(&mut alarm),
    })?;
    let arguments = [Checked::new("weights", Domain::Weight, weights)];
    locate::check_rows(offsets, mask, &alarm, &arguments, &[], "")?;
    let totals = fold_rows(device, &sums, rows)?;
    out.batch = ess(totals[0], totals[1], EPS);
    out.count = (0..weights.len()).filter(|i| mask.at(*i)).count() as u64;
    Ok(out)
}

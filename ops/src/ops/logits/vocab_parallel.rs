//! Statistics and gradients of logits whose vocabulary is spread over ranks: tensor parallelism of the last
//! layer, with the same bits for every number of ranks.
//!
//! Each rank calls these functions with its shard of the vocabulary, and all-reduces two arrays; formulas:
//! [`lockstep_core::logits::vocab_parallel`]. Entries that pad the vocabulary are -inf.
//!
//! ```
//! use lockstep_ops::{Device, ops::logits::{Logits, vocab_parallel::*}};
//! let device = Device::cpu();
//! // Two ranks with two entries each; the label is entry 3.
//! let (labels, forbidden) = ([3], f32::NEG_INFINITY);
//! let (a, b) = ([0.0f32, 0.0], [forbidden, 0.0]);
//! let shard = |logits, vocab_start| Shard {
//!     rows: Logits { logits, labels: &labels, loss_mask: None },
//!     vocab_start,
//! };
//! let shards = [shard(&a, 0), shard(&b, 2)];
//!
//! let tops = shards.map(|shard| vocab_parallel_top(&device, &shard).unwrap()[0]);
//! let top = [tops[0].max(tops[1])]; // all-reduce: the maximum
//! let sums = shards.map(|shard| vocab_parallel_sums(&device, &shard, &top, 1.0, true).unwrap());
//! let sums: Vec<f64> = sums[0].iter().zip(&sums[1]).map(|(a, b)| a + b).collect(); // all-reduce: the sum
//! let out = vocab_parallel_statistics(&device, &top, &sums, None, 1.0)?;
//! assert!((out.logp[0] + 3f32.ln()).abs() < 1e-6 && (out.entropy[0] - 3f32.ln()).abs() < 1e-6);
//!
//! let gradient = vocab_parallel_gradient(&device, &shards[1], &out, &[1.0], None)?;
//! assert!(gradient[0] == 0.0 && (gradient[1] - 2.0 / 3.0).abs() < 1e-6);
//! # Ok::<(), lockstep_ops::Error>(())
//! ```

use super::{Coefs, Logits, Statistics};
use crate::{Compiled, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::logits::vocab_parallel::{HOLDERS, LABEL, SUMS, unpacked};
use lockstep_core::logits::{LogitsGradient, VocabParallelStatistics, VocabParallelSums, VocabParallelTop};
use lockstep_core::num::Storage;
use lockstep_core::ragged::{In, Mask, Out, flag};
use lockstep_core::require;

/// A rank's shard of the vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct Shard<'a, S = f32> {
    /// The shard's entries of every row, `[rows][V]`, and the labels as numbers of the whole vocabulary.
    /// Shards may have different V.
    pub rows: Logits<'a, S>,
    /// Number of the shard's first entry in the vocabulary.
    pub vocab_start: u32,
}

/// Finds the largest entry of each row of the shard and its token, `[rows]`, in one number of the form that
/// [`unpacked`] reads. **All-reduce: the maximum.**
///
/// Errors: lengths that disagree; a shard that ends beyond entry 2^24.
pub fn vocab_parallel_top<S: Storage>(device: &Device, shard: &Shard<'_, S>) -> Result<Vec<i64>, Error>
where
    for<'a> VocabParallelTop<'a, S>: Compiled,
{
    let rows = shard.rows.any_labels()?;
    let mut top = vec![0; rows.rows];
    let kernel = VocabParallelTop { rows, vocab_start: shard.vocab_start, top: Out::new(&mut top) };
    device.run(&kernel)?;
    Ok(top)
}

/// Computes the sums over each row of the shard, `[4][rows]`, or `[8][rows]` if `moments`. `top` is the
/// maximum over ranks. **All-reduce: the sum**, which is exact in binary64, so its order does not matter.
///
/// Errors: those of [`vocab_parallel_top`]; a temperature outside 1e-6..=1e6; a `top` that is not the maximum
/// over all ranks (index).
pub fn vocab_parallel_sums<S: Storage>(
    device: &Device,
    shard: &Shard<'_, S>,
    top: &[i64],
    temperature: f32,
    moments: bool,
) -> Result<Vec<f64>, Error>
where
    for<'a> VocabParallelSums<'a, S>: Compiled,
{
    let rows = shard.rows.any_labels()?;
    require::length("top", rows.rows, "one per row of logits", top.len())?;
    let mut sums = vec![0.0; SUMS[usize::from(moments)] * rows.rows];
    let mut alarms = vec![0; rows.rows];
    device.run(&VocabParallelSums {
        rows,
        vocab_start: shard.vocab_start,
        labels: In::new(shard.rows.labels),
        top: In::new(top),
        temperature,
        moments,
        sums: Out::new(&mut sums),
        row_alarm: Out::new(&mut alarms),
    })?;
    if let Some(row) = alarms.iter().position(|alarm| *alarm > flag::LIMIT) {
        let expected = "the maximum over all shards, but this shard has a larger logit";
        return Err(refused("top", row, expected, unpacked(top[row]).0.into()));
    }
    Ok(sums)
}

/// Computes the statistics of whole rows from `top`, the maximum over ranks, and `sums`, the sum over ranks;
/// with entropy, collision and score norm if the sums were computed with moments.
///
/// Errors: lengths that disagree; a row without a finite largest logit; a label that no shard has, or more
/// than one, or that its row forbids (index of the row); a temperature outside 1e-6..=1e6.
pub fn vocab_parallel_statistics(
    device: &Device,
    top: &[i64],
    sums: &[f64],
    loss_mask: Option<&[u8]>,
    temperature: f32,
) -> Result<Statistics, Error> {
    let rows = top.len();
    if rows == 0 {
        return Err(Argument::Empty { argument: "top", expected: "one per row of logits" }.into());
    }
    let moments = sums.len() == SUMS[1] * rows;
    require::length("sums", SUMS[usize::from(moments)] * rows, "four or eight per row", sums.len())?;
    if let Some(mask) = loss_mask {
        require::length("loss_mask", rows, "one per row of logits", mask.len())?;
    }
    let (mut out, mut alarms) = (Statistics::new(rows, temperature, moments), vec![0; rows]);
    device.run(&VocabParallelStatistics {
        rows,
        live: Mask::new(loss_mask),
        top: In::new(top),
        sums: In::new(sums),
        temperature,
        results: out.results(&mut alarms),
    })?;
    let Some(row) = alarms.iter().position(|alarm| *alarm > flag::LIMIT) else { return Ok(out) };
    let (largest, holders) = (unpacked(top[row]).0, sums[HOLDERS * rows + row]);
    Err(if !largest.is_finite() {
        refused("logits", row, "a row with at least one finite entry and no NaN or +inf", largest.into())
    } else if holders != 1.0 {
        refused("shards that have the label", row, "exactly 1", holders)
    } else {
        refused("logit of the label", row, "a finite number", sums[LABEL * rows + row])
    })
}

/// Computes dL/dz of the shard, `[rows][V]`, from the `statistics` of whole rows;
/// [`logits_gradient`](super::logits_gradient) describes the other arguments.
///
/// Errors: those of [`vocab_parallel_top`]; coefficients that are not finite (index); a `coef_entropy` if the
/// statistics have no moments; a gradient that is too large for the type of the logits (index of the row).
pub fn vocab_parallel_gradient<S: Storage>(
    device: &Device,
    shard: &Shard<'_, S>,
    statistics: &Statistics,
    coef: &[f32],
    coef_entropy: Option<&[f32]>,
) -> Result<Vec<S>, Error>
where
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    let (rows, coefs) = (shard.rows.any_labels()?, Coefs { coef, coef_entropy });
    coefs.check(rows.rows, statistics)?;
    let mut gradient = vec![S::default(); shard.rows.logits.len()];
    let start = Some(shard.vocab_start);
    let alarms = coefs.gradient(device, rows, shard.rows.labels, start, statistics, &mut gradient)?;
    coefs.check_alarms(&alarms, 0)?;
    Ok(gradient)
}

fn refused(argument: &'static str, row: usize, expected: &'static str, got: f64) -> Error {
    Argument::Value { argument, index: Some(row), expected, got }.into()
}

//! DOTS: predicted difficulty, and selection by it.

use crate::Error;
use lockstep_schedule::{dots, order};

/// A predicted pass rate, and the weights that it is computed from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difficulty {
    /// The predicted pass rate Σ w v, before calibration.
    pub base: f64,
    /// Attention to each reference question, `[K]`.
    pub weights: Vec<f64>,
}

/// Predicts a pass rate from reference questions: `query` is the embedding `[h]`, `references` are embeddings
/// `[K, h]`, row-major, and `pass_rates` are `[K]`; formula: [`lockstep_schedule::dots`].
/// [`calibrate`](dots::calibrate) computes the calibrated rate.
///
/// Errors: lengths that disagree; a temperature that is not positive; a pass rate outside 0..=1 (index); an
/// embedding that is not finite (index); a logit beyond 1e9 (index of the reference).
///
/// ```
/// let d = lockstep_ops::schedule::dots_difficulty(&[1.0, 0.0], &[1.0, 0.0, 0.0, 1.0], &[0.75, 0.25], 1.0)?;
/// assert!(d.weights[0] > d.weights[1] && d.base > 0.5);
/// assert!((lockstep_ops::schedule::calibrate(0.5, 0.0, 0.0) - 0.5).abs() < 1e-15);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn dots_difficulty(
    query: &[f64],
    references: &[f64],
    pass_rates: &[f64],
    temperature: f64,
) -> Result<Difficulty, Error> {
    let mut weights = vec![0.0; pass_rates.len()];
    let base = dots::difficulty(query, references, pass_rates, temperature, &mut weights)?;
    Ok(Difficulty { base, weights })
}

/// Draws `count` prompts without replacement from softmax(−|p̂ − target|/temperature), in the order of
/// drawing; formula: [`lockstep_schedule::dots`]. [`selection_size`](dots::selection_size) computes the
/// number to draw.
///
/// Errors: a prediction outside 0..=1 (index); a temperature that is not positive, or so small that a
/// quotient is not finite.
///
/// ```
/// let prompts = lockstep_ops::schedule::dots_select(&[0.9, 0.5, 0.1, 0.4], 2, 0.5, 1e-3, 7, 0)?;
/// assert_eq!(prompts, [1, 3]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn dots_select(
    predicted: &[f64],
    count: usize,
    target: f64,
    temperature: f64,
    seed: u64,
    step: u32,
) -> Result<Vec<u32>, Error> {
    let mut keys = vec![0.0; predicted.len()];
    dots::selection_keys(predicted, target, temperature, seed, step, &mut keys)?;
    let mut prompts = vec![0; predicted.len()];
    order::by_key(&keys, &mut prompts)?;
    prompts.truncate(count);
    Ok(prompts)
}

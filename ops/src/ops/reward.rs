//! Reward shaping, before advantages are computed.

use super::locate::{self, Domain};
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::require;
use lockstep_core::reward::novelty::{INVALID, MAJORITY, MINORITY};
use lockstep_core::reward::{NoveltyBands, ShapeRewards, Shaping, VarianceIncrease};

/// Parameters of [`shape_rewards`]; formula: [`lockstep_core::reward::shape`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeParams<'a> {
    /// The shaping function.
    pub shaping: Shaping,
    /// A reward above this is correct.
    pub threshold: f32,
    /// Lengths in tokens, `[S]`; `None` = the live tokens of each sequence.
    pub lengths: Option<&'a [u32]>,
    /// Non-zero for answers with flawed reasoning, `[S]`, for [`Shaping::Flawed`]; `None` = none are flawed.
    pub flags: Option<&'a [u8]>,
    /// Position within its group of the member that the others were compared with, `[G]`, for
    /// [`Shaping::Preferred`].
    pub reference: Option<&'a [u32]>,
}

impl ShapeParams<'static> {
    /// Parameters with the threshold 0.5 and the batch's own lengths.
    pub const fn new(shaping: Shaping) -> Self {
        ShapeParams { shaping, threshold: 0.5, lengths: None, flags: None, reference: None }
    }
}

/// Shapes `rewards` `[S]` by length, sign, flaw, brevity or preference. Sequences with a NaN reward or a 0 in
/// `valid` `[S]` get NaN.
///
/// Errors: lengths that disagree; an infinite reward (index); parameters out of their domain; a missing array
/// that the shaping needs; a reference beyond its group (group); a result that is not finite (index).
///
/// ```
/// use lockstep_ops::core::reward::Shaping;
/// use lockstep_ops::{Batch, Device, ops::{reward::ShapeParams, shape_rewards}};
/// let batch = Batch::new(&[0, 100, 250, 450], &[0, 3], None)?;
/// let overlong = Shaping::Overlong { max_length: 200, buffer: 100, factor: 1.0, saturate: false };
/// let shaped = shape_rewards(&Device::cpu(), &batch, &[1.0, 1.0, 1.0], None, &ShapeParams::new(overlong))?;
/// assert_eq!(shaped, [1.0, 0.5, 0.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "overlong")]
pub fn shape_rewards(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    valid: Option<&[u8]>,
    params: &ShapeParams<'_>,
) -> Result<Vec<f32>, Error> {
    check_scores(batch, "rewards", rewards, valid)?;
    let own = match params.lengths {
        None if params.shaping.needs_lengths() => Some(batch.lengths(device)?),
        _ => None,
    };
    if let Some(reference) = params.reference {
        require::length("reference", batch.groups(), "one per group", reference.len())?;
        let beyond = |g: &usize| reference[*g] as usize >= batch.cu_groups().span(*g).len();
        if let Some(index) = (0..batch.groups()).find(beyond) {
            let (argument, expected) = ("reference", "a position within the group");
            return Err(require::value(argument, Some(index), expected, reference[index]).into());
        }
    }
    let mut shaped = vec![0.0; batch.sequences()];
    device.run(&ShapeRewards {
        cu_groups: batch.cu_groups(),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        shaping: params.shaping,
        threshold: params.threshold,
        lengths: params.lengths.or(own.as_deref()).map(In::new),
        flags: params.flags.map(In::new),
        reference: params.reference.map(In::new),
        shaped: Out::new(&mut shaped),
    })?;
    not_infinite("shaped", shaped, "the shaped reward is too large for f32")
}

/// Classifies answers by majority vote, `[S]`. `answers` `[S]` holds one id per answer: equal ids mean equal
/// answers, `None` means no answer. The most frequent answer of a group is its majority; ties go to the one
/// that came first.
///
/// Errors: lengths that disagree.
pub fn majority(batch: &Batch<'_>, answers: &[Option<u32>]) -> Result<Vec<u32>, Error> {
    batch.check_sequences("answers", answers.len())?;
    let mut classes = vec![INVALID; answers.len()];
    for group in 0..batch.groups() {
        let span = batch.cu_groups().span(group);
        let members = &answers[span.start..span.end];
        let votes = |answer: &Option<u32>| members.iter().filter(|other| *other == answer).count();
        // `max_by_key` returns the last of several maxima: in reverse order, the one that came first.
        let winner =
            members.iter().rev().filter(|answer| answer.is_some()).max_by_key(|answer| votes(answer));
        for (class, answer) in classes[span.start..span.end].iter_mut().zip(members) {
            *class = match answer {
                None => INVALID,
                Some(_) if Some(answer) == winner => MAJORITY,
                Some(_) => MINORITY,
            };
        }
    }
    Ok(classes)
}

/// Reward bands of [`novelty_bands`]; formula: [`lockstep_core::reward::novelty`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bands {
    /// Weight of the mean similarity; the largest similarity gets the rest.
    pub mean_weight: f64,
    /// Lower end of the majority's band.
    pub majority: f64,
    /// Lower end of the minority's band.
    pub minority: f64,
    /// Width of a band.
    pub width: f64,
    /// Reward of an invalid answer.
    pub invalid: f64,
}

impl Bands {
    /// EVOL-RL's bands: majority 0.5 to 1, minority −1 to −0.5, invalid −1.
    pub const EVOL_RL: Bands =
        Bands { mean_weight: 0.5, majority: 0.5, minority: -1.0, width: 0.5, invalid: -1.0 };
}

/// Rewards, and the novelty that places them in their bands.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Novelty {
    /// Rewards per sequence, `[S]`; NaN for sequences that are not valid.
    pub rewards: Vec<f32>,
    /// Novelty u, `[S]`; 0 if absent.
    pub novelty: Vec<f32>,
}

/// Computes EVOL-RL's rewards `[S]`: the band is that of the answer's class in `classes` `[S]`
/// ([`majority`]), and the position in the band is the novelty, scaled to 0 to 1 within the class.
/// `similarity` `[Σ n²]` holds the n × n matrix of every group, row-major, one after the other; diagonals are
/// not read.
///
/// Errors: lengths that disagree; a similarity between two answers that is not finite (index); parameters out
/// of their domain.
///
/// ```
/// use lockstep_ops::{Batch, Device, ops::{novelty_bands, reward::{Bands, majority}}};
/// let batch = Batch::new(&[0, 1, 2, 3], &[0, 3], None)?;
/// let classes = majority(&batch, &[Some(7), Some(7), Some(3)])?;
/// let alike = [1.0, 0.5, 0.0, 0.5, 1.0, 0.5, 0.0, 0.5, 1.0];
/// let out = novelty_bands(&Device::cpu(), &batch, &classes, &alike, None, &Bands::EVOL_RL)?;
/// assert_eq!(out.rewards, [0.75, 0.75, -0.5]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "EVOL-RL")]
pub fn novelty_bands(
    device: &Device,
    batch: &Batch<'_>,
    classes: &[u32],
    similarity: &[f32],
    valid: Option<&[u8]>,
    bands: &Bands,
) -> Result<Novelty, Error> {
    batch.check_sequences("classes", classes.len())?;
    if let Some(valid) = valid {
        require::length("valid", batch.sequences(), "one per sequence", valid.len())?;
    }
    let mut pairs = 0;
    let mut start = Vec::with_capacity(batch.groups());
    for group in 0..batch.groups() {
        start.push(pairs as u64);
        pairs += batch.cu_groups().span(group).len().pow(2);
    }
    require::length("similarity", pairs, "n² per group of n responses", similarity.len())?;
    let counted = |i: usize| classes[i] < INVALID && valid.is_none_or(|v| v[i] != 0);
    for group in 0..batch.groups() {
        let span = batch.cu_groups().span(group);
        let (n, first) = (span.len(), start[group] as usize);
        let bad = |k: &usize| {
            let (i, j) = (span.start + k / n, span.start + k % n);
            i != j && counted(i) && counted(j) && !similarity[first + k].is_finite()
        };
        if let Some(k) = (0..n * n).find(bad) {
            let (argument, expected) = ("similarity", "a finite number");
            return Err(require::value(argument, Some(first + k), expected, similarity[first + k]).into());
        }
    }
    let mut out = Novelty { rewards: vec![0.0; classes.len()], novelty: vec![0.0; classes.len()] };
    device.run(&NoveltyBands {
        cu_groups: batch.cu_groups(),
        pair_start: In::new(&start),
        similarity: In::new(similarity),
        classes: In::new(classes),
        valid: Mask::new(valid),
        mean_weight: bands.mean_weight,
        majority: bands.majority,
        minority: bands.minority,
        width: bands.width,
        invalid: bands.invalid,
        shaped: Out::new(&mut out.rewards),
        novelty: Out::new(&mut out.novelty),
    })?;
    Ok(out)
}

/// Parameters of [`variance_increase`]; formula: [`lockstep_core::reward::variance_increase`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VarianceParams<'a> {
    /// Log-probability of each sequence under the reference, `[S]`; `None` = all equally likely.
    pub logp: Option<&'a [f64]>,
    /// Lower bound m; −∞ = the group's smallest reward minus `margin`.
    pub low: f64,
    /// Upper bound M; +∞ = the group's largest reward plus `margin`.
    pub high: f64,
    /// The margin around the group's own bounds; see `low` and `high`.
    pub margin: f64,
    /// Whether equal rewards stay equal.
    pub merge_ties: bool,
}

impl VarianceParams<'static> {
    /// Parameters with the group's own bounds, uniform probabilities, and ties that stay equal.
    pub const OWN: Self = VarianceParams {
        logp: None,
        low: f64::NEG_INFINITY,
        high: f64::INFINITY,
        margin: 0.0,
        merge_ties: true,
    };
}

/// Computes GRPOVI's rewards `[S]`: moves `rewards` `[S]` to increase their variance within the group, and
/// keeps their mean and order. Sequences with a NaN reward or a 0 in `valid` `[S]` get NaN.
///
/// Errors: lengths that disagree; an infinite reward or a log-probability that is not finite (index);
/// parameters out of their domain.
///
/// ```
/// use lockstep_ops::{Batch, Device, ops::{reward::VarianceParams, variance_increase}};
/// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None)?;
/// let params = VarianceParams { low: 0.0, high: 1.0, ..VarianceParams::OWN };
/// let z = variance_increase(&Device::cpu(), &batch, &[0.9, 0.6, 0.5, 0.1], None, &params)?;
/// assert!(z[0] == 1.0 && z[1] == 1.0 && (z[2] - 0.1).abs() < 1e-6 && z[3] == 0.0);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "GRPOVI")]
pub fn variance_increase(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    valid: Option<&[u8]>,
    params: &VarianceParams<'_>,
) -> Result<Vec<f32>, Error> {
    check_scores(batch, "rewards", rewards, valid)?;
    if let Some(logp) = params.logp {
        let excluded = |i: usize| valid.is_some_and(|v| v[i] == 0);
        locate::each("logp", logp, "a finite number", |i, x| excluded(i) || x.is_finite())?;
    }
    let mut shaped = vec![0.0; batch.sequences()];
    device.run(&VarianceIncrease {
        cu_groups: batch.cu_groups(),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        logp: params.logp.map(In::new),
        low: params.low,
        high: params.high,
        margin: params.margin,
        merge_ties: params.merge_ties,
        shaped: Out::new(&mut shaped),
    })?;
    not_infinite("shaped", shaped, "the bounds are too large for f32")
}

/// Errors unless there is one score per sequence and no counted score is infinite.
pub(super) fn check_scores(
    batch: &Batch<'_>,
    argument: &'static str,
    scores: &[f32],
    valid: Option<&[u8]>,
) -> Result<(), Error> {
    batch.check_sequences(argument, scores.len())?;
    if let Some(valid) = valid {
        require::length("valid", batch.sequences(), "one per sequence", valid.len())?;
    }
    let excluded = |i: usize| valid.is_some_and(|v| v[i] == 0);
    locate::each(argument, scores, Domain::Reward.expected(), |i, x| excluded(i) || !x.is_infinite())
}

/// Returns the values, or an error if one is infinite; NaN means "no score".
pub(super) fn not_infinite(
    result: &'static str,
    values: Vec<f32>,
    hint: &'static str,
) -> Result<Vec<f32>, Error> {
    match values.iter().position(|x| x.is_infinite()) {
        None => Ok(values),
        Some(index) => Err(Argument::NotFinite { result, index, hint }.into()),
    }
}

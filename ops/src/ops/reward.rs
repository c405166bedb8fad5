//! Rewards before they become advantages.

use crate::batch::check_length;
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::check::Domain;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::reward::novelty::{INVALID, MAJORITY, MINORITY};
use lockstep_core::reward::{NoveltyBands, ShapeRewards, Shaping, VarianceIncrease};

/// Arguments of [`shape_rewards`] beside the rewards; formula: [`lockstep_core::reward::shape`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeParams<'a> {
    /// Which function.
    pub shaping: Shaping,
    /// A reward above it is correct.
    pub threshold: f32,
    /// Lengths in tokens, `[S]`; absent = the live tokens of the batch.
    pub lengths: Option<&'a [u32]>,
    /// Flawed answers, `[S]`, of [`Shaping::Flawed`]; absent = none.
    pub flags: Option<&'a [u8]>,
    /// Position in its group of the member that the others were compared with, `[G]`, of
    /// [`Shaping::Preferred`].
    pub reference: Option<&'a [u32]>,
}

impl ShapeParams<'static> {
    /// With the threshold 0.5 and the batch's own lengths.
    pub const fn new(shaping: Shaping) -> Self {
        ShapeParams { shaping, threshold: 0.5, lengths: None, flags: None, reference: None }
    }
}

/// `rewards` `[S]` shaped by length, sign, flaw, brevity or preference. A NaN reward, or a sequence whose
/// entry in `valid` is 0, gets NaN.
///
/// Errors: lengths that disagree; an infinite reward (index); parameters outside their domain, an array that
/// the shaping needs and nobody gave; a reference beyond its group (group); a result that is not finite
/// (index).
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
        check_length("reference", batch.groups(), "one per group", reference.len())?;
        let beyond = |g: &usize| reference[*g] as usize >= batch.cu_groups().span(*g).len();
        if let Some(index) = (0..batch.groups()).find(beyond) {
            let (argument, expected) = ("reference", "the position of a member of the group");
            let got = reference[index].into();
            return Err(Argument::Value { argument, index: Some(index), expected, got }.into());
        }
    }
    let mut shaped = vec![0.0; batch.sequences()];
    let kernel = ShapeRewards {
        cu_groups: batch.cu_groups(),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        shaping: params.shaping,
        threshold: params.threshold,
        lengths: params.lengths.or(own.as_deref()).map(In::new),
        flags: params.flags.map(In::new),
        reference: params.reference.map(In::new),
        shaped: Out::new(&mut shaped),
    };
    kernel.check()?;
    device.run(&kernel)?;
    not_infinite("shaped", shaped, "the shaped reward is too large for f32")
}

/// Classes of answers by majority vote: `answers` `[S]` name what was answered (equal number, equal answer;
/// `None` = no answer). The most frequent answer of a group is its majority; ties go to the one that came
/// first.
///
/// Errors: lengths that disagree.
pub fn majority(batch: &Batch<'_>, answers: &[Option<u32>]) -> Result<Vec<u32>, Error> {
    batch.check_sequences("answers", answers.len())?;
    let mut classes = vec![INVALID; answers.len()];
    for group in 0..batch.groups() {
        let span = batch.cu_groups().span(group);
        let members = &answers[span.start..span.end];
        let votes = |answer: &Option<u32>| members.iter().filter(|other| *other == answer).count();
        // The last of several maxima: in reverse order the one that came first.
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

/// Bands of [`novelty_bands`]; formula: [`lockstep_core::reward::novelty`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bands {
    /// Weight of the mean similarity against the greatest.
    pub mean_weight: f64,
    /// Least reward of the majority.
    pub majority: f64,
    /// Least reward of the others.
    pub minority: f64,
    /// Width of a band.
    pub width: f64,
    /// Reward of an invalid answer.
    pub invalid: f64,
}

impl Bands {
    /// EVOL-RL's: 0.5 to 1, −1 to −0.5, −1.
    pub const EVOL_RL: Bands =
        Bands { mean_weight: 0.5, majority: 0.5, minority: -1.0, width: 0.5, invalid: -1.0 };
}

/// Rewards, and the novelty behind them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Novelty {
    /// Per sequence, `[S]`; NaN for those that are not valid.
    pub rewards: Vec<f32>,
    /// u, `[S]`; 0 for who has none.
    pub novelty: Vec<f32>,
}

/// EVOL-RL's rewards: bands by `classes` `[S]` ([`majority`]), ranked inside by novelty, from `similarity`
/// `[Σ n²]`, the matrices of the groups one after the other, row by row. Diagonals are not read.
///
/// Errors: lengths that disagree; a similarity between two answers that is not finite (index); parameters
/// outside their domain.
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
        check_length("valid", batch.sequences(), "one per sequence", valid.len())?;
    }
    let mut pairs = 0;
    let mut start = Vec::with_capacity(batch.groups());
    for group in 0..batch.groups() {
        start.push(pairs as u64);
        pairs += batch.cu_groups().span(group).len().pow(2);
    }
    check_length("similarity", pairs, "n² per group of n", similarity.len())?;
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
            let (index, got) = (Some(first + k), similarity[first + k].into());
            return Err(Argument::Value { argument, index, expected, got }.into());
        }
    }
    let mut out = Novelty { rewards: vec![0.0; classes.len()], novelty: vec![0.0; classes.len()] };
    let kernel = NoveltyBands {
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
    };
    kernel.check()?;
    device.run(&kernel)?;
    Ok(out)
}

/// Parameters of [`variance_increase`]; formula: [`lockstep_core::reward::variance_increase`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VarianceParams<'a> {
    /// Log-probability of each sequence under the reference, `[S]`; absent = all equally likely.
    pub logp: Option<&'a [f64]>,
    /// m; −∞ = the group's least reward less `margin`.
    pub low: f64,
    /// M; +∞ = the group's greatest reward plus `margin`.
    pub high: f64,
    /// See `low` and `high`.
    pub margin: f64,
    /// Equal rewards stay equal.
    pub merge_ties: bool,
}

impl VarianceParams<'static> {
    /// The group's own bounds, uniform probabilities, ties kept together.
    pub const OWN: Self = VarianceParams {
        logp: None,
        low: f64::NEG_INFINITY,
        high: f64::INFINITY,
        margin: 0.0,
        merge_ties: true,
    };
}

/// GRPOVI: `rewards` `[S]` moved so that their variance in the group grows, mean and order kept. A NaN
/// reward, or a sequence whose entry in `valid` is 0, gets NaN.
///
/// Errors: lengths that disagree; an infinite reward, a log-probability that is not finite (index);
/// parameters outside their domain.
///
/// ```
/// use lockstep_ops::{Batch, Device, ops::{reward::VarianceParams, variance_increase}};
/// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None)?;
/// let params = VarianceParams { low: 0.0, high: 1.0, ..VarianceParams::OWN };
/// let z = variance_increase(&Device::cpu(), &batch, &[0.9, 0.6, 0.5, 0.1], None, &params)?;
/// assert!(z[0] == 1.0 && z[1] == 1.0 && (z[2] - 0.1).abs() < 1e-6 && z[3] == 0.0);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn variance_increase(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    valid: Option<&[u8]>,
    params: &VarianceParams<'_>,
) -> Result<Vec<f32>, Error> {
    check_scores(batch, "rewards", rewards, valid)?;
    if let Some(logp) = params.logp {
        check_finite64("logp", logp, |i| valid.is_none_or(|v| v[i] != 0))?;
    }
    let mut shaped = vec![0.0; batch.sequences()];
    let kernel = VarianceIncrease {
        cu_groups: batch.cu_groups(),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        logp: params.logp.map(In::new),
        low: params.low,
        high: params.high,
        margin: params.margin,
        merge_ties: params.merge_ties,
        shaped: Out::new(&mut shaped),
    };
    kernel.check()?;
    device.run(&kernel)?;
    not_infinite("shaped", shaped, "the bounds are too large for f32")
}

/// One score per sequence, none of the counted ones infinite.
pub(super) fn check_scores(
    batch: &Batch<'_>,
    argument: &'static str,
    scores: &[f32],
    valid: Option<&[u8]>,
) -> Result<(), Error> {
    batch.check_sequences(argument, scores.len())?;
    if let Some(valid) = valid {
        check_length("valid", batch.sequences(), "one per sequence", valid.len())?;
    }
    let bad = |i: &usize| scores[*i].is_infinite() && valid.is_none_or(|v| v[*i] != 0);
    match (0..scores.len()).find(bad) {
        None => Ok(()),
        Some(index) => {
            let (expected, got) = (Domain::Reward.expected(), scores[index].into());
            Err(Argument::Value { argument, index: Some(index), expected, got }.into())
        }
    }
}

pub(super) fn check_finite64(
    argument: &'static str,
    values: &[f64],
    counted: impl Fn(usize) -> bool,
) -> Result<(), Error> {
    match values.iter().enumerate().position(|(i, x)| counted(i) && !x.is_finite()) {
        None => Ok(()),
        Some(index) => {
            let (expected, got) = ("a finite number", values[index]);
            Err(Argument::Value { argument, index: Some(index), expected, got }.into())
        }
    }
}

/// The values, none of them infinite; NaN is "no score".
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

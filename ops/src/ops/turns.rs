//! Advantages of turns (MARS).

use super::whiten::{WhitenParams, with_moments};
use super::{discounted_return, locate, moments};
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::Divisor;
use lockstep_core::ragged::{Mask, Offsets, flag};
use lockstep_core::require;

/// The values over which a role's mean and standard deviation are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormSet {
    /// The role's distinct values, and the 0 of the padding in its tensor (MARS's released code).
    #[default]
    UniqueValuesAndZero,
    /// The role's distinct values.
    UniqueValues,
    /// Every turn of the role (as the paper describes).
    Samples,
}

/// How the turns of one role are normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleNorm {
    /// The values that the mean and standard deviation are over.
    pub set: NormSet,
    /// Whether to divide by the standard deviation (ddof 1); otherwise only the mean is subtracted.
    pub by_std: bool,
    /// Added to the standard deviation, outside the root.
    pub eps: f64,
}

/// The turns of sequences, with their rewards and roles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turns<'a> {
    /// Turn k holds tokens `cu_turns[k]..cu_turns[k+1]`, `[K+1]`; each sequence starts a turn.
    pub cu_turns: &'a [u32],
    /// Reward per turn, `[K]`.
    pub rewards: &'a [f32],
    /// Role per turn, `[K]`; equal numbers are the same role.
    pub roles: &'a [u32],
}

/// Computes the return from each turn on, `[K]`. MARS puts a turn's reward on its last token and sums to the
/// end of the sequence, so all tokens of a turn have the same return. `gamma` is the discount per turn, 1 in
/// MARS.
///
/// Errors: offsets or lengths that disagree; a sequence that starts inside a turn (index); a reward that is
/// not finite (index); a gamma outside 0..=1; a return that overflows.
#[doc(alias = "MARS")]
pub fn turn_return(
    device: &Device,
    batch: &Batch<'_>,
    turns: &Turns<'_>,
    gamma: f64,
) -> Result<Vec<f32>, Error> {
    let count = turns.cu_turns.len().saturating_sub(1);
    require::length("turn rewards", count, "one per turn", turns.rewards.len())?;
    locate::each_finite("turn rewards", turns.rewards)?;
    Offsets::new("cu_turns", turns.cu_turns, batch.tokens(), "tokens")?;
    if let Some(index) = turns.cu_turns.windows(2).position(|pair| pair[0] == pair[1]) {
        return Err(Argument::EmptyRow { argument: "cu_turns", index, row: "turn" }.into());
    }
    let mut cu_seqlens = Vec::with_capacity(batch.sequences() + 1);
    for s in 0..=batch.sequences() {
        let token = if s == 0 { 0 } else { batch.cu_seqlens().span(s - 1).end };
        match turns.cu_turns.binary_search(&(token as u32)) {
            Ok(turn) => cu_seqlens.push(turn as u32),
            Err(_) => {
                let expected = "an offset that is also in `cu_turns`";
                return Err(require::value("cu_seqlens", Some(s), expected, token as f64).into());
            }
        }
    }
    let groups = [0, batch.sequences() as u32];
    let of_turns = Batch::with_empty_rows(&cu_seqlens, &groups, None)?;
    discounted_return(device, &of_turns, turns.rewards, gamma)
}

/// Centres and scales the `values` of turns, `[K]`, within their role. A role whose set has a single value
/// gets 0.
///
/// Errors: lengths that disagree; a value or a result that is not finite (index).
///
/// ```
/// use lockstep_ops::{Device, ops::turns::{NormSet, RoleNorm, normalize_roles}};
/// let norm = |set| RoleNorm { set, by_std: false, eps: 1e-6 };
/// let (values, roles) = ([1.0, 1.0, 1.0, 0.0, 5.0], [0, 0, 0, 0, 7]);
/// let samples = normalize_roles(&Device::cpu(), &values, &roles, &norm(NormSet::Samples))?;
/// assert_eq!(samples, [0.25, 0.25, 0.25, -0.75, 0.0]);
/// let unique = normalize_roles(&Device::cpu(), &values, &roles, &norm(NormSet::UniqueValues))?;
/// assert_eq!(unique, [0.5, 0.5, 0.5, -0.5, 0.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "MARS")]
pub fn normalize_roles(
    device: &Device,
    values: &[f32],
    roles: &[u32],
    norm: &RoleNorm,
) -> Result<Vec<f32>, Error> {
    require::length("roles", values.len(), "one per turn", roles.len())?;
    locate::each_finite("values", values)?;
    let mut distinct: Vec<u32> = roles.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let params = WhitenParams {
        divisor: if norm.by_std { Divisor::Outside } else { Divisor::One },
        eps: norm.eps,
        ..WhitenParams::VERL
    };
    let mut out = vec![0.0; values.len()];
    for role in distinct {
        let own: Vec<usize> = (0..values.len()).filter(|k| roles[*k] == role).collect();
        let samples: Vec<f32> = own.iter().map(|k| values[*k]).collect();
        let set = match norm.set {
            NormSet::Samples => samples.clone(),
            unique => {
                let mut set = samples.clone();
                set.extend((unique == NormSet::UniqueValuesAndZero).then_some(0.0));
                set.sort_unstable_by(f32::total_cmp);
                set.dedup_by(|a, b| a == b);
                set
            }
        };
        let row = |n: usize| [0, n as u32];
        let (all, whole) = (row(set.len()), row(samples.len()));
        let offsets = Offsets::new("values", &all, set.len(), "values")?;
        let moments = moments::run(device, offsets, Mask::all(), ("values", &set), false, false)?;
        let offsets = Offsets::new("values", &whole, samples.len(), "values")?;
        let mut normalized = Vec::new();
        let whole = (&samples[..], false);
        let alarm = with_moments(device, offsets, Mask::all(), whole, &moments, &params, &mut normalized)?;
        if alarm.iter().any(|alarm| *alarm > flag::LIMIT) {
            let index = own[normalized.iter().position(|y| !y.is_finite()).unwrap_or(0)];
            let hint = "the spread of the role's values is too small: choose a larger eps";
            return Err(Argument::NotFinite { result: "normalized", index, hint }.into());
        }
        for (k, value) in own.into_iter().zip(normalized) {
            out[k] = value;
        }
    }
    Ok(out)
}

/// Copies one value per span of tokens (turns, steps) to the tokens of the span, `[N]`; 0 where masked.
///
/// Errors: offsets or lengths that disagree.
pub fn spread(batch: &Batch<'_>, offsets: &[u32], values: &[f32]) -> Result<Vec<f32>, Error> {
    require::length("values", offsets.len().saturating_sub(1), "one per span of tokens", values.len())?;
    let spans = Offsets::new("offsets", offsets, batch.tokens(), "tokens")?;
    let mut tokens = vec![0.0; batch.tokens()];
    for (k, value) in values.iter().enumerate() {
        let span = spans.span(k);
        for i in (span.start..span.end).filter(|i| batch.loss_mask().at(*i)) {
            tokens[i] = *value;
        }
    }
    Ok(tokens)
}

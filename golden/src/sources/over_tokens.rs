//! Token advantages as a sequence of ops, for sources whose order no recipe has.

use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::{Exception, text};
use lockstep::core::kl::Kl;
use lockstep::ops;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use lockstep::{Batch, Device, Rollouts};

/// A batch for ops that take one.
pub(super) struct Tokens {
    offsets: Vec<u32>,
    groups: Vec<u32>,
    pub(super) mask: Vec<u8>,
}

impl Tokens {
    pub(super) fn read(inputs: &Inputs<'_>) -> Result<Self, String> {
        let (offsets, groups) = (inputs.whole("cu_seqlens")?, inputs.whole("cu_groups")?);
        Ok(Tokens { offsets, groups, mask: inputs.whole("loss_mask")? })
    }

    pub(super) fn batch(&self) -> Result<Batch<'_>, String> {
        Batch::new(&self.offsets, &self.groups, Some(&self.mask)).map_err(text)
    }

    /// All tokens: later rewards are discounted over masked tokens too.
    pub(super) fn unmasked(&self) -> Result<Batch<'_>, String> {
        Batch::new(&self.offsets, &self.groups, None).map_err(text)
    }

    pub(super) fn rollouts<'a>(&'a self, rewards: &'a [f32]) -> Rollouts<'a> {
        let rewards = Some(rewards);
        Rollouts { rewards, loss_mask: Some(&self.mask), ..Rollouts::new(&self.offsets, &self.groups) }
    }

    /// A sequence's reward at those of its tokens that `at` picks, 0 elsewhere.
    fn spread(&self, rewards: &[f32], at: impl Fn(usize, usize) -> bool) -> Vec<f32> {
        let rows = self.offsets.windows(2).map(|row| (row[0] as usize, row[1] as usize)).zip(rewards);
        let tokens = rows.flat_map(|((start, end), reward)| (start..end).map(move |i| (i, end, *reward)));
        tokens.map(|(i, end, reward)| if at(i, end) { reward } else { 0.0 }).collect()
    }

    /// The reward on the last live token.
    pub(super) fn on_last_live(&self, rewards: &[f32]) -> Vec<f32> {
        let live = |i: usize| self.mask[i] != 0;
        self.spread(rewards, |i, end| live(i) && !(i + 1..end).any(live))
    }

    pub(super) fn on_last(&self, rewards: &[f32]) -> Vec<f32> {
        self.spread(rewards, |i, end| i + 1 == end)
    }

    pub(super) fn on_all(&self, rewards: &[f32]) -> Vec<f32> {
        self.spread(rewards, |_, _| true)
    }
}

/// Token rewards minus a penalty, if it has a coefficient.
pub(super) fn penalised(
    device: &Device,
    batch: &Batch<'_>,
    inputs: &Inputs<'_>,
    rewards: Vec<f32>,
    (kl, coef): (Kl, f64),
) -> Result<Vec<f32>, String> {
    if coef == 0.0 {
        inputs.ignore(&["logp_old", "logp_ref"]);
        return Ok(rewards);
    }
    let (old, reference) = (inputs.floats("logp_old")?, inputs.floats("logp_ref")?);
    ops::kl_in_reward(device, batch, &rewards, &old, &reference, &kl, coef as f32).map_err(text)
}

/// Advantages and returns.
pub(super) fn gae(
    device: &Device,
    batch: &Batch<'_>,
    [rewards, values]: [&[f32]; 2],
    [gamma, lambda]: [f64; 2],
) -> Result<[Vec<f32>; 2], String> {
    let input = GaeInput { rewards, values, ends: Ends::Terminated };
    let params = GaeParams { gamma, lambda: Lambda::Fixed(lambda), lambda_critic: None };
    let mut out = GaeOutput::default();
    ops::gae(device, batch, &input, &params, &mut out).map_err(text)?;
    Ok([out.advantage, out.returns])
}

/// Both as numbers of a file; returns are sums of an advantage and a value of at most `value`, which may be
/// opposite.
pub(super) fn numbers([advantages, returns]: [&[f32]; 2], value: f64) -> Vec<(&'static str, Got)> {
    let [advantages, returns] = [advantages, returns].map(|values| Got::Live(widen(values)));
    vec![("advantages", advantages), ("returns", Got::Cancelling(Box::new(returns), value))]
}

/// A difference caused by rounding between two of our ops.
pub(super) const ROUNDED: Exception = Exception::Differs(
    "returns are a column of binary32: far from 0, less their mean, they are what rounding left",
);

/// A difference that comes from the mean of codes that whiten.
pub(super) const EQUAL: Exception = Exception::Differs(
    "equal values: exactly 0, where the code's mean, a sum over n + 1e-8, leaves a residue to whiten",
);

/// Whether all live values are equal.
pub(super) fn equal(values: &[f32], mask: &[u8]) -> bool {
    let mut live = values.iter().zip(mask).filter(|(_, live)| **live != 0).map(|(x, _)| x);
    let first = live.next();
    live.all(|x| Some(x) == first)
}

/// Whether the mean is more than so many deviations away from 0.
pub(super) fn offset(
    device: &Device,
    live: &Batch<'_>,
    values: &[f32],
    deviations: f64,
) -> Result<bool, String> {
    let moments = ops::token_moments(device, live, values).map_err(text)?;
    let variance = moments.squares / moments.count.max(1.0);
    Ok(moments.mean.powi(2) > deviations.powi(2) * variance)
}

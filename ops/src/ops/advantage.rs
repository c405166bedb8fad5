//! Group-relative advantages.

use super::{locate, moments};
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale, Singleton, grpo::status};
use lockstep_core::aggregate::moments::MOMENTS;
use lockstep_core::ragged::{In, Mask, Out, Span};
use lockstep_core::require;

/// Parameters of [`group_advantage`]. The formula is in [`lockstep_core::advantage::grpo`]; the choices that
/// each algorithm makes are listed in [`lockstep_core::advantage::baseline`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupParams<'a> {
    /// The baseline that is subtracted from each reward.
    pub baseline: Baseline,
    /// The divisor of the difference.
    pub scale: Scale,
    /// The advantage of a group with one counted member, for baselines computed from the group; `None` makes
    /// such a group an error.
    pub singleton: Option<Singleton>,
    /// Largest magnitude of an advantage; ∞ = no limit.
    pub limit: f64,
    /// A standard deviation of at most this is not divided by; at 0, only a standard deviation of 0 is not.
    /// VCPO uses 1e-8. Applies to [`Scale::Std`] and [`Scale::Batch`].
    pub least_std: f64,
    /// Weights of [`Baseline::Weighted`], `[S]`.
    pub weights: Option<&'a [f32]>,
    /// The values of [`Baseline::Given`] (in ReMax, the reward of the greedy response) or the priors of
    /// [`Baseline::Shrunk`], `[G]`.
    pub given: Option<&'a [f32]>,
}

impl GroupParams<'static> {
    /// Parameters with a baseline and a scale, where a group of one is an error.
    pub const fn new(baseline: Baseline, scale: Scale) -> Self {
        let (weights, given) = (None, None);
        GroupParams { baseline, scale, singleton: None, limit: f64::INFINITY, least_std: 0.0, weights, given }
    }

    /// GRPO, or Dr.GRPO if `norm_by_std` is false.
    pub const fn grpo(norm_by_std: bool, ddof: u32, eps: f64) -> Self {
        let scale = if norm_by_std { Scale::Std { ddof, eps } } else { Scale::None { ddof } };
        GroupParams::new(Baseline::Mean, scale)
    }
}

impl<'a> GroupParams<'a> {
    /// Sets the policy for groups of one.
    pub const fn singleton(self, policy: Singleton) -> GroupParams<'a> {
        GroupParams { singleton: Some(policy), ..self }
    }
}

/// Advantages and the statistics behind them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advantages {
    /// Advantage per sequence, `[S]`; 0 for excluded sequences.
    pub advantage: Vec<f32>,
    /// Baseline per group, `[G]`: the mean reward, or the quantity that the chosen baseline uses instead.
    pub mean: Vec<f32>,
    /// Standard deviation per group, or the quantity that the chosen scale uses instead, `[G]`; exactly 0
    /// where all counted rewards are equal.
    pub std: Vec<f32>,
    /// Counted members per group, `[G]`.
    pub counted: Vec<u32>,
    /// Status bits per group, `[G]`: see [`lockstep_core::advantage::grpo::status`].
    pub status: Vec<u32>,
    /// Position within its group of the member whose reward is the median or second-best baseline, or
    /// [`NO_PIVOT`](lockstep_core::advantage::grpo::NO_PIVOT), `[G]`; empty for other baselines. MC-GRPO
    /// drops that member from the batch.
    pub pivot: Vec<u32>,
    /// 1 = the sequence is kept, `[S]`, if the recipe filters; empty otherwise.
    /// [`mask_sequences`](super::mask_sequences()) makes it a loss mask.
    pub keep: Vec<u8>,
    /// Moving average of each role after the batch, `[P]`, with the estimator `role_baseline`; empty
    /// otherwise.
    pub role_state: Vec<f64>,
}

impl Advantages {
    /// Number of groups without a learning signal because all their counted rewards are equal.
    pub fn constant_groups(&self) -> usize {
        self.status.iter().filter(|bits| **bits & status::CONSTANT != 0).count()
    }

    /// Number of groups with one counted member.
    pub fn singleton_groups(&self) -> usize {
        self.status.iter().filter(|bits| **bits & status::SINGLETON != 0).count()
    }
}

/// Computes group-relative advantages `[S]` of `rewards` `[S]`. Sequences with a NaN reward or a 0 in `valid`
/// `[S]` are excluded from their group. Sequence lengths and whole-batch statistics are computed here if the
/// parameters need them.
///
/// Errors: lengths that disagree; an infinite reward, or a weight or given baseline out of its domain
/// (index); a group of one if `singleton` is `None` (group); parameters out of their domain; a missing array
/// that a parameter needs.
///
/// ```
/// use lockstep_ops::core::advantage::{Baseline, Scale};
/// use lockstep_ops::{Batch, Device, ops::{advantage::GroupParams, group_advantage}};
/// let batch = Batch::new(&[0, 1, 2, 3, 4, 5], &[0, 5], None)?;
/// let rewards = [1.0, 0.0, 0.0, 1.0, 0.0];
/// let grpo = group_advantage(&Device::cpu(), &batch, &rewards, None, &GroupParams::grpo(true, 1, 1e-6))?;
/// assert!((grpo.advantage[0] - 1.095443).abs() < 1e-6);
/// let rloo = GroupParams::new(Baseline::LeaveOneOut, Scale::None { ddof: 1 });
/// assert_eq!(group_advantage(&Device::cpu(), &batch, &rewards, None, &rloo)?.advantage[0], 0.75);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("GRPO", "Dr.GRPO", "RLOO", "REINFORCE++", "group-relative"))]
pub fn group_advantage(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    valid: Option<&[u8]>,
    params: &GroupParams<'_>,
) -> Result<Advantages, Error> {
    let mut out = Advantages::default();
    group_advantage_into(device, batch, rewards, valid, params, &mut out)?;
    Ok(out)
}

/// Like [`group_advantage`], into `out`, whose buffers are reused. `out` is unspecified after an error.
pub fn group_advantage_into(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    valid: Option<&[u8]>,
    params: &GroupParams<'_>,
    out: &mut Advantages,
) -> Result<(), Error> {
    with_residual(device, batch, (rewards, valid), params, out, None)
}

/// Like [`group_advantage_into`]; also writes what rounding took from each advantage, `[S]`.
pub(super) fn with_residual(
    device: &Device,
    batch: &Batch<'_>,
    (rewards, valid): (&[f32], Option<&[u8]>),
    params: &GroupParams<'_>,
    out: &mut Advantages,
    residual: Option<&mut [f32]>,
) -> Result<(), Error> {
    batch.check_sequences("rewards", rewards.len())?;
    if let Some(valid) = valid {
        require::length("valid", batch.sequences(), "one per sequence", valid.len())?;
    }
    let (sequences, groups) = (batch.sequences(), batch.groups());
    let counted = |i: usize| valid.is_none_or(|v| v[i] != 0);
    let infinite = |i: &usize| rewards[*i].is_infinite() && counted(*i);
    let lengths = match params.baseline {
        Baseline::Length => Some(batch.lengths(device)?),
        _ => None,
    };
    let moments = match params.scale.needs_moments() {
        // Infinite rewards are reported below, by index.
        true if !(0..sequences).any(|i| infinite(&i)) => {
            Some(moments::of_sequences(device, batch, rewards, valid)?)
        }
        true => Some([0.0; MOMENTS]),
        false => None,
    };
    let has_pivot = matches!(params.baseline, Baseline::Median | Baseline::Second);
    out.advantage.resize(sequences, 0.0);
    out.mean.resize(groups, 0.0);
    out.std.resize(groups, 0.0);
    out.counted.resize(groups, 0);
    out.status.resize(groups, 0);
    out.pivot.resize(if has_pivot { groups } else { 0 }, 0);
    out.keep.clear();
    out.role_state.clear();
    device.run(&GroupAdvantage {
        cu_groups: batch.cu_groups(),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        baseline: params.baseline,
        scale: params.scale,
        singleton: params.singleton.unwrap_or(Singleton::Zero),
        limit: params.limit,
        least_std: params.least_std,
        weights: params.weights.map(In::new),
        lengths: lengths.as_deref().map(In::new),
        given: params.given.map(In::new),
        moments: moments.as_ref().map(|moments| In::new(&moments[..])),
        advantage: Out::new(&mut out.advantage),
        mean: Out::new(&mut out.mean),
        std: Out::new(&mut out.std),
        counted: Out::new(&mut out.counted),
        status: Out::new(&mut out.status),
        pivot: has_pivot.then(|| Out::new(&mut out.pivot)),
        residual: residual.map(Out::new),
    })?;

    for (group, bits) in out.status.iter().enumerate() {
        let span = batch.cu_groups().span(group);
        if bits & status::INFINITE != 0 {
            let index = (span.start..span.end).find(infinite);
            let got = index.map_or(f64::INFINITY, |i| rewards[i].into());
            let expected = "a finite reward, or NaN for a sequence without one";
            return Err(require::value("rewards", index, expected, got).into());
        }
        if bits & status::BAD_BASELINE != 0 {
            return Err(bad_baseline(params, span, group, |i| counted(i) && !rewards[i].is_nan()).into());
        }
        if bits & status::SINGLETON != 0 && params.singleton.is_none() && params.baseline.is_of_the_group() {
            return Err(lone(group));
        }
    }
    for (result, values) in [("advantage", &out.advantage), ("mean", &out.mean), ("std", &out.std)] {
        let hint = "the rewards of the group are too large for f32, or eps is 0 and they are too close";
        locate::finite(result, values, hint)?;
    }
    Ok(())
}

/// The error for the first bad weight or given baseline of a group.
fn bad_baseline(
    params: &GroupParams<'_>,
    span: Span,
    group: usize,
    counted: impl Fn(usize) -> bool,
) -> Argument {
    if let (true, Some(given)) = (params.baseline.needs_given(), params.given) {
        let (argument, expected, got) = ("given", "a finite number", given[group].into());
        return Argument::Value { argument, index: Some(group), expected, got };
    }
    let weights = params.weights.unwrap_or(&[]);
    let bad = |i: &usize| counted(*i) && !(weights[*i] >= 0.0 && weights[*i].is_finite());
    let index = (span.start..span.end.min(weights.len())).find(bad);
    let (expected, got) = ("a finite weight of at least 0", index.map_or(f64::NAN, |i| weights[i].into()));
    Argument::Value { argument: "weights", index, expected, got }
}

/// The error for a group of one without a `singleton` policy.
#[doc(hidden)]
pub fn lone(group: usize) -> Error {
    let expected = "a group with at least two counted sequences, or a `singleton` choice that takes one";
    Argument::Value { argument: "cu_groups", index: Some(group), expected, got: 1.0 }.into()
}

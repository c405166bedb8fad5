//! Advantages of an agent's steps (UI-S1).

use super::advantage::{GroupParams, group_advantage};
use super::combine::combine;
use super::locate;
use crate::{Batch, Device, Error};
use lockstep_core::advantage::{Baseline, Scale, Singleton, StepReturn};
use lockstep_core::op::Launch;
use lockstep_core::ragged::{In, Offsets, Out};
use lockstep_core::require;

/// The steps of trajectories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps<'a> {
    /// Trajectory s holds steps `cu_steps[s]..cu_steps[s+1]`, `[S+1]`.
    pub cu_steps: &'a [u32],
    /// Reward per step, `[K]`, computed by
    /// [`step_reward`](lockstep_core::advantage::step_return::step_reward).
    pub rewards: &'a [f32],
    /// Non-zero: the step matches the expert, `[K]`.
    pub matches: &'a [u8],
}

/// Parameters of UI-S1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepParams {
    /// Discount per step.
    pub gamma: f64,
    /// Whether the returns of earlier steps include the reward of the first mismatching step (the paper: yes;
    /// the released code: no).
    pub include_first_mismatch: bool,
    /// Whether to divide by the standard deviations (the paper: yes; the released code's default: no).
    pub norm_by_std: bool,
    /// Added to each standard deviation, outside the root.
    pub eps: f64,
    /// ω, the weight of the step advantage relative to the episode advantage.
    pub omega: f32,
}

impl Default for StepParams {
    /// The released code's: γ 0.5, the mismatching step excluded, no division by deviations, ω 1.
    fn default() -> Self {
        StepParams { gamma: 0.5, include_first_mismatch: false, norm_by_std: false, eps: 1e-6, omega: 1.0 }
    }
}

/// Advantages of steps, and their parts.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StepAdvantages {
    /// A_E + ω A_S, `[K]`.
    pub advantage: Vec<f32>,
    /// Step advantage A_S, relative to the steps of the same prompt and index, `[K]`.
    pub step: Vec<f32>,
    /// Episode advantage A_E, relative to the trajectories of the same prompt, `[S]`.
    pub episode: Vec<f32>,
    /// Returns, `[K]`.
    pub returns: Vec<f32>,
}

/// Computes discounted returns of steps, `[K]`, cut where the agent differs from the expert; formula:
/// [`lockstep_core::advantage::step_return`].
///
/// Errors: offsets or lengths that disagree; a reward that is not finite (index); a gamma outside 0..=1; a
/// return that overflows (index).
///
/// ```
/// use lockstep_ops::{Device, ops::step_return::{Steps, step_return}};
/// let steps = Steps { cu_steps: &[0, 4], rewards: &[1.0, 1.0, 0.5, 1.0], matches: &[1, 1, 0, 1] };
/// assert_eq!(step_return(&Device::cpu(), &steps, 0.5, false)?, [1.5, 1.0, 0.5, 1.0]);
/// assert_eq!(step_return(&Device::cpu(), &steps, 0.5, true)?, [1.625, 1.25, 0.5, 1.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "UI-S1")]
pub fn step_return(
    device: &Device,
    steps: &Steps<'_>,
    gamma: f64,
    include_first_mismatch: bool,
) -> Result<Vec<f32>, Error> {
    let Steps { cu_steps, rewards, matches } = *steps;
    require::length("matches", rewards.len(), "one per step reward", matches.len())?;
    let mut returns = vec![0.0; rewards.len()];
    let kernel = StepReturn {
        cu_steps: Offsets::new("cu_steps", cu_steps, rewards.len(), "steps")?,
        rewards: In::new(rewards),
        matches: In::new(matches),
        gamma,
        include_first_mismatch,
        returns: Out::new(&mut returns),
    };
    kernel.check()?;
    locate::each_finite("step rewards", rewards)?;
    device.run(&kernel)?;
    locate::finite("returns", &returns, "the discounted sum is too large for f32")?;
    Ok(returns)
}

/// Computes UI-S1's advantages of steps, A = A_E + ω A_S, `[K]`. A_S compares a step's return with those of
/// the same prompt (group of `batch`) and index, and is 0 if there is no other. A_E compares
/// `episode_rewards` `[S]` within the group, and is the reward itself in a group of one. All tokens of a step
/// have its advantage; [`spread`](super::turns::spread) assigns it to them.
///
/// Errors: those of [`step_return`]; trajectories that are not the sequences of `batch`; those of
/// [`group_advantage`].
#[doc(alias = "UI-S1")]
pub fn step_advantages(
    device: &Device,
    batch: &Batch<'_>,
    steps: &Steps<'_>,
    episode_rewards: &[f32],
    params: &StepParams,
) -> Result<StepAdvantages, Error> {
    require::length("cu_steps", batch.sequences() + 1, "one per sequence, plus one", steps.cu_steps.len())?;
    require::finite("omega", params.omega)?;
    let returns = step_return(device, steps, params.gamma, params.include_first_mismatch)?;
    let scale = match params.norm_by_std {
        true => Scale::Std { ddof: 1, eps: params.eps },
        false => Scale::None { ddof: 1 },
    };
    let of = |singleton| GroupParams::new(Baseline::Mean, scale).singleton(singleton);
    let episode = group_advantage(device, batch, episode_rewards, None, &of(Singleton::RawReward))?.advantage;

    // Steps sorted by prompt, index and trajectory: each pair of prompt and index is a group.
    let (mut order, mut cu_groups) = (Vec::with_capacity(returns.len()), vec![0]);
    for group in 0..batch.groups() {
        let members = batch.cu_groups().span(group);
        let span = |s: usize| steps.cu_steps[s] as usize..steps.cu_steps[s + 1] as usize;
        let longest = (members.start..members.end).map(|s| span(s).len()).max().unwrap_or(0);
        for t in 0..longest {
            order.extend((members.start..members.end).filter_map(|s| span(s).nth(t)));
            cu_groups.push(order.len() as u32);
        }
    }
    let mut step = vec![0.0; returns.len()];
    if !order.is_empty() {
        let one_each: Vec<u32> = (0..=order.len() as u32).collect();
        let sorted: Vec<f32> = order.iter().map(|k| returns[*k]).collect();
        let by_index = Batch::new(&one_each, &cu_groups, None)?;
        let sorted = group_advantage(device, &by_index, &sorted, None, &of(Singleton::Zero))?.advantage;
        for (k, value) in order.into_iter().zip(sorted) {
            step[k] = value;
        }
    }
    let mut components: Vec<f32> = Vec::with_capacity(2 * step.len());
    for s in 0..batch.sequences() {
        let steps = (steps.cu_steps[s + 1] - steps.cu_steps[s]) as usize;
        components.extend(std::iter::repeat_n(episode[s], steps));
    }
    components.extend(&step);
    let advantage = if step.is_empty() {
        Vec::new()
    } else {
        let one_each: Vec<u32> = (0..=step.len() as u32).collect();
        let steps = Batch::with_empty_rows(&one_each, steps.cu_steps, None)?;
        combine(device, &steps, &components, &[1.0, params.omega])?
    };
    Ok(StepAdvantages { advantage, step, episode, returns })
}

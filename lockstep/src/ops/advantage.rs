//! Group-relative advantages.

use crate::batch::check_length;
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{GroupAdvantage, Singleton, grpo::status};
use lockstep_core::ragged::{In, Mask, Out};

/// Parameters of [`group_advantage`]; formula and variants: [`lockstep_core::advantage::grpo`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupParams {
    /// Divide by the standard deviation (GRPO) or not (Dr.GRPO).
    pub norm_by_std: bool,
    /// 1 = unbiased, 0 = population.
    pub ddof: u32,
    /// Added to the standard deviation, outside the root.
    pub eps: f64,
    /// What a group with one counted member gets; `None` = it is an error.
    pub singleton: Option<Singleton>,
}

/// Advantages and the statistics behind them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advantages {
    /// Per sequence, `[S]`; 0 for excluded ones.
    pub advantage: Vec<f32>,
    /// Mean reward per group, `[G]`.
    pub mean: Vec<f32>,
    /// Standard deviation per group, `[G]`; exactly 0 where all counted rewards are equal.
    pub std: Vec<f32>,
    /// Counted members per group, `[G]`.
    pub counted: Vec<u32>,
    /// Bits per group, `[G]`: [`lockstep_core::advantage::grpo::status`].
    pub status: Vec<u32>,
}

impl Advantages {
    /// Groups that teach nothing because all their counted rewards are equal.
    pub fn constant_groups(&self) -> usize {
        self.status.iter().filter(|bits| **bits & status::CONSTANT != 0).count()
    }

    /// Groups with one counted member.
    pub fn singleton_groups(&self) -> usize {
        self.status.iter().filter(|bits| **bits & status::SINGLETON != 0).count()
    }
}

/// GRPO / Dr.GRPO advantages of `rewards` `[S]`. A NaN reward is excluded from its group, as is a sequence whose
/// entry in `valid` `[S]` is 0.
///
/// Errors: lengths that disagree; an infinite reward (index); a group of one where `singleton` is `None` (group);
/// parameters outside their domain.
///
/// ```
/// use lockstep::{Batch, Device, ops::{advantage::GroupParams, group_advantage}};
/// let batch = Batch::new(&[0, 1, 2, 3, 4, 5], &[0, 5], None)?;
/// let params = GroupParams { norm_by_std: true, ddof: 1, eps: 1e-6, singleton: None };
/// let adv = group_advantage(&Device::cpu(), &batch, &[1.0, 0.0, 0.0, 1.0, 0.0], None, &params)?;
/// assert!((adv.advantage[0] - 1.095443).abs() < 1e-6);
/// # Ok::<(), lockstep::Error>(())
/// ```
pub fn group_advantage(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    valid: Option<&[u8]>,
    params: &GroupParams,
) -> Result<Advantages, Error> {
    batch.check_sequences("rewards", rewards.len())?;
    if let Some(valid) = valid {
        check_length("valid", batch.sequences(), "one per sequence", valid.len())?;
    }
    let (sequences, groups) = (batch.sequences(), batch.groups());
    let mut out = Advantages {
        advantage: vec![0.0; sequences],
        mean: vec![0.0; groups],
        std: vec![0.0; groups],
        counted: vec![0; groups],
        status: vec![0; groups],
    };
    let kernel = GroupAdvantage {
        cu_groups: batch.cu_groups(),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        norm_by_std: params.norm_by_std,
        ddof: params.ddof,
        eps: params.eps,
        singleton: params.singleton.unwrap_or(Singleton::Zero),
        advantage: Out::new(&mut out.advantage),
        mean: Out::new(&mut out.mean),
        std: Out::new(&mut out.std),
        counted: Out::new(&mut out.counted),
        status: Out::new(&mut out.status),
    };
    kernel.check()?;
    device.run(&kernel)?;

    for (group, bits) in out.status.iter().enumerate() {
        let span = batch.cu_groups().span(group);
        if bits & status::INFINITE != 0 {
            let index = (span.start..span.end)
                .find(|i| rewards[*i].is_infinite() && valid.is_none_or(|v| v[*i] != 0));
            let got = index.map_or(f64::INFINITY, |i| rewards[i].into());
            let expected = "a finite reward, or NaN for a sequence without one";
            return Err(Argument::Value { argument: "rewards", index, expected, got }.into());
        }
        if bits & status::SINGLETON != 0 && params.singleton.is_none() {
            return Err(Argument::Value {
                argument: "cu_groups",
                index: Some(group),
                expected: "a group with at least two counted sequences, or a `singleton` policy: zero or raw_reward",
                got: 1.0,
            }
            .into());
        }
    }
    for (result, values) in [("advantage", &out.advantage), ("mean", &out.mean), ("std", &out.std)] {
        if let Some(index) = values.iter().position(|x| !x.is_finite()) {
            let hint = "the rewards of the group are too large for f32, or eps is 0 and they are too close";
            return Err(Argument::NotFinite { result, index, hint }.into());
        }
    }
    Ok(out)
}

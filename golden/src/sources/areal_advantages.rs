//! AReaL's normalisation of rewards and advantages, and its GAE.
//!
//! **Normalisation.** The deviation is around 0, of what the mean left: that of the same values, by one op,
//! or the batch's after the means of groups, by two.

use super::over_tokens::{Tokens, penalised};
use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::Plan;
use lockstep::core::advantage::{Baseline, Divisor, Scale, Singleton};
use lockstep::core::kl::{Estimator, Kl};
use lockstep::ops::advantage::GroupParams;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use lockstep::ops::whiten::{Weighting, WhitenParams, whiten};
use lockstep::ops::{self, group_advantage};
use lockstep::{Advantage, Batch, Device};
use serde_json::Value;

/// What `read` makes of a table of settings, of which it must take every key.
pub(super) fn nested<'a, T>(
    value: &'a Value,
    read: impl Fn(&mut Config<'a>) -> Result<T, String>,
) -> Result<T, String> {
    let mut config = Config::new(value.as_object().ok_or_else(|| format!("config {value} is no table"))?);
    let out = read(&mut config)?;
    config.finish().map(|()| out)
}

/// Of what a mean or a deviation is.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Batch,
    Group,
}

/// A `NormConfig`.
struct Norm {
    mean: Option<Over>,
    leave_one_out: bool,
    std: Option<Over>,
    ddof: u32,
    eps: f64,
    size: f64,
}

const NORM_MISSING: &str = "a deviation around another number than the mean of the same values";

impl Norm {
    fn read(config: &mut Config<'_>) -> Result<Self, String> {
        let mut over = |key: &str| match config.text(key)? {
            None => Ok(None),
            Some("batch") => Ok(Some(Over::Batch)),
            Some("group") => Ok(Some(Over::Group)),
            Some(other) => Err(format!("config `{key}` is {other:?}")),
        };
        let (mean, std) = (over("mean_level")?, over("std_level")?);
        let leave_one_out = config.boolean("mean_leave1out")?.unwrap_or(false);
        let ddof = config.boolean("std_unbiased")?.unwrap_or(true).into();
        let eps = config.number("eps")?.unwrap_or(1e-5);
        let size = config.number("group_size")?.unwrap_or(1.0);
        Ok(Norm { mean, leave_one_out, std, ddof, eps, size })
    }

    /// Around the means of the others a deviation is n/(n − 1) times that around the mean, and so is what it
    /// divides: only eps tells them apart.
    fn eps_of(&self, n: f64) -> f64 {
        if self.leave_one_out && n > 1.0 { self.eps * (n - 1.0) / n } else { self.eps }
    }

    fn whiten(&self, divisor: Divisor, eps: f64) -> WhitenParams {
        WhitenParams { weighting: Weighting::Tokens, centre: true, divisor, ddof: self.ddof, eps }
    }

    /// Whether the deviation is the batch's after the means of groups; none if it is neither that nor of the
    /// same values.
    fn apart(&self) -> Option<bool> {
        match (self.mean, self.std) {
            (_, None) => Some(false),
            (Some(Over::Group), Some(Over::Batch)) => Some(true),
            (mean, std) => (mean == std).then_some(false),
        }
    }

    /// Rewards of sequences; none if that is missing.
    fn rewards(&self, device: &Device, groups: &[u32], rewards: &[f32]) -> Result<Option<Vec<f32>>, String> {
        let Some(apart) = self.apart() else { return Ok(None) };
        let whole = [0, rewards.len() as u32];
        let (groups, n) = match self.mean {
            None => return Ok(Some(rewards.to_vec())),
            Some(Over::Batch) => (&whole[..], rewards.len() as f64),
            Some(Over::Group) => (groups, self.size),
        };
        // Rewards of groups of one stay as they are: a deviation around 0.
        if self.leave_one_out && n < 2.0 && (apart || (self.std.is_some() && self.ddof == 0)) {
            return Ok(None);
        }
        let offsets: Vec<u32> = (0..=whole[1]).collect();
        let batch = Batch::new(&offsets, groups, None).map_err(text)?;
        let by_std = self.std.is_some() && !apart;
        let (ddof, eps) = (self.ddof, self.eps_of(n));
        let scale = if by_std { Scale::Std { ddof, eps } } else { Scale::None { ddof } };
        let others = self.leave_one_out && !by_std;
        let baseline = if others { Baseline::LeaveOneOut } else { Baseline::Mean };
        let singleton = if self.leave_one_out { Singleton::RawReward } else { Singleton::Zero };
        let params = GroupParams::new(baseline, scale).singleton(singleton);
        let centred = group_advantage(device, &batch, rewards, None, &params).map_err(text)?.advantage;
        if !apart {
            return Ok(Some(centred));
        }
        let own = self.whiten(Divisor::Outside, self.eps);
        let params = WhitenParams { weighting: Weighting::Sequences, ..own };
        whiten(device, &batch, Advantage::PerSequence(&centred), &params).map(Some).map_err(text)
    }

    /// Values of tokens, each part by a call of its own, and the largest magnitude before the mean was taken
    /// from them, divided like them; none if that is missing.
    fn tokens(
        &self,
        device: &Device,
        inputs: &Inputs<'_>,
        values: &[f32],
    ) -> Result<Option<(Vec<f32>, f64)>, String> {
        let (offsets, groups) = (inputs.whole::<usize>("cu_seqlens")?, inputs.whole::<usize>("cu_groups")?);
        let mask: Vec<u8> = inputs.whole("loss_mask")?;
        let Some(apart) = self.apart() else { return Ok(None) };
        let by_std = self.std.is_some() && !apart;
        let parts = match self.mean {
            None => return Ok(Some((values.to_vec(), 0.0))),
            Some(_) if self.leave_one_out && !by_std => return Ok(None),
            Some(Over::Batch) => vec![0, mask.len()],
            Some(Over::Group) => groups.into_iter().map(|group| offsets[group]).collect(),
        };
        let run = |values: &[f32], mask: &[u8], params: &WhitenParams| {
            let offsets = [0, mask.len() as u32];
            let batch = Batch::new(&offsets, &[0, 1], Some(mask)).map_err(text)?;
            whiten(device, &batch, Advantage::PerToken(values), params).map_err(text)
        };
        let (mut out, mut terms) = (Vec::new(), 0.0);
        for part in parts.windows(2) {
            let (own, mask) = (&values[part[0]..part[1]], &mask[part[0]..part[1]]);
            let live = mask.iter().filter(|live| **live != 0).count();
            // Of one sequence or token the mean of the others is 0, and the unbiased deviation 1.
            let alone = live < 2 || (self.mean == Some(Over::Group) && self.size < 2.0);
            let of_one = alone && by_std && self.ddof == 1;
            if alone && by_std && !of_one && self.leave_one_out && live > 0 {
                return Ok(None);
            }
            let unit = if of_one { 1.0 / (1.0 + self.eps) } else { 1.0 };
            let params = match by_std && !of_one {
                true => self.whiten(Divisor::Outside, self.eps_of(live as f64)),
                false => self.whiten(Divisor::One, 0.0),
            };
            terms = largest(&run(own, mask, &WhitenParams { centre: false, ..params })?).max(terms);
            let raw = alone && self.leave_one_out;
            let own = if raw { own.to_vec() } else { run(own, mask, &params)? };
            out.extend(own.into_iter().map(|x| (f64::from(x) * unit) as f32));
        }
        if !apart {
            return Ok(Some((out, terms)));
        }
        let divided = run(&out, &mask, &self.whiten(Divisor::Outside, self.eps))?;
        let scale = largest(&divided) / largest(&out).max(f64::MIN_POSITIVE);
        Ok(Some((divided, terms * scale)))
    }
}

fn largest(values: &[f32]) -> f64 {
    values.iter().fold(0.0, |most, x| most.max(f64::from(x.abs())))
}

pub(super) fn normalized_rewards(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let norm = Norm::read(config)?;
    let rewards = norm.rewards(device, &inputs.whole::<u32>("cu_groups")?, &inputs.floats("rewards")?)?;
    let Some(rewards) = rewards else { return Ok(Plan::Missing(NORM_MISSING)) };
    Ok(Plan::Numbers("ops::group_advantage", vec![("normalized", Got::All(widen(&rewards)))]))
}

pub(super) fn normalized_tokens(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let values = Norm::read(config)?.tokens(device, inputs, &inputs.floats("token_advantages")?)?;
    let Some((values, _)) = values else { return Ok(Plan::Missing(NORM_MISSING)) };
    Ok(Plan::Numbers("ops::whiten", vec![("normalized", Got::Live(widen(&values)))]))
}

pub(super) fn advantage_gae(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let number = |value: Option<f64>, default: f64| value.unwrap_or(default);
    let size = number(config.number("group_size")?, 1.0);
    let mut norm = |key: &str| {
        let norm = config.take(key).map(|value| nested(value, Norm::read)).transpose()?;
        Ok::<_, String>(norm.map(|norm| Norm { size, ..norm }))
    };
    let (reward_norm, adv_norm) = (norm("reward_norm")?, norm("adv_norm")?);
    let [bias, scaling] = [("reward_bias", 0.0), ("reward_scaling", 1.0)]
        .map(|(key, default)| config.number(key).map(|value| number(value, default)));
    let (bias, scaling, clip) = (bias?, scaling?, number(config.number("reward_clip")?, 20.0));

    // (R + bias)·scaling within ±clip: R less a baseline, limited, times a constant.
    let groups: Vec<u32> = inputs.whole("cu_groups")?;
    let tokens = Tokens::read(inputs)?;
    let live = tokens.batch()?;
    let given = vec![-bias as f32; groups.len() - 1];
    let params = GroupParams {
        limit: clip / scaling.abs(),
        given: Some(&given),
        ..GroupParams::new(Baseline::Given, Scale::None { ddof: 1 })
    };
    let rewards = group_advantage(device, &live, &inputs.floats("rewards")?, None, &params).map_err(text)?;
    let mut rewards: Vec<f32> = rewards.advantage.iter().map(|x| (f64::from(*x) * scaling) as f32).collect();
    if let Some(norm) = reward_norm {
        let Some(own) = norm.rewards(device, &groups, &rewards)? else {
            return Ok(Plan::Missing(NORM_MISSING));
        };
        rewards = own;
    }
    let truncated: Vec<u8> = inputs.whole("no_eos")?;
    if config.boolean("mask_no_eos_with_zero")? == Some(true) {
        rewards.iter_mut().zip(&truncated).filter(|(_, cut)| **cut != 0).for_each(|(own, _)| *own = 0.0);
    }

    let estimator = match config.text("kl_estimator")? {
        Some("k1") | None => Estimator::K1,
        Some("k2") => Estimator::K2,
        Some("k3") => Estimator::K3,
        Some(other) => return Err(format!("config `kl_estimator` is {other:?}")),
    };
    let kl = Kl { clamp_out: Kl::K3_OUT, ..Kl::new(estimator) };
    let coef = number(config.number("kl_ctl")?, 0.0);
    let rewards = penalised(device, &live, inputs, tokens.on_last(&rewards), (kl, coef))?;
    config.ignore(&["use_values"]);
    let values = inputs.optional("values", Inputs::floats)?.unwrap_or_else(|| vec![0.0; rewards.len()]);
    let bootstrap = inputs.optional("bootstrap_value", Inputs::floats)?;
    let bootstrap = bootstrap.unwrap_or_else(|| vec![0.0; truncated.len()]);
    let terminated: Vec<u8> = truncated.iter().map(|cut| u8::from(*cut == 0)).collect();
    let ends = Ends::Flags { terminated: &terminated, truncated: &truncated, bootstrap: &bootstrap };
    let gamma = number(config.number("discount")?, 1.0);
    let lambda = Lambda::Fixed(number(config.number("gae_lambda")?, 1.0));
    let input = GaeInput { rewards: &rewards, values: &values, ends };
    let mut out = GaeOutput::default();
    ops::gae(device, &live, &input, &GaeParams { gamma, lambda, lambda_critic: None }, &mut out)
        .map_err(text)?;
    let (mut advantages, returns) = (out.advantage, out.returns);
    // Raw advantages are of binary32: what the mean leaves of them has the digits of what they were. Returns
    // are sums of advantages and values.
    let mut terms = 0.0;
    if let Some(norm) = adv_norm {
        let Some(own) = norm.tokens(device, inputs, &advantages)? else {
            return Ok(Plan::Missing(NORM_MISSING));
        };
        (advantages, terms) = own;
    }
    let live = |values: &[f32]| Box::new(Got::Live(widen(values)));
    let got = vec![
        ("advantages", Got::Cancelling(live(&advantages), terms)),
        ("returns", Got::Cancelling(live(&returns), largest(&values))),
        ("tot_rewards", *live(&rewards)),
    ];
    Ok(Plan::Numbers("ops::gae", got))
}

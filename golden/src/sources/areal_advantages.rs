//! AReaL's normalisation of rewards and advantages, and its GAE.
//!
//! **Normalisation.** Two calls of one op: subtract a mean from the values, then divide by the root of their
//! mean square.

use super::over_tokens::{Tokens, penalised};
use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::Plan;
use crate::terms::{largest, largest_scaled};
use lockstep::core::advantage::{Baseline, Scale, Singleton};
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::ops::advantage::GroupParams;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use lockstep::ops::{self, group_advantage};
use lockstep::{Batch, Device};
use serde_json::Value;

/// Applies `read` to a table of settings; it must consume every key.
pub(super) fn nested<'a, T>(
    value: &'a Value,
    read: impl Fn(&mut Config<'a>) -> Result<T, String>,
) -> Result<T, String> {
    let mut config = Config::new(value.as_object().ok_or_else(|| format!("config {value} is no table"))?);
    let out = read(&mut config)?;
    config.finish().map(|()| out)
}

/// What a mean or a deviation is taken over.
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

    /// Subtracts a mean from the values that `mask` keeps and divides by the root of their mean square, in
    /// groups of values. Also returns the largest magnitude before the mean was subtracted, divided likewise.
    fn apply(
        &self,
        device: &Device,
        values: &[f32],
        mask: Option<&[u8]>,
        groups: &[u32],
    ) -> Result<(Vec<f32>, f64), String> {
        let rows: Vec<u32> = (0..=values.len() as u32).collect();
        let whole = [0, values.len() as u32];
        let run = |level, values: &[f32], params: GroupParams<'_>| {
            let groups = if level == Over::Batch { &whole[..] } else { groups };
            let batch = Batch::with_empty_rows(&rows, groups, None).map_err(text)?;
            let params = GroupParams { given: Some(&vec![0.0; groups.len() - 1]), ..params };
            Ok::<_, String>(group_advantage(device, &batch, values, mask, &params).map_err(text)?.advantage)
        };
        // For a single sequence the mean of the others is 0 and the unbiased deviation 1.
        let alone = |level| level == Over::Group && self.size < 2.0;
        let centred = match self.mean {
            Some(level) if !(self.leave_one_out && alone(level)) => {
                let (baseline, of_one) = match self.leave_one_out {
                    true => (Baseline::LeaveOneOut, Singleton::RawReward),
                    false => (Baseline::Mean, Singleton::Zero),
                };
                run(level, values, GroupParams::new(baseline, Scale::None { ddof: 1 }).singleton(of_one))?
            }
            _ => values.to_vec(),
        };
        let (ddof, eps) = (self.ddof, self.eps);
        let scaled = match self.std {
            None => centred.clone(),
            Some(level) if alone(level) && ddof == 1 => {
                centred.iter().map(|x| (f64::from(*x) / (1.0 + eps)) as f32).collect()
            }
            Some(level) => {
                run(level, &centred, GroupParams::new(Baseline::Given, Scale::RootMeanSquare { ddof, eps }))?
            }
        };
        let terms = largest_scaled(values, &centred, &scaled);
        Ok((scaled, terms))
    }

    /// The same for tokens.
    fn tokens(
        &self,
        device: &Device,
        inputs: &Inputs<'_>,
        values: &[f32],
    ) -> Result<(Vec<f32>, f64), String> {
        let offsets = inputs.whole::<u32>("cu_seqlens")?;
        let groups = inputs.whole::<usize>("cu_groups")?.into_iter().map(|group| offsets[group]);
        let mask: Vec<u8> = inputs.whole("loss_mask")?;
        self.apply(device, values, Some(&mask), &groups.collect::<Vec<_>>())
    }
}

pub(super) fn normalized_rewards(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let groups: Vec<u32> = inputs.whole("cu_groups")?;
    let (rewards, _) = Norm::read(config)?.apply(device, &inputs.floats("rewards")?, None, &groups)?;
    Ok(Plan::Numbers("ops::group_advantage", vec![("normalized", Got::All(widen(&rewards)))], None))
}

pub(super) fn normalized_tokens(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let (values, _) = Norm::read(config)?.tokens(device, inputs, &inputs.floats("token_advantages")?)?;
    Ok(Plan::Numbers("ops::group_advantage", vec![("normalized", Got::Live(widen(&values)))], None))
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

    // (R + bias)·scaling within ±clip: R minus a baseline, limited, times a constant.
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
        (rewards, _) = norm.apply(device, &rewards, None, &groups)?;
    }
    let truncated: Vec<u8> = inputs.whole("no_eos")?;
    if config.boolean("mask_no_eos_with_zero")? == Some(true) {
        rewards.iter_mut().zip(&truncated).filter(|(_, cut)| **cut != 0).for_each(|(own, _)| *own = 0.0);
    }

    let estimator = match config.text("kl_estimator")? {
        Some("k1") | None => KlFormula::K1,
        Some("k2") => KlFormula::K2,
        Some("k3") => KlFormula::K3,
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
    // Raw advantages are binary32, so what remains after subtracting the mean has only the digits of the
    // originals. Returns are sums of advantages and values.
    let mut terms = 0.0;
    if let Some(norm) = adv_norm {
        (advantages, terms) = norm.tokens(device, inputs, &advantages)?;
    }
    let live = |values: &[f32]| Box::new(Got::Live(widen(values)));
    let got = vec![
        ("advantages", Got::Cancelling(live(&advantages), terms)),
        ("returns", Got::Cancelling(live(&returns), largest(&values))),
        ("tot_rewards", *live(&rewards)),
    ];
    Ok(Plan::Numbers("ops::gae", got, None))
}

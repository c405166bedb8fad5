//! UI-S1's step returns and advantages, one row per step.
//!
//! The released code counts every step row in an episode's statistics, each with its own episode reward. The
//! preset `ui_s1` counts every trajectory once, so here the advantages are computed with the two group ops
//! and summed.

use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::{Plan, Request};
use lockstep::core::advantage::{Baseline, Scale, Singleton};
use lockstep::ops::advantage::{GroupParams, group_advantage};
use lockstep::ops::combine;
use lockstep::ops::step_return::{Steps, step_return};
use lockstep::ops::turns::spread;
use lockstep::{Batch, Device};

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["advantage_uis1", "step_discounted_returns"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    match op {
        "advantage_uis1" => advantages(config, inputs, device),
        _ => returns(config, inputs, device),
    }
}

/// Groups rows with equal keys, in key order; returns the order and where each key begins.
fn together<K: Ord>(keys: &[K]) -> (Vec<usize>, Vec<u32>) {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|row| &keys[*row]);
    let begins = |k: &usize| *k == 0 || keys[order[*k]] != keys[order[*k - 1]];
    let mut offsets: Vec<u32> = (0..order.len()).filter(begins).map(|k| k as u32).collect();
    offsets.push(order.len() as u32);
    (order, offsets)
}

/// Returns `values` of ordered rows in the file's order.
fn back(order: &[usize], values: &[f32]) -> Vec<f32> {
    let mut rows = vec![0.0; order.len()];
    order.iter().zip(values).for_each(|(row, value)| rows[*row] = *value);
    rows
}

fn advantages(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let eps = config.number("epsilon")?.unwrap_or(1e-6);
    let scale = match config.text("mode")?.unwrap_or("mean_std_norm") {
        "mean_std_norm" => Scale::Std { ddof: 1, eps },
        "mean_norm" => Scale::None { ddof: 1 },
        mode => return Err(format!("config `mode` is {mode:?}")),
    };
    let weights = [config.number("episode_advantage_w")?, config.number("step_advantage_w")?];
    let weights = weights.map(|weight| weight.unwrap_or(1.0) as f32);
    // Since every row counts, it does not matter which trajectory a row belongs to.
    inputs.ignore(&["trajectory"]);
    let (prompts, steps): (Vec<u64>, Vec<u64>) = (inputs.whole("prompt")?, inputs.whole("step")?);
    let of_step: Vec<_> = prompts.iter().copied().zip(steps).collect();

    let rows: Vec<u32> = (0..=prompts.len() as u32).collect();
    let normalised = |name: &str, (order, groups): (Vec<usize>, Vec<u32>), lone| {
        let values = inputs.floats(name)?;
        let sorted: Vec<f32> = order.iter().map(|row| values[*row]).collect();
        let batch = Batch::new(&rows, &groups, None).map_err(text)?;
        let params = GroupParams::new(Baseline::Mean, scale).singleton(lone);
        let out = group_advantage(device, &batch, &sorted, None, &params).map_err(text)?;
        Ok::<_, String>(back(&order, &out.advantage))
    };
    let mut both = normalised("episode_rewards", together(&prompts), Singleton::RawReward)?;
    both.extend(normalised("step_returns", together(&of_step), Singleton::Zero)?);
    let each = Batch::new(&rows, &rows, None).map_err(text)?;
    let advantage = combine(device, &each, &both, &weights).map_err(text)?;

    let cu_seqlens: Vec<u32> = inputs.whole("cu_seqlens")?;
    let mask = inputs.optional("loss_mask", Inputs::whole::<u8>)?;
    let batch = Batch::with_empty_rows(&cu_seqlens, &rows, mask.as_deref()).map_err(text)?;
    let tokens = spread(&batch, &cu_seqlens, &advantage).map_err(text)?;
    Ok(Plan::Numbers("ops::group_advantage", vec![("advantages", Got::Live(widen(&tokens)))], None))
}

fn returns(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let gamma = config.required("gamma")?;
    // A trajectory's rows are in time order.
    inputs.ignore(&["prompt", "step"]);
    let names = inputs.value("trajectory")?.as_array().ok_or("`trajectory` is not a list")?;
    let names: Vec<&str> = names.iter().map(|name| name.as_str().unwrap_or_default()).collect();
    let (order, cu_steps) = together(&names);
    let (rewards, matches): (_, Vec<u8>) = (inputs.floats("rewards")?, inputs.whole("extract_match")?);
    let rewards: Vec<f32> = order.iter().map(|row| rewards[*row]).collect();
    let matches: Vec<u8> = order.iter().map(|row| matches[*row]).collect();
    let steps = Steps { cu_steps: &cu_steps, rewards: &rewards, matches: &matches };
    let returns = step_return(device, &steps, gamma, false).map_err(text)?;
    let returns = Got::All(widen(&back(&order, &returns)));
    Ok(Plan::Numbers("ops::step_advantages", vec![("returns", returns)], None))
}

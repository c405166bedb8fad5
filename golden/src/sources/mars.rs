//! MARSHAL (MARS): token returns, normalised among a player's distinct values, and turn rewards, normalised
//! among a player's turns.

use super::over_tokens::{EQUAL, equal, gae};
use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::{Exception, text};
use crate::settings::Config;
use crate::sources::{Plan, Request};
use crate::terms::{largest, largest_scaled};
use lockstep::ops::turns::{NormSet, RoleNorm};
use lockstep::ops::whiten::WhitenParams;
use lockstep::ops::{self, normalize_roles, whiten};
use lockstep::{Advantage, Batch, Device};

/// The eps that the code adds to a deviation.
const EPS: f64 = 1e-6;

/// The bounds of `asym_clip`.
const ASYMMETRIC: [f32; 2] = [-1.0, 3.0];

/// A difference that comes from the code.
const PADDING: Exception =
    Exception::Differs("the code's GAE reads the critic's values behind a response, which the file lacks");

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["advantage_mars", "turn_reward_normalize_by_player"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    if op == "advantage_mars" { advantages(config, inputs, device) } else { turns(config, inputs, device) }
}

/// The player of each token.
fn players(inputs: &Inputs<'_>) -> Result<Vec<u32>, String> {
    let of: Vec<u32> = inputs.whole("player")?;
    let spans = inputs.shape()?.spans;
    Ok(spans.into_iter().zip(of).flat_map(|(span, player)| vec![player; span.len()]).collect())
}

/// Those of `values` that `at` picks, each normalised among its player's; 0 elsewhere.
fn normalized(
    device: &Device,
    (values, players): (&[f32], &[u32]),
    at: &[bool],
    (by_std, set): (bool, impl Fn(u32) -> NormSet),
) -> Result<Vec<f32>, String> {
    let (mut each, mut out) = (players.to_vec(), vec![0.0; values.len()]);
    each.sort_unstable();
    each.dedup();
    for player in each {
        let own: Vec<usize> = (0..values.len()).filter(|i| at[*i] && players[*i] == player).collect();
        let norm = RoleNorm { set: set(player), by_std, eps: EPS };
        let picked: Vec<f32> = own.iter().map(|i| values[*i]).collect();
        let ours = normalize_roles(device, &picked, &vec![player; own.len()], &norm).map_err(text)?;
        own.iter().zip(ours).for_each(|(i, x)| out[*i] = x);
    }
    Ok(out)
}

fn advantages(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let name = config.required_text("adv_estimator")?;
    let gamma = config.number("gamma")?.unwrap_or(1.0);
    let lambda = config.number("lambd")?.unwrap_or(1.0);
    let horizon = config.required("horizon")? as usize;
    let (offsets, mask): (Vec<u32>, Vec<u8>) = (inputs.whole("cu_seqlens")?, inputs.whole("loss_mask")?);
    let groups: Vec<u32> = vec![0, offsets.len() as u32 - 1];
    // Time passes through masked tokens, which have no reward.
    let all = Batch::new(&offsets, &groups, None).map_err(text)?;
    let live = Batch::new(&offsets, &groups, Some(&mask)).map_err(text)?;
    let rewards = inputs.floats("token_rewards")?;
    let rewards: Vec<f32> = rewards.iter().zip(&mask).map(|(r, m)| if *m != 0 { *r } else { 0.0 }).collect();
    let (spans, of): (_, Vec<u32>) = (inputs.shape()?.spans, inputs.whole("player")?);
    let padded = |player: Option<u32>| {
        let mut rows = spans.iter().zip(&of).filter(|(_, own)| player.is_none_or(|player| **own == player));
        rows.any(|(span, _)| span.len() < horizon)
    };
    let with_values = name == "gae";
    let (ours, raw) = if with_values {
        let [raw, _] = gae(device, &all, [&rewards, &inputs.floats("values")?], [gamma, lambda])?;
        ("ops::gae", raw)
    } else {
        let returns = ops::discounted_return(device, &all, &rewards, gamma).map_err(text)?;
        ("ops::normalize_roles", returns)
    };
    let (mut own, mut terms) = (raw.clone(), 0.0);
    if let Some(norm) = config.text("advantage_norm")? {
        // Masked tokens also count as values, and so does the 0 of padding.
        let set = |player| match padded(Some(player)) {
            true => NormSet::UniqueValuesAndZero,
            false => NormSet::UniqueValues,
        };
        let (players, everywhere) = (players(inputs)?, vec![true; own.len()]);
        let normalized = |by_std| normalized(device, (&raw, &players), &everywhere, (by_std, set));
        own = normalized(norm == "mean_std")?;
        // The mean is taken from returns that are binary32.
        terms = largest_scaled(&raw, &normalized(false)?, &own);
    }
    let mut exception = (with_values && padded(None)).then_some(PADDING);
    if config.boolean("whiten_advantages")? == Some(true) {
        exception = exception.or(equal(&own, &mask).then_some(EQUAL));
        own = whiten(device, &live, Advantage::PerToken(&own), &WhitenParams::VERL).map_err(text)?;
    }
    // The rounding to binary32 has the size of the values before the clip.
    let terms = largest(&own).max(terms);
    if let Some(limit) = config.number("advantage_clip")? {
        ops::limit(&mut own, [-limit as f32, limit as f32]).map_err(text)?;
    }
    let [own, raw] = [own, raw].map(|values| Got::Live(widen(&values)));
    let got = vec![("advantages", Got::Cancelling(Box::new(own), terms)), ("raw_advantages", raw)];
    Ok(Plan::Numbers(ours, got, exception))
}

/// Statistics are over the ends of turns; other tokens have no reward.
fn turns(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    inputs.ignore(&["cu_seqlens", "loss_mask"]);
    // All files keep the players apart.
    config.ignore(&["separate_norm_for_selfplay"]);
    let method = config.required_text("method")?;
    let by_std = match method {
        "mean" => false,
        "mean_std" | "asym_clip" => true,
        _ => return Err(format!("config `method` is {method:?}")),
    };
    let ends: Vec<bool> = inputs.numbers("turn_end")?.into_iter().map(|end| end != 0.0).collect();
    let (rewards, players) = (inputs.floats("token_rewards")?, players(inputs)?);
    let mut own = normalized(device, (&rewards, &players), &ends, (by_std, |_| NormSet::Samples))?;
    if method == "asym_clip" {
        ops::limit(&mut own, ASYMMETRIC).map_err(text)?;
    }
    // The code's mean divides by n + 1e-8, so equal rewards leave a small residue.
    let got = Got::Cancelling(Box::new(Got::All(widen(&own))), largest(&rewards));
    Ok(Plan::Numbers("ops::normalize_roles", vec![("token_rewards", got)], None))
}

//! MARSHAL (MARS): returns of tokens, normalised among a player's distinct values; rewards of turns, normalised among a player's.

use super::over_tokens::gae;
use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::Plan;
use lockstep::ops::turns::{NormSet, RoleNorm};
use lockstep::ops::whiten::WhitenParams;
use lockstep::ops::{self, normalize_roles, whiten};
use lockstep::{Advantage, Batch, Device};

/// The code's addition to a deviation.
const EPS: f64 = 1e-6;

/// The bounds of `asym_clip`.
const ASYMMETRIC: [f32; 2] = [-1.0, 3.0];

/// The ops of the table.
pub(crate) fn ops() -> Vec<&'static str> {
    vec!["advantage_mars", "turn_reward_normalize_by_player"]
}

/// What the table says of a case.
pub(crate) fn read(
    op: &str,
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    if op == "advantage_mars" { advantages(config, inputs, device) } else { turns(config, inputs, device) }
}

/// The player of each token.
fn players(inputs: &Inputs<'_>) -> Result<Vec<u32>, String> {
    let of: Vec<u32> = inputs.whole("player")?;
    let spans = inputs.shape()?.spans;
    Ok(spans.into_iter().zip(of).flat_map(|(span, player)| vec![player; span.len()]).collect())
}

/// Normalised among the values of each player at the tokens that `at` picks; padding and masked tokens are zeros of the code's table.
fn normalized(
    device: &Device,
    (values, players): (&mut [f32], &[u32]),
    at: &[bool],
    (by_std, zeros): (bool, Option<&dyn Fn(u32) -> bool>),
) -> Result<(), String> {
    let mut each = players.to_vec();
    each.sort_unstable();
    each.dedup();
    for player in each {
        let own: Vec<usize> = (0..values.len()).filter(|i| at[*i] && players[*i] == player).collect();
        let set = match zeros {
            Some(zeros) => NormSet::UniqueValues { with_zero: zeros(player) },
            None => NormSet::Samples,
        };
        let norm = RoleNorm { set, by_std, eps: EPS };
        let picked: Vec<f32> = own.iter().map(|i| values[*i]).collect();
        let out = normalize_roles(device, &picked, &vec![player; own.len()], &norm).map_err(text)?;
        own.iter().zip(out).for_each(|(i, x)| values[*i] = x);
    }
    Ok(())
}

fn advantages(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let name = config.text("adv_estimator")?.ok_or("config `adv_estimator` is missing")?;
    let gamma = config.number("gamma")?.unwrap_or(1.0);
    let lambda = config.number("lambd")?.unwrap_or(1.0);
    let horizon = config.number("horizon")?.ok_or("config `horizon` is missing")? as usize;
    let (offsets, mask): (Vec<u32>, Vec<u8>) = (inputs.whole("cu_seqlens")?, inputs.whole("loss_mask")?);
    let groups: Vec<u32> = vec![0, offsets.len() as u32 - 1];
    // Time runs through masked tokens.
    let all = Batch::new(&offsets, &groups, None).map_err(text)?;
    let live = Batch::new(&offsets, &groups, Some(&mask)).map_err(text)?;
    let rewards = inputs.floats("token_rewards")?;
    let (ours, raw) = match name {
        "gae" => (
            "ops::gae",
            gae(device, &all, [&rewards, &inputs.floats("values")?], [gamma, lambda])?[0].clone(),
        ),
        _ => ("ops::normalize_roles", ops::discounted_return(device, &all, &rewards, gamma).map_err(text)?),
    };
    let (players, at) = (players(inputs)?, inputs.shape()?.live);
    let mut own = raw.clone();
    if let Some(norm) = config.text("advantage_norm")? {
        let of: Vec<u32> = inputs.whole("player")?;
        let holes = |player: u32| {
            let live = (0..at.len()).filter(|i| at[*i] && players[*i] == player).count();
            live < horizon * of.iter().filter(|own| **own == player).count()
        };
        normalized(device, (&mut own, &players), &at, (norm == "mean_std", Some(&holes)))?;
    }
    if config.boolean("whiten_advantages")? == Some(true) {
        own = whiten(device, &live, Advantage::PerToken(&own), &WhitenParams::VERL).map_err(text)?;
    }
    if let Some(limit) = config.number("advantage_clip")? {
        ops::limit(&mut own, [-limit as f32, limit as f32]).map_err(text)?;
    }
    let got = [("advantages", own), ("raw_advantages", raw)];
    Ok(Plan::Numbers(ours, got.map(|(name, values)| (name, Got::Live(widen(&values)))).into()))
}

/// Statistics are of the turns' ends.
fn turns(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    // Players are apart in all files.
    config.ignore(&["separate_norm_for_selfplay"]);
    let method = config.text("method")?.ok_or("config `method` is missing")?;
    let ends: Vec<bool> = inputs.numbers("turn_end")?.into_iter().map(|end| end != 0.0).collect();
    let mut rewards = inputs.floats("token_rewards")?;
    normalized(device, (&mut rewards, &players(inputs)?), &ends, (method != "mean", None))?;
    if method == "asym_clip" {
        ops::limit(&mut rewards, ASYMMETRIC).map_err(text)?;
    }
    Ok(Plan::Numbers("ops::normalize_roles", vec![("token_rewards", Got::All(widen(&rewards)))]))
}

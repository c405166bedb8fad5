//! SPIRAL's role-conditioned advantages of games.
//!
//! A batch is one game, its two players in order; the moving averages pass to the next game as the state.

use crate::outcome::text;
use crate::settings::Overlay;
use crate::sources::{Plan, Request};
use crate::{numbers::Got, outcome::LARGEST};
use lockstep::ops::turns::{Turns, turn_return};
use lockstep::{Batch, Rollouts};
use serde_json::{Value, json};

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["advantage_rae"];

/// Translates a case into a plan.
pub(crate) fn read(Request { config, inputs, device, .. }: Request<'_, '_>) -> Result<Plan, String> {
    let mut recipe = Overlay::new("spiral");
    recipe.copy(config, &[("role_baseline_ema_gamma", "advantage.decay")])?;
    let filters = config.boolean("filter_zero_adv")?.unwrap_or(true);
    if !filters {
        recipe.word("reward.filter", "none");
    }
    // Without intermediate rewards every turn gets the outcome's reward.
    let discounted = config.boolean("use_intermediate_rewards")?.unwrap_or(true);
    let gamma = config.number("gamma")?.filter(|_| discounted).unwrap_or(1.0);
    if gamma == 0.0 && filters {
        return Ok(Plan::Missing("a filter that drops the turns whose discounted advantage is 0"));
    }
    let scaling = config.number("reward_scaling")?.unwrap_or(1.0);
    let first = config.number("baseline_initial")?.unwrap_or(0.0);
    let (recipe, mut state) = (recipe.recipe()?, vec![first; 2]);

    let games = inputs.value("games")?.as_array().ok_or("`games` is not a list")?;
    let mut out = Vec::new();
    for game in games {
        let rewards = numbers(game, "rewards")?;
        let rewards: Vec<f32> = rewards.iter().map(|reward| (reward * scaling) as f32).collect();
        let turns = game["tokens_per_turn"].as_array().ok_or("`tokens_per_turn` is not a list")?;
        let (mut cu_turns, mut cu_seqlens, mut players) = (vec![0], vec![0], Vec::new());
        for (player, turns) in turns.iter().enumerate() {
            for tokens in turns.as_array().ok_or("`tokens_per_turn` has no lists")? {
                let tokens =
                    tokens.as_u64().filter(|n| *n < LARGEST as u64).ok_or("a turn without length")?;
                cu_turns.push(cu_turns[players.len()] + tokens as u32);
                players.push(player);
            }
            cu_seqlens.push(cu_turns[players.len()]);
        }
        let roles: Vec<u32> = (0..turns.len() as u32).collect();
        let groups = [0, turns.len() as u32];
        let rollouts = Rollouts {
            rewards: Some(&rewards),
            roles: Some(&roles),
            role_values: Some(&state),
            ..Rollouts::new(&cu_seqlens, &groups)
        };
        let credit = recipe.advantages(device, &rollouts).map_err(text)?;
        // A player's gain, placed on the last of the player's turns.
        let last = |k: usize| players.get(k + 1) != Some(&players[k]);
        let gained = |k: usize| if last(k) { credit.advantage[players[k]] } else { 0.0 };
        let at_end: Vec<f32> = (0..players.len()).map(gained).collect();
        let own: Vec<u32> = players.iter().map(|player| *player as u32).collect();
        let of_turns = Turns { cu_turns: &cu_turns, rewards: &at_end, roles: &own };
        let batch = Batch::with_empty_rows(&cu_seqlens, &groups, None).map_err(text)?;
        let values = match players.is_empty() {
            true => Vec::new(),
            false => turn_return(device, &batch, &of_turns, gamma).map_err(text)?,
        };

        let mut kept = Vec::new();
        for (k, (player, value)) in players.iter().zip(values).enumerate() {
            if credit.keep.get(*player) == Some(&0) {
                continue;
            }
            let turn = k - players.iter().position(|first| first == player).unwrap_or(k);
            let mut tokens = vec![0.0; (cu_turns[k + 1] - cu_turns[k]) as usize];
            if let Some(last) = tokens.last_mut() {
                *last = value;
            }
            kept.push(json!({ "player": player, "turn": turn, "advantage": value, "token_rewards": tokens }));
        }
        state = credit.state.role_values;
        out.push(json!({ "turns": kept, "baseline_after": state }));
    }
    Ok(Plan::Numbers("spiral", vec![("games", Got::Nested(out.into()))], None))
}

fn numbers(of: &Value, name: &str) -> Result<Vec<f64>, String> {
    crate::format::numbers(name, &of[name])
}

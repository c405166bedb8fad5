//! Advantages of two prompts with four responses each.

use crate::{Error, edit::Edited};
use lockstep::ops::reward::majority;
use lockstep::{Device, RolloutsBuf, synthetic};
use serde::{Deserialize, Serialize};

const SEQUENCES: usize = 8;
const TOKENS: usize = 40;

#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    #[serde(flatten)]
    edited: Edited,
    /// One for each response.
    rewards: Vec<f32>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Group {
    cu_seqlens: Vec<u32>,
    cu_groups: Vec<u32>,
    /// One for each response, or for each token.
    advantage: Vec<f32>,
    per_token: bool,
    /// 0: the recipe's filter leaves the response out; empty: all are in.
    keep: Vec<u8>,
}

/// The recipe's advantages for these rewards. Other columns are [`synthetic`].
pub(crate) fn group(device: &Device, request: &Request) -> Result<Group, Error> {
    let recipe = request.edited.recipe()?;
    if request.rewards.len() != SEQUENCES {
        return Err(format!("{} rewards: expected {SEQUENCES}", request.rewards.len()).into());
    }
    let mut rollouts = synthetic::rollouts(&recipe, SEQUENCES, TOKENS, 1)?;
    reward(&mut rollouts, &request.rewards)?;
    let credit = recipe.advantages(device, &rollouts.view())?;
    Ok(Group {
        cu_seqlens: rollouts.cu_seqlens.unwrap_or_default(),
        cu_groups: rollouts.cu_groups.unwrap_or_default(),
        advantage: credit.advantage,
        per_token: credit.per_token,
        keep: credit.keep,
    })
}

/// Puts the rewards in every column that has them: at the last token, turn or step of a response, as its
/// first component, and as its answer's class.
fn reward(rollouts: &mut RolloutsBuf, rewards: &[f32]) -> Result<(), Error> {
    let last = |offsets: &Option<Vec<u32>>| -> Vec<usize> {
        let ends = offsets.iter().flatten().skip(1);
        ends.map(|end| *end as usize - 1).collect()
    };
    let (tokens, steps) = (last(&rollouts.cu_seqlens), last(&rollouts.cu_steps));
    let ends = rollouts.cu_seqlens.iter().flatten().skip(1);
    let turns = rollouts.cu_turns.clone().unwrap_or_default();
    let turns: Vec<usize> = ends.filter_map(|end| turns.binary_search(end).ok()?.checked_sub(1)).collect();
    for (column, places) in [
        (&mut rollouts.token_rewards, tokens),
        (&mut rollouts.turn_rewards, turns),
        (&mut rollouts.step_rewards, steps),
        (&mut rollouts.rewards, (0..rewards.len()).collect()),
        (&mut rollouts.reward_components, (0..rewards.len()).collect()),
    ] {
        let Some(column) = column else { continue };
        places.into_iter().zip(rewards).for_each(|(place, reward)| column[place] = *reward);
    }
    if rollouts.answer_class.is_some() {
        let answers: Vec<_> =
            rewards.iter().zip(1..).map(|(reward, i)| Some(if *reward > 0.5 { 0 } else { i })).collect();
        rollouts.answer_class = Some(majority(&rollouts.batch()?, &answers)?);
    }
    Ok(())
}

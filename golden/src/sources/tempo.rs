//! TEMPO's advantages from prefix trees.

use crate::outcome::{Calls, Exception, Setup};
use crate::settings::Overlay;
use crate::sources::{Plan, Request};

const INPUTS: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "rewards", "tokens"];

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["advantage_tempo"];

/// Translates a case into a plan.
pub(crate) fn read(Request { config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    let mut to = Setup::new(Overlay::new("tempo_released"), Calls::Advantages, INPUTS, &["advantages"]);
    let by_std = config.boolean("norm_adv_by_std_in_grpo")?.unwrap_or(true);
    to.recipe.set("advantage.norm_by_std", by_std);
    to.recipe.number("advantage.eps", config.number("epsilon")?);
    if let Some(pad) = config.number("pad_token_id")? {
        to.recipe.set("advantage.pad_id", pad as u32);
    }
    let (groups, shape): (Vec<u32>, _) = (inputs.whole("cu_groups")?, inputs.shape()?);
    let rewards = inputs.floats("rewards")?;
    let alone: Vec<usize> =
        groups.windows(2).filter(|group| group[1] - group[0] == 1).map(|group| group[0] as usize).collect();
    let behind = |s: &usize| {
        let mut live = shape.live[shape.spans[*s].clone()].iter().skip_while(|live| **live);
        rewards[*s] != 0.0 && live.any(|live| *live)
    };
    if by_std && !alone.is_empty() {
        let why = "a group of one: TEMPO divides by the standard deviation of one sample, NaN; ours is 0";
        to.exception = Some(Exception::Differs(why));
    } else if alone.iter().any(behind) {
        let why =
            "a group of one: behind its first masked token TEMPO has its reward, before it 0; ours is 0";
        to.exception = Some(Exception::Differs(why));
    }
    Ok(Plan::recipe(to))
}

//! verl's optimal token baseline, for single-turn and multi-turn responses.
//!
//! Rollout-correction weights are given directly rather than as log-probabilities, so they go to the op. With
//! several turns, positions count live tokens only: the same op runs on sequences without the other tokens.

use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::{Calls, Setup, text};
use crate::settings::Overlay;
use crate::sources::{Plan, Request};
use lockstep::Batch;
use lockstep::ops::discounted_return;
use lockstep::ops::optimal_token_baseline::{Score, TokenBaselineParams, optimal_token_baseline};

const INPUTS: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "logp_old", "token_rewards"];
const TURNS: &str = "advantage_multi_turn_optimal_token_baseline";
/// The eps of verl and of the recipe.
const EPS: f64 = 1e-8;

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["advantage_optimal_token_baseline", TURNS];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    let eps = config.number("epsilon")?.unwrap_or(EPS);
    let lone_tail_is_raw = config.boolean("handle_zero_tail")?.unwrap_or(true);
    let shape = inputs.shape()?;
    let (offsets, cu_groups): (Vec<u32>, Vec<u32>) =
        (inputs.whole("cu_seqlens")?, inputs.whole("cu_groups")?);
    if op != TURNS && eps == EPS && !inputs.has("is_weights") {
        let recipe = Overlay::new("optimal_token_baseline");
        let mut to = Setup::new(recipe, Calls::Advantages, INPUTS, &["advantages", "returns"]);
        to.recipe.set("advantage.over_time.lone_tail_is_raw", lone_tail_is_raw);
        to.prepare = Some(Box::new(|inputs, columns, _| {
            columns.sum_p_squared = Some(inputs.floats("sum_pi_squared")?);
            Ok(())
        }));
        return Ok(Plan::recipe(to));
    }

    // With several turns only live tokens have positions.
    let placed: Vec<usize> = (0..shape.live.len()).filter(|i| op != TURNS || shape.live[*i]).collect();
    let mask = inputs.optional("loss_mask", Inputs::whole::<u8>)?;
    let before = |end: &u32| placed.partition_point(|i| *i < *end as usize) as u32;
    let mut cu_seqlens: Vec<u32> = offsets.iter().map(before).collect();
    let mut cu_groups = cu_groups;
    if op == TURNS {
        // A response without a live token is not a member of its group.
        let members = |s: &u32| (0..*s as usize).filter(|s| cu_seqlens[*s] < cu_seqlens[s + 1]).count();
        cu_groups = cu_groups.iter().map(|s| members(s) as u32).collect();
        cu_seqlens.dedup();
    }
    let part = |name: &str| inputs.floats(name).map(|x| placed.iter().map(|i| x[*i]).collect::<Vec<_>>());
    let mask: Option<Vec<u8>> = mask.map(|mask| placed.iter().map(|i| mask[*i]).collect());
    let batch = Batch::with_empty_rows(&cu_seqlens, &cu_groups, mask.as_deref()).map_err(text)?;

    let logp = part("logp_old")?;
    let sum_squares = part("sum_pi_squared")?;
    let ratio = if inputs.has("is_weights") { Some(part("is_weights")?) } else { None };
    let returns = discounted_return(device, &batch, &part("token_rewards")?, 1.0).map_err(text)?;
    let score = Score::Probabilities { logp: &logp, sum_squares: &sum_squares };
    let params = TokenBaselineParams { eps, lone_tail_is_raw };
    let advantage =
        optimal_token_baseline(device, &batch, &returns, score, ratio.as_deref(), &params).map_err(text)?;
    let back = |values: &[f32]| {
        let mut tokens = vec![0.0; shape.live.len()];
        placed.iter().zip(widen(values)).for_each(|(i, value)| tokens[*i] = value);
        Got::Live(tokens)
    };
    let numbers = vec![("advantages", back(&advantage)), ("returns", back(&returns))];
    Ok(Plan::Numbers("ops::optimal_token_baseline", numbers, None))
}

//! Single sequences against numbers by hand.

use super::run_with;
use crate::prelude::*;

/// The recipe with tokens summed individually, so that dL/dlogp is dl/dlogp.
pub(crate) fn summed(name: &str) -> Recipe {
    let recipe = Recipe::named(name).unwrap();
    recipe.rebuild("summed").aggregation(AggregationMode::TokenSum).build().unwrap()
}

/// Runs one sequence with its log-probabilities and one advantage. The third policy, if any, is the sampler
/// or the latest one.
pub(crate) fn one(recipe: &Recipe, logps: [&[f32]; 3], a: f32) -> PolicyOutput {
    let third = (!logps[2].is_empty()).then_some(logps[2]);
    let columns = Rollouts { logp_rollout: third, logp_latest: third, ..Rollouts::default() };
    one_of(recipe, &columns, [logps[0], logps[1]], &Credit::per_sequence(vec![a]))
}

/// One sequence with these columns and this credit.
pub(crate) fn one_of(
    recipe: &Recipe,
    columns: &Rollouts<'_>,
    [logp, old]: [&[f32]; 2],
    credit: &Credit,
) -> PolicyOutput {
    let offsets = [0, logp.len() as u32];
    let input = Rollouts {
        cu_seqlens: Some(&offsets),
        cu_groups: Some(&[0, 1]),
        logp: Some(logp),
        logp_old: Some(old),
        ..*columns
    };
    run_with(recipe, &input, credit).unwrap()
}

/// Absolute up to 1, then relative: binary32 does not hold 19.085537 to 1e-6.
pub(crate) fn close(got: f64, want: f64) -> bool {
    (got - want).abs() <= WORKED * want.abs().max(1.0)
}

//! What a named recipe wants beside log-probabilities and advantages.

use lockstep::recipe::{AggregationMode, GateChoice, RatioLevel};
use lockstep::{PolicyInput, Recipe};

/// `input` with a reference (`logp_old`), a seed, entropies or log-ratios where the recipe has a use for them, of `per_token`.
pub(crate) fn wanted<'a>(
    recipe: &Recipe,
    input: PolicyInput<'a>,
    per_token: [&'a [f32]; 2],
) -> PolicyInput<'a> {
    let [entropy, log_ratio] = per_token;
    PolicyInput {
        seed: matches!(recipe.gate, GateChoice::ClipCov { .. }).then_some(7),
        entropy: recipe.mask.top_entropy.map(|_| entropy),
        log_ratio: (recipe.ratio.level == RatioLevel::Given).then_some(log_ratio),
        logp_ref: recipe.kl_term().map(|_| input.logp_old),
        ..input
    }
}

/// Whether the recipe selects tokens out of the whole batch, or divides by its padded width, so that its loss is not a sum over parts.
#[allow(dead_code, reason = "not every test that shares this module has parts")]
pub(crate) fn selects(recipe: &Recipe) -> bool {
    matches!(recipe.gate, GateChoice::ClipCov { .. } | GateChoice::KlCov { .. })
        || recipe.mask.top_entropy.is_some()
        || recipe.aggregation.mode == AggregationMode::SeqMeanTokenSumNormPadded
}

//! Columns that named recipes need besides log-probabilities and advantages.

use lockstep::recipe::{GateChoice, Horizon};
use lockstep::{Credit, Recipe, Rollouts};

/// A divergence for as many tokens as any test has.
static DIVERGENCES: [f32; 1 << 17] = [0.1; 1 << 17];

/// `rollouts` with every other column of a loss: all other policies equal the old one; `entropy` and
/// `log_ratio` come from `per_token`.
pub(crate) fn wanted<'a>(rollouts: Rollouts<'a>, per_token: [&'a [f32]; 2]) -> Rollouts<'a> {
    let (old, [entropy, log_ratio]) = (rollouts.logp_old, per_token);
    Rollouts {
        logp_rollout: old,
        logp_ref: old,
        logp_latest: old,
        logp_previous: old,
        divergence: old.map(|old| &DIVERGENCES[..old.len()]),
        entropy: Some(entropy),
        log_ratio: Some(log_ratio),
        values: Some(log_ratio),
        values_old: Some(log_ratio),
        seed: Some(&[7]),
        step: Some(&[60]),
        ..rollouts
    }
}

/// The given advantages, with returns for a critic.
pub(crate) fn with_returns(advantage: &[f32], tokens: usize) -> Credit {
    Credit { returns: vec![0.5; tokens], ..Credit::per_sequence(advantage.to_vec()) }
}

/// Whether the recipe selects tokens from the whole batch or divides by its padded width, so that its loss is
/// not a sum over parts.
pub(crate) fn selects(recipe: &Recipe) -> bool {
    matches!(recipe.gate, GateChoice::ClipCov { .. } | GateChoice::KlCov { .. })
        || recipe.mask.top_entropy.is_some()
        || recipe.aggregation.horizon == Some(Horizon::Longest)
}

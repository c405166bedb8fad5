//! NeMo RL's advantages: as recipes where one exists; over tokens, as the ops they consist of.

use super::over_tokens::{Tokens, numbers, offset, penalised};
use crate::format;
use crate::inputs::{Inputs, floats};
use crate::numbers::{Got, widen};
use crate::outcome::{Calls, Exception, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{OUTCOME, Plan};
use crate::terms::largest;
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::ops;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use lockstep::ops::whiten::{WhitenParams, whiten};
use lockstep::{Advantage, Device};

pub(super) fn grpo(config: &mut Config<'_>) -> Result<Plan, String> {
    let mut to = Setup::new(Overlay::new("nemo"), Calls::Advantages, OUTCOME, &[]);
    if config.boolean("use_leave_one_out_baseline")? == Some(false) {
        to.recipe.word("advantage.estimator", "grpo");
    }
    to.recipe.copy(config, &[("normalize_rewards", "advantage.norm_by_std")])?;
    to.own("seq_advantages", |o| Ok(Got::All(widen(&o.credit.advantage))));
    Ok(Plan::recipe(to))
}

/// Each reward on its own; without the division by its deviation, that is their weighted sum minus its mean.
pub(super) fn gdpo(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let name = "rewards_per_component";
    let rewards = inputs.value(name)?.as_object().ok_or_else(|| format!("`{name}` is not an object"))?;
    // NeMo sorts the rewards by name.
    let mut names: Vec<&String> = rewards.keys().collect();
    names.sort();
    let mut each = Vec::new();
    for name in names.iter() {
        each.extend(floats(name, format::numbers(name, &rewards[name.as_str()])?)?);
    }
    let weights = config.numbers("reward_weights")?.unwrap_or_else(|| vec![1.0; names.len()]);
    let weights = floats("reward_weights", weights)?;
    let others = config.boolean("use_leave_one_out_baseline")? != Some(false);
    let normalized = config.boolean("normalize_rewards")? != Some(false);
    let mut to = Setup::new(Overlay::new("nemo_gdpo"), Calls::Advantages, &OUTCOME[..3], &[]);
    let sum = if normalized {
        to.recipe.set("advantage.leave_one_out", others);
        None
    } else {
        to.recipe = Overlay::new("nemo");
        to.recipe.word("advantage.estimator", if others { "rloo" } else { "grpo" });
        to.recipe.set("advantage.norm_by_std", false);
        to.recipe.word("advantage.whiten", "nemo_gdpo");
        Some(ops::combine(device, &Tokens::read(inputs)?.batch()?, &each, &weights).map_err(text)?)
    };
    to.prepare = Some(Box::new(move |_, columns, _| {
        columns.rewards = sum.clone();
        columns.reward_components = sum.is_none().then(|| each.clone());
        columns.reward_weights = sum.is_none().then(|| weights.clone());
        Ok(())
    }));
    to.own("seq_advantages", |o| Ok(Got::All(widen(&o.credit.advantage))));
    Ok(Plan::recipe(to))
}

pub(super) fn raw_reward(config: &mut Config<'_>) -> Result<Plan, String> {
    let mut to = Setup::new(Overlay::new("nemo"), Calls::Advantages, OUTCOME, &["advantages"]);
    to.recipe.word("advantage.estimator", "reward");
    if config.boolean("normalize_advantages")? != Some(false) {
        to.recipe.word("advantage.whiten", "nemo");
    }
    Ok(Plan::recipe(to))
}

/// The estimator of a reward penalty, with NeMo's default clamps.
fn penalty(config: &mut Config<'_>) -> Result<(Kl, f64), String> {
    let used = config.boolean("use_kl_in_reward")? == Some(true);
    let coef = config.number("reference_policy_kl_penalty")?.unwrap_or(0.0);
    let estimator = match config.text("reference_policy_kl_type")?.unwrap_or("k3") {
        "k1" => KlFormula::K1,
        "k2" => KlFormula::K2,
        "k3" => KlFormula::K3,
        name => return Err(format!("estimator {name:?} is not known")),
    };
    Ok((Kl::guarded(estimator), if used { coef } else { 0.0 }))
}

const ROUNDED: Exception = Exception::Differs(
    "a reward less its penalty is a binary32 number, whose mean is far beyond its deviation",
);

/// Rewards minus the group's mean, minus the penalty, whitened.
pub(super) fn reinforce_plus_plus(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let mut recipe = Overlay::new("nemo");
    let centred = config.boolean("minus_baseline")? != Some(false);
    recipe.word("advantage.estimator", if centred { "grpo" } else { "reward" });
    recipe.set("advantage.norm_by_std", false);
    let (kl, coef) = penalty(config)?;
    let (tokens, rewards) = (Tokens::read(inputs)?, inputs.floats("rewards")?);
    let live = tokens.batch()?;
    let credit = recipe.recipe()?.advantages(device, &tokens.rollouts(&rewards)).map_err(text)?;
    let each = penalised(device, &live, inputs, tokens.on_all(&credit.advantage), (kl, coef))?;
    let out = whiten(device, &live, Advantage::PerToken(&each), &WhitenParams::NEMO).map_err(text)?;
    let (ours, got) = ("ops::kl_in_reward", vec![("advantages", Got::Live(widen(&out)))]);
    let rounded = coef != 0.0 && offset(device, &live, &each, 10.0)?;
    Ok(Plan::Numbers(ours, got, rounded.then_some(ROUNDED)))
}

/// Over live tokens only, with a separate λ for advantages, for returns, or for neither.
pub(super) fn gae(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let gamma = config.number("gae_gamma")?.unwrap_or(1.0);
    let both = config.number("gae_lambda")?.unwrap_or(0.95);
    let critic = Lambda::Fixed(config.number("gae_lambda_value")?.unwrap_or(both));
    let fixed = Lambda::Fixed(config.number("gae_lambda_policy")?.unwrap_or(both));
    let alpha = config.number("length_adaptive_alpha")?.filter(|alpha| *alpha > 0.0);
    let lambda = alpha.map_or(fixed, |alpha| Lambda::LengthAdaptive { alpha });
    let penalty = penalty(config)?;
    let (tokens, rewards) = (Tokens::read(inputs)?, inputs.floats("rewards")?);
    let live = tokens.batch()?;
    let rewards = penalised(device, &live, inputs, tokens.on_last_live(&rewards), penalty)?;
    let values = inputs.floats("values")?;
    let input = GaeInput { rewards: &rewards, values: &values, ends: Ends::Terminated };
    let mut out = GaeOutput::default();
    let params = GaeParams { gamma, lambda, lambda_critic: Some(critic) };
    ops::gae(device, &live, &input, &params, &mut out).map_err(text)?;
    if config.boolean("normalize_advantages")? != Some(false) {
        let raw = Advantage::PerToken(&out.advantage);
        out.advantage = whiten(device, &live, raw, &WhitenParams::VERL).map_err(text)?;
    }
    Ok(Plan::Numbers("ops::gae", numbers([&out.advantage, &out.returns], largest(&values)), None))
}

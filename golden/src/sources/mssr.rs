//! MSSR's advantages over several steps, with the tracked values of its prompts.
//!
//! Each step is a batch of one response per prompt. D is the sum of k1 between two rollouts'
//! log-probabilities, position by position.

use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::text;
use crate::settings::Overlay;
use crate::sources::{Plan, Request};
use crate::terms::largest;
use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::core::num::Soft;
use lockstep::schedules::mssr::{self, GlobalRho, ValueTracker};
use lockstep::{Batch, Device, Recipe, Rollouts, ops};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["advantage_mssr"];

/// State kept between steps.
struct Tracked {
    first: ValueTracker,
    counts: BTreeMap<u64, ValueTracker>,
    /// Log-probabilities of each prompt's last rollout.
    logp: BTreeMap<u64, Vec<f32>>,
    /// Mean KL divergences of the steps; `None` if each prompt has its own ρ.
    divergences: Option<Vec<f64>>,
}

/// Translates a case into a plan.
pub(crate) fn read(Request { config, inputs, device, .. }: Request<'_, '_>) -> Result<Plan, String> {
    let mut recipe = Overlay::new("mssr");
    let (alpha, kappa) = (config.number("entropy_alpha")?, config.number("entropy_kappa")?);
    if config.boolean("use_entropy_shaping")?.unwrap_or(true) {
        recipe.number("reward.entropy.alpha", alpha);
        recipe.number("reward.entropy.kappa", kappa);
    } else {
        recipe.word("reward.entropy", "none");
    }
    // The width that the generator padded to.
    config.ignore(&["horizon"]);
    let constants = [("rho_min", mssr::RHO_MIN), ("rho_max", mssr::RHO_MAX), ("d_half", mssr::HALF_DRIFT)];
    let mut as_released = config.number("eps")?.is_none_or(|eps| eps == 1e-6);
    for (key, released) in constants {
        as_released &= config.number(key)?.is_none_or(|own| own == released);
    }
    if !as_released {
        return Ok(Plan::Missing("MSSR's range of rho, half-life and least variance as settings"));
    }
    let own_rho = config.boolean("use_per_sample_rho")?.unwrap_or(true);
    let target = config.number("target_kl")?.unwrap_or(GlobalRho::LATER.target);
    let rule = GlobalRho { target, ..GlobalRho::LATER };
    let mut tracked = Tracked {
        first: ValueTracker::starting_at(config.number("v_init")?.unwrap_or(0.5)),
        counts: BTreeMap::new(),
        logp: BTreeMap::new(),
        divergences: (!own_rho).then(Vec::new),
    };
    let recipe = recipe.recipe()?;
    let steps = inputs.value("steps")?.as_array().ok_or("`steps` is not a list")?;
    let steps = steps.iter().map(|inputs| {
        let inputs = inputs.as_object().ok_or("a step is not an object")?;
        step(device, &recipe, &rule, &Inputs::new(inputs), &mut tracked)
    });
    let (steps, terms): (Vec<Value>, Vec<Value>) =
        steps.collect::<Result<Vec<_>, String>>()?.into_iter().unzip();
    Ok(Plan::Numbers("mssr", vec![("steps", Got::NestedTerms(steps.into(), terms.into()))], None))
}

/// One step: values, advantages, then the update of the prompts. Also returns the magnitudes of terms.
fn step(
    device: &Device,
    recipe: &Recipe,
    rule: &GlobalRho,
    inputs: &Inputs<'_>,
    tracked: &mut Tracked,
) -> Result<(Value, Value), String> {
    let prompts: Vec<u64> = inputs.whole("prompt")?;
    let (scores, logp) = (inputs.floats("scores")?, inputs.floats("logp")?);
    let cu_seqlens: Vec<u32> = inputs.whole("cu_seqlens")?;
    let mask = inputs.optional("loss_mask", Inputs::whole::<u8>)?;
    let divergence = inputs.optional("kl", Inputs::floats)?;
    inputs.finish()?;
    let cu_groups: Vec<u32> = (0..=prompts.len() as u32).collect();

    let of = |prompt: &u64| tracked.counts.get(prompt).copied().unwrap_or(tracked.first);
    let values: Vec<f64> = prompts.iter().map(|prompt| of(prompt).value()).collect();
    let baseline: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    let rollouts = Rollouts {
        loss_mask: mask.as_deref(),
        rewards: Some(&scores),
        logp_old: Some(&logp),
        baseline: Some(&baseline),
        ..Rollouts::new(&cu_seqlens, &cu_groups)
    };
    let credit = recipe.advantages(device, &rollouts).map_err(text)?;
    let batch = Batch::with_empty_rows(&cu_seqlens, &cu_groups, mask.as_deref()).map_err(text)?;
    let advantages = match credit.per_token {
        true => credit.advantage,
        false => ops::turns::spread(&batch, &cu_seqlens, &credit.advantage).map_err(text)?,
    };

    // Scores less values are binary32 before their mean is subtracted and their deviation divided by.
    let difference: Vec<f32> = scores.iter().zip(&baseline).map(|(score, value)| score - value).collect();
    let samples = Batch::new(&cu_groups, &cu_groups, None).map_err(text)?;
    let moments = ops::token_moments(device, &samples, &difference).map_err(text)?;
    let deviation = if prompts.len() > 1 { (moments.squares / moments.count).max(1e-6).sqrt() } else { 1.0 };
    let terms = (largest(&scores) + largest(&baseline)) / deviation;

    let spans = || cu_seqlens.windows(2).map(|pair| pair[0] as usize..pair[1] as usize);
    // Each prompt's own ρ, from the last of its responses in the batch.
    let mut rhos = BTreeMap::new();
    match &mut tracked.divergences {
        None => {
            // Past the end of a stored response, 0.
            let mut before = vec![0.0; logp.len()];
            for (prompt, span) in prompts.iter().zip(spans()) {
                let stored = tracked.logp.get(prompt).into_iter().flatten();
                before[span].iter_mut().zip(stored).for_each(|(to, stored)| *to = *stored);
            }
            let k1 = Kl::new(KlFormula::K1);
            let drift = ops::kl(device, &batch, &before, &logp, &k1).map_err(text)?.row_sum;
            for (prompt, drift) in prompts.iter().zip(drift) {
                let drift = tracked.logp.contains_key(prompt).then_some(drift);
                rhos.insert(*prompt, mssr::rho::<Soft>(drift));
            }
        }
        Some(divergences) => {
            let kl = divergence.ok_or("input `kl` is missing")?;
            let weight =
                Weight { per_row: PerRow::AtLeastOne, denominator: prompts.len() as f64, scale: 1.0 };
            let of_step = ops::aggregate(device, &batch, &kl, &weight).map_err(text)?;
            divergences.push(of_step.value);
            let rho = rule.rho(divergences);
            rhos.extend(prompts.iter().map(|prompt| (*prompt, rho)));
        }
    }
    for ((prompt, score), span) in prompts.iter().zip(&scores).zip(spans()) {
        let counts = tracked.counts.entry(*prompt).or_insert(tracked.first);
        *counts = counts.updated(f64::from(*score), rhos[prompt]);
        tracked.logp.insert(*prompt, logp[span].to_vec());
    }

    let by_prompt = |of: fn(&ValueTracker) -> f64| {
        let each = tracked.counts.iter().map(|(prompt, counts)| (prompt.to_string(), json!(of(counts))));
        Value::Object(each.collect::<Map<_, _>>())
    };
    let mut out = json!({
        "value_before": values,
        "advantages": widen(&advantages),
        "alpha": by_prompt(|counts| counts.good),
        "beta": by_prompt(|counts| counts.bad),
        "sampling_weight": by_prompt(|counts| counts.sampling_weight::<Soft>()),
    });
    match &tracked.divergences {
        Some(_) => out["rho_global"] = json!(rhos.values().next()),
        None => {
            let each = rhos.iter().map(|(prompt, rho)| (prompt.to_string(), json!(rho)));
            out["rho"] = Value::Object(each.collect());
        }
    }
    Ok((out, json!({ "advantages": vec![terms; advantages.len()] })))
}

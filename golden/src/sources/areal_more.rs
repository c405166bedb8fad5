//! AReaL's rejection of samples and its proximal policies. Its advantages are in `areal_advantages.rs`.
//!
//! **Rejection.** The action `mask` removes tokens from ratio, means and clip, but not from the denominator:
//! they leave the mask, and the column `counts` holds the original number of tokens. `clamp` truncates
//! weights. AReaL's k1 is ln ρ, so its bounds are those of a band on ρ. Its k3 has the other direction, e^-d
//! − 1 + d: ours with the policies exchanged, through a call before the recipe's.

use super::areal_advantages::{advantage_gae, nested, normalized_rewards, normalized_tokens};
use super::over_tokens::Tokens;
use crate::inputs::Inputs;
use crate::numbers::{self, Got, metrics, widen};
use crate::outcome::{Calls, Outcome, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{POLICY, Plan, ROLLOUT, Request};
use lockstep::core::ratio::Interpolation;
use lockstep::ops::{proximal_logp, rollout_correction};
use lockstep::{Device, Recipe, RolloutsBuf};

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "advantage_gae", "advantage_normalization", "policy_loss_decoupled_gspo",
    "policy_loss_decoupled_sequence_kl", "policy_loss_decoupled_sequence_ratio",
    "policy_loss_decoupled_token", "policy_loss_prox_loglinear", "prox_logp_approximation",
    "proximal_interpolation", "rejection_sampling", "reward_normalization",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    // A label from the generator.
    config.ignore(&["batch"]);
    match op {
        "advantage_gae" => advantage_gae(config, inputs, device),
        "advantage_normalization" => normalized_tokens(config, inputs, device),
        "reward_normalization" => normalized_rewards(config, inputs, device),
        "prox_logp_approximation" => proximal(config, inputs, device, ["loglinear", "linear", "rollout"]),
        "proximal_interpolation" => {
            proximal(config, inputs, device, ["prox_loglinear", "prox_linear", "prox_rollout"])
        }
        "rejection_sampling" => rejection(config, inputs, device),
        _ => policy(config, inputs, device),
    }
}

/// A step that an op performs before the recipe.
type Step = Box<dyn Fn(&Device, &Inputs<'_>, &mut RolloutsBuf) -> Result<(), String>>;

fn policy(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    config.ignore(&["use_decoupled_loss"]);
    let sequences = config.text("importance_sampling_level")? == Some("sequence");
    let preset = if sequences { "areal_gspo" } else { "areal" };
    let mut to = Setup::new(Overlay::new(preset), Calls::Loss, POLICY, &["loss", "dloss_dlogp"]);
    if sequences {
        to.recipe.word("ratio.gradient", "mean");
    }
    let low = config.number("eps_clip")?;
    to.recipe.number("gate.clip_ratio_low", low);
    to.recipe.number("gate.clip_ratio_high", config.number("eps_clip_higher")?.or(low));
    to.recipe.copy(config, &[("c_clip", "gate.clip_ratio_c")])?;
    let (live, mut steps) = (live(inputs)?, Vec::new());
    match config.text("prox_logp_method")? {
        None => {}
        Some("loglinear") => steps.push(loglinear(config.required("current_version")? as i32)),
        Some(method) => return Err(format!("config `prox_logp_method` is {method:?}")),
    }
    match config.take("rejection_sampling") {
        None => to.recipe.word("correction", "none"),
        Some(value) => match nested(value, Rejection::read)?.correct(live, &mut to) {
            Ok(step) => steps.extend(step),
            Err(missing) => return Ok(Plan::Missing(missing)),
        },
    }
    before(&mut to, device, steps);
    to.own("metrics.clip_ratio", |o| Ok(of_all(o, metrics(o)?.clip_fraction)));
    to.own("metrics.dual_clip_ratio", |o| Ok(of_all(o, metrics(o)?.clip_fraction_dual)));
    Ok(Plan::recipe(to))
}

fn before(to: &mut Setup, device: &Device, steps: Vec<Step>) {
    let device = device.clone();
    to.prepare = Some(Box::new(move |inputs, columns, _| {
        steps.iter().try_for_each(|step| step(&device, inputs, columns))
    }));
}

/// Number of live tokens of the case.
fn live(inputs: &Inputs<'_>) -> Result<u64, String> {
    Ok(inputs.shape()?.live.iter().filter(|live| **live).count() as u64)
}

/// Live tokens of the case, and those that rejection left.
fn tokens(o: &Outcome<'_>) -> [f64; 2] {
    let live = o.live().iter().filter(|live| **live).count();
    let left = o.credit.loss_mask.as_ref().map(|mask| mask.iter().filter(|byte| **byte != 0).count());
    [live, left.unwrap_or(live)].map(|count| count as f64)
}

/// AReaL's fractions are of all tokens, ours of those that are left.
fn of_all(o: &Outcome<'_>, fraction: f64) -> Got {
    let [live, left] = tokens(o);
    Got::Number(fraction * left / live.max(1.0), 0.0)
}

/// Rejection as an op of its own.
fn rejection(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let mut to = Setup::new(Overlay::new("areal"), Calls::Advantages, ROLLOUT, &["loss_mask"]);
    match Rejection::read(config)?.correct(live(inputs)?, &mut to) {
        Ok(step) => before(&mut to, device, step.into_iter().collect()),
        Err(missing) => return Ok(Plan::Missing(missing)),
    }
    Ok(Plan::recipe(to))
}

/// A `rejection_sampling` configuration.
struct Rejection<'a> {
    level: &'a str,
    action: &'a str,
    metric: &'a str,
    agg: &'a str,
    lower: Option<f64>,
    upper: f64,
}

impl<'a> Rejection<'a> {
    fn read(config: &mut Config<'a>) -> Result<Self, String> {
        let mut word = |key: &str| config.required_text(key);
        let [level, action, metric, agg] = [word("level")?, word("action")?, word("metric")?, word("agg")?];
        let upper = config.required("upper")?;
        Ok(Rejection { level, action, metric, agg, lower: config.number("lower")?, upper })
    }

    /// Translates it to the recipe's correction for `live` tokens, with the step before the recipe, or says
    /// what is missing.
    fn correct(&self, live: u64, to: &mut Setup) -> Result<Option<Step>, &'static str> {
        // The file's advantages pass through.
        to.recipe.word("advantage.estimator", "reward");
        to.recipe.word("advantage.whiten", "none");
        to.counts[0] = Some(live);
        let of_sequences = self.level == "sequence";
        // The weight of a sequence that is rejected by ratio is the geometric mean of its ratios.
        let level = if of_sequences && self.metric == "ratio" { "geometric" } else { "token" };
        let clamps = self.action == "clamp";
        to.own("behave_imp_weight", |o| numbers::get(o, "weights"));
        let alone = to.calls == Calls::Advantages;
        to.own(if alone { "filtered_fraction" } else { "metrics.filtered_fraction" }, move |o| {
            if clamps {
                return numbers::get(o, "metrics.rollout_is_oob_ratio");
            }
            let [live, left] = tokens(o);
            Ok(Got::Number((live - left) / live.max(1.0), 0.0))
        });
        if clamps {
            if let Some(missing) = self.clamp_is_missing(of_sequences) {
                return Err(missing);
            }
            let (low, high) = (self.lower.unwrap_or(0.0).max(0.0), self.upper);
            let band = format!("low = {low:?}, high = {high:?}, denominator = \"after\"");
            to.recipe.set("correction", format!("{{ level = {level:?}, rule = \"truncate\", {band} }}"));
            return Ok(None);
        }
        self.mask(of_sequences, level, to)
    }

    /// Weights are truncated only in sequences whose statistic is outside the band, and only by ratios.
    fn clamp_is_missing(&self, of_sequences: bool) -> Option<&'static str> {
        let at_most = |bound: f64| self.lower.is_none_or(|lower| lower <= bound);
        match (of_sequences, self.metric, self.agg) {
            (false, ..) | (true, "ratio", "mean") => None,
            // In a band that contains 1, the mean is inside wherever the product is.
            (true, "ratio", "sum") if at_most(1.0) && self.upper >= 1.0 => None,
            // The mean is below the largest ratio.
            (true, "ratio", "max") if at_most(0.0) => None,
            _ => Some("truncation of those sequences alone whose largest ratio or product is outside"),
        }
    }

    fn mask(&self, of_sequences: bool, level: &str, to: &mut Setup) -> Result<Option<Step>, &'static str> {
        let statistic = match (of_sequences, self.agg, self.metric) {
            (true, agg, "ratio") => format!("seq_{agg}_k1"),
            (true, agg, metric) => metric.replace("kl_", &format!("seq_{agg}_")),
            (false, _, "ratio") => "token_k1".to_owned(),
            (false, _, metric) => metric.replace("kl_", "token_"),
        };
        // As in binary32: anything below its smallest normal number counts as no ratio.
        let ratio = |bound: f64| {
            let ratio = if self.metric == "ratio" { bound } else { bound.exp() };
            if ratio < f32::MIN_POSITIVE.into() { 0.0 } else { ratio.min(f32::MAX.into()) }
        };
        let of_ratios = statistic.ends_with("k1");
        let low = of_ratios.then(|| self.lower.map_or(0.0, ratio));
        if low.is_none() && self.lower.is_some_and(|lower| lower > 0.0) {
            return Err("a lower bound of k2 or k3");
        }
        let high = if of_ratios { ratio(self.upper) } else { self.upper };
        let low = low.map_or_else(String::new, |low| format!("low = {low:?}, "));
        let reject = format!("{{ statistic = {statistic:?}, {low}high = {high:?} }}");
        let correction = |reject: &str| {
            format!("{{ level = {level:?}, rule = \"plain\", denominator = \"after\", reject = [{reject}] }}")
        };
        if !statistic.ends_with("k3") {
            to.recipe.set("correction", correction(&reject));
            return Ok(None);
        }
        to.recipe.set("correction", correction(""));
        let recipe = format!("extends = \"areal\"\ncorrection = {}", correction(&reject));
        Ok(Some(Box::new(move |device, _, columns| exchanged(device, &recipe, columns))))
    }
}

/// Removes from the mask the tokens that a recipe rejects when trainer and sampler are exchanged.
fn exchanged(device: &Device, recipe: &str, columns: &mut RolloutsBuf) -> Result<(), String> {
    let choice = Recipe::from_toml(recipe).map_err(text)?.correction.ok_or("the recipe corrects nothing")?;
    let own = columns.view();
    let (old, rollout) = (own.logp_old.unwrap_or_default(), own.logp_rollout.unwrap_or_default());
    let (batch, params) = (own.batch().map_err(text)?, choice.params().map_err(text)?);
    let rejected = rollout_correction(device, &batch, rollout, old, &params).map_err(text)?;
    columns.loss_mask = Some(rejected.kept_mask);
    Ok(())
}

/// Versions of tokens; −1 for those that were not sampled.
fn versions(inputs: &Inputs<'_>) -> Result<Vec<i32>, String> {
    Ok(inputs.numbers("versions")?.into_iter().map(|version| version as i32).collect())
}

/// Interpolates the proximal policy in place of a forward pass.
fn loglinear(current: i32) -> Step {
    Box::new(move |device, inputs, columns| {
        let own = columns.view();
        let batch = own.batch().map_err(text)?;
        let (rollout, logp) = (own.logp_rollout.unwrap_or_default(), own.logp.unwrap_or_default());
        let versions = versions(inputs)?;
        let by = Interpolation::Loglinear;
        let prox = proximal_logp(device, &batch, &versions, current, rollout, logp, by).map_err(text)?;
        columns.logp_old = Some(prox);
        Ok(())
    })
}

/// All three; for tokens with version −1, which were not sampled, it equals the sampler's policy.
fn proximal(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
    [loglinear, linear, rollout]: [&'static str; 3],
) -> Result<Plan, String> {
    let (current, tokens) = (config.required("current_version")? as i32, Tokens::read(inputs)?);
    let (sampler, logp) = (inputs.floats("logp_rollout")?, inputs.floats("logp_new")?);
    let (batch, versions) = (tokens.batch()?, versions(inputs)?);
    let unsampled = vec![-1; versions.len()];
    let by = |name, versions: &[i32], interpolation| {
        let prox = proximal_logp(device, &batch, versions, current, &sampler, &logp, interpolation);
        prox.map(|prox| (name, Got::Live(widen(&prox)))).map_err(text)
    };
    let got = vec![
        by(loglinear, &versions, Interpolation::Loglinear)?,
        by(linear, &versions, Interpolation::Linear)?,
        by(rollout, &unsampled, Interpolation::Loglinear)?,
    ];
    Ok(Plan::Numbers("ops::proximal_logp", got, None))
}

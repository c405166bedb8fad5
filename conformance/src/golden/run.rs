//! A golden case through Lockstep's public API, with the semantics of the preset `verl`.

use super::compare::Compared;
use super::config::Config;
use super::correction;
use super::expected::Expected;
use super::format::{Case, Inputs};
use super::gae;
use lockstep::core::kl::{self, Kl};
use lockstep::ops;
use lockstep::recipe::{
    AdvantageChoice, AggregationMode, Builder, Estimator, GateChoice, GmpoBounds, GuardChoice,
};
use lockstep::{Advantage, Batch, Device, PolicyInput, Recipe};

/// Runs a case of one golden op; an `Err` says why it cannot be run.
type Runner = fn(&Device, &Batch<'_>, &Case) -> Result<Vec<Compared>, String>;

/// The golden ops that Lockstep has.
pub(super) const OPS: &[(&str, Runner)] = &[
    // Advantages of outcomes.
    ("advantage_grpo", |device, batch, case| advantage(device, batch, case, Estimator::Grpo)),
    ("advantage_grpo_passk", |device, batch, case| advantage(device, batch, case, Estimator::PassK)),
    ("advantage_rloo", |device, batch, case| advantage(device, batch, case, Estimator::Rloo)),
    ("advantage_opo", |device, batch, case| advantage(device, batch, case, Estimator::Opo)),
    ("advantage_gpg", |device, batch, case| advantage(device, batch, case, Estimator::Gpg)),
    ("advantage_reinforce_plus_plus", token_advantage),
    ("advantage_reinforce_plus_plus_baseline", |device, batch, case| {
        advantage(device, batch, case, Estimator::ReinforcePlusPlusBaseline)
    }),
    // Advantages over time.
    ("advantage_gae", gae::run),
    // Policy losses.
    ("policy_loss_ppo_clip", |device, batch, case| policy_loss(device, batch, case, ppo_clip, "token-mean")),
    ("policy_loss_gspo", |device, batch, case| policy_loss(device, batch, case, gspo, "seq-mean-token-mean")),
    ("policy_loss_cispo", |device, batch, case| policy_loss(device, batch, case, cispo, "token-mean")),
    ("policy_loss_gpg", |device, batch, case| policy_loss(device, batch, case, gpg, "token-mean")),
    ("policy_loss_dppo_tv", |device, batch, case| policy_loss(device, batch, case, dppo_tv, "token-mean")),
    ("policy_loss_dppo_kl", |device, batch, case| policy_loss(device, batch, case, dppo_kl, "token-mean")),
    ("policy_loss_sapo", |device, batch, case| policy_loss(device, batch, case, sapo, "seq-mean-token-mean")),
    ("policy_loss_gmpo", gmpo),
    ("policy_loss_kl_cov", kl_cov),
    // Rollout correction.
    ("rollout_correction_is", correction::weights),
    ("rollout_correction_reject", correction::reject),
    // KL, values.
    ("kl", kl),
    ("value_loss", super::value::value_loss),
];

/// Runs a case; an `Err` says why it cannot be run.
pub(super) fn run(device: &Device, op: &str, case: &Case) -> Result<Vec<Compared>, String> {
    let groups = case.inputs.cu_groups.clone().unwrap_or_else(|| {
        // Only advantages look at groups.
        vec![0, case.inputs.cu_seqlens.len().saturating_sub(1) as u32]
    });
    let batch = Batch::with_empty_rows(&case.inputs.cu_seqlens, &groups, case.inputs.loss_mask.as_deref())
        .map_err(text)?;
    match OPS.iter().find(|(name, _)| *name == op) {
        Some((_, runner)) => runner(device, &batch, case),
        None => Err(format!("op {op} has no runner")),
    }
}

pub(super) fn text(error: lockstep::Error) -> String {
    error.to_string()
}

fn verl() -> Result<Builder, String> {
    Ok(Recipe::named("verl").map_err(text)?.rebuild("golden"))
}

fn advantage(
    device: &Device,
    batch: &Batch<'_>,
    case: &Case,
    estimator: Estimator,
) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    if case.inputs.cu_groups.is_none() {
        return Err("input `cu_groups` is missing".into());
    }
    let norm_by_std = config.boolean("norm_adv_by_std_in_grpo")?.unwrap_or(true);
    let eps = config.number("epsilon")?.unwrap_or(1e-6);
    let f_norm = config.number("f_norm")?;
    config.finish()?;
    let choice =
        AdvantageChoice { estimator, norm_by_std, eps, f_norm, ..verl()?.build().map_err(text)?.advantage };
    let recipe = verl()?.advantage(choice).build().map_err(text)?;
    let rewards = floats("rewards", &case.inputs.rewards)?;
    let out = recipe.advantages(device, batch, &rewards).map_err(text)?;

    // verl broadcasts over tokens and multiplies by the mask.
    let mut got = vec![0.0; batch.tokens()];
    for (sequence, advantage) in out.advantage.iter().enumerate() {
        let span = batch.cu_seqlens().span(sequence);
        for (i, got) in (span.start..span.end).zip(&mut got[span.start..span.end]) {
            *got = if batch.loss_mask().at(i) { f64::from(*advantage) } else { 0.0 };
        }
    }
    let mut expected = Expected::new(&case.expected, batch);
    expected.array("advantages", &got)?;
    expected.finish(&["advantages"])
}

fn token_advantage(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let gamma = config.number("gamma")?;
    config.finish()?;
    let estimator = Estimator::ReinforcePlusPlus;
    let choice = AdvantageChoice { estimator, gamma, ..AdvantageChoice::default() };
    let recipe = verl()?.advantage(choice).build().map_err(text)?;
    let rewards = floats("token_rewards", &case.inputs.token_rewards)?;
    let out = recipe.token_advantages(device, batch, &rewards).map_err(text)?;
    let mut expected = Expected::new(&case.expected, batch);
    expected.array("advantages", &widen(&out.advantage))?;
    expected.array("returns", &widen(&out.returns))?;
    expected.finish(&["advantages", "returns"])
}

fn ppo_clip(builder: Builder, config: &mut Config<'_>) -> Result<Builder, String> {
    // verl: an absent low or high bound is `clip_ratio`.
    let both = config.number("clip_ratio")?.unwrap_or(0.2);
    let low = config.number("clip_ratio_low")?.unwrap_or(both);
    let high = config.number("clip_ratio_high")?.unwrap_or(both);
    let dual = config.number("clip_ratio_c")?.unwrap_or(3.0);
    // A bound at or below 0 never holds: r > 0. Lockstep spells that low = 1.
    let low = low.min(1.0);
    Ok(builder.ppo_clip(low as f32, high as f32, Some(dual as f32)))
}

/// Low and high bounds, each `clip_ratio` where it is not given.
fn bounds(config: &mut Config<'_>) -> Result<[f64; 2], String> {
    let both = config.number("clip_ratio")?.unwrap_or(0.2);
    Ok([config.number("clip_ratio_low")?.unwrap_or(both), config.number("clip_ratio_high")?.unwrap_or(both)])
}

/// No dual clip.
fn gspo(builder: Builder, config: &mut Config<'_>) -> Result<Builder, String> {
    let [low, high] = bounds(config)?;
    Ok(builder.ppo_clip(low as f32, high as f32, None).sequence_ratio(Some(10.0)))
}

/// verl's bounds are distances from 1; Lockstep's are absolute.
fn cispo(builder: Builder, config: &mut Config<'_>) -> Result<Builder, String> {
    let [low, high] = bounds(config)?;
    Ok(builder.gate(GateChoice::Cispo { low: (1.0 - low) as f32, high: (1.0 + high) as f32 }))
}

fn gpg(builder: Builder, _config: &mut Config<'_>) -> Result<Builder, String> {
    Ok(builder.gate(GateChoice::Reinforce {}))
}

fn dppo_tv(builder: Builder, config: &mut Config<'_>) -> Result<Builder, String> {
    let ([low, high], c) = (bounds(config)?, config.number("clip_ratio_c")?.unwrap_or(3.0));
    let (clip_ratio_low, clip_ratio_high, clip_ratio_c) = (low as f32, high as f32, c as f32);
    Ok(builder.gate(GateChoice::DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c }))
}

fn dppo_kl(builder: Builder, config: &mut Config<'_>) -> Result<Builder, String> {
    let ([low, high], c) = (bounds(config)?, config.number("clip_ratio_c")?.unwrap_or(3.0));
    let (clip_ratio_low, clip_ratio_high, clip_ratio_c) = (low as f32, high as f32, c as f32);
    Ok(builder.gate(GateChoice::DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c }))
}

fn sapo(builder: Builder, config: &mut Config<'_>) -> Result<Builder, String> {
    let pos = config.number("tau_pos")?.unwrap_or(1.0);
    let neg = config.number("tau_neg")?.unwrap_or(1.05);
    Ok(builder.sapo(pos as f32, neg as f32))
}

fn policy_loss(
    device: &Device,
    batch: &Batch<'_>,
    case: &Case,
    gate: fn(Builder, &mut Config<'_>) -> Result<Builder, String>,
    default_mode: &str,
) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let builder = gate(verl()?, &mut config)?;
    let mode = config.text("aggregation")?.unwrap_or(default_mode);
    let horizon = config.number("horizon")?;
    config.finish()?;
    let builder = match mode {
        "token-mean" => builder.aggregation(AggregationMode::TokenMean),
        "token-sum" => builder.aggregation(AggregationMode::TokenSum),
        "seq-mean-token-sum" => builder.aggregation(AggregationMode::SeqMeanTokenSum),
        "seq-mean-token-mean" => builder.aggregation(AggregationMode::SeqMeanTokenMean),
        "seq-mean-token-sum-norm" => builder
            .aggregation(AggregationMode::SeqMeanTokenSumNorm)
            .horizon(horizon.ok_or("config `horizon` is missing")?),
        other => return Err(format!("aggregation `{other}` is not known")),
    };
    let recipe = builder.build().map_err(text)?;

    let case = Arrays::new(case)?;
    let out = recipe.policy_loss(device, batch, &case.input()).map_err(text)?;
    let metrics = out.metrics.ok_or("no metrics came back")?;

    // Magnitudes of the terms of the two sums that can cancel: W·|l| and |logp_old − logp| / M.
    let weight = recipe.weight(out.counts);
    let (mut loss_terms, kl_terms) = (0.0, case.kl_terms(batch));
    for s in 0..batch.sequences() {
        let span = batch.cu_seqlens().span(s);
        let live: Vec<usize> = (span.start..span.end).filter(|i| batch.loss_mask().at(*i)).collect();
        for &i in &live {
            loss_terms += weight.of(live.len() as u64) * f64::from(out.token_loss[i].abs());
        }
    }
    let mut expected = Expected::new(case.expected, batch);
    expected.array("dloss_dlogp", &widen(&out.coef))?;
    expected.scalar("loss", out.loss.ok_or("no loss came back")?, loss_terms)?;
    expected.metrics(&[
        ("pg_clipfrac", metrics.clip_fraction, 0.0),
        ("ppo_kl", metrics.approx_kl, kl_terms),
        ("pg_clipfrac_lower", metrics.clip_fraction_dual, 0.0),
    ])?;
    expected.finish(&["dloss_dlogp", "loss", "metrics"])
}

/// One term a sequence: verl ignores the aggregation.
fn gmpo(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let [low, high] = bounds(&mut config)?;
    config.text("aggregation")?;
    config.number("horizon")?;
    config.finish()?;
    // verl takes its bounds as bounds of the logarithm.
    let gate =
        GateChoice::Gmpo { clip_log_low: low as f32, clip_log_high: high as f32, bounds: GmpoBounds::Log };
    let builder = verl()?.gate(gate).aggregation(AggregationMode::SeqMeanTokenMean);
    let recipe = builder.build().map_err(text)?;
    let case = Arrays::new(case)?;
    let out = recipe.policy_loss(device, batch, &case.input()).map_err(text)?;
    let metrics = out.metrics.ok_or("no metrics came back")?;
    let terms = out.row_loss.iter().map(|loss| loss.abs()).sum();
    let mut expected = Expected::new(case.expected, batch);
    expected.array("dloss_dlogp", &widen(&out.coef))?;
    expected.scalar("loss", out.loss.ok_or("no loss came back")?, terms)?;
    expected.metrics(&[
        ("pg_clipfrac", metrics.clip_fraction_high, 0.0),
        ("ppo_kl", metrics.approx_kl, case.kl_terms(batch)),
        ("pg_clipfrac_lower", metrics.clip_fraction_low, 0.0),
    ])?;
    expected.finish(&["dloss_dlogp", "loss", "metrics"])
}

/// verl does not guard the log-ratio here, and its `ppo_kl` is the mean of |logp − logp_old|.
fn kl_cov(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let kl_cov_ratio = config.number("kl_cov_ratio")?.unwrap_or(2e-4);
    let ppo_kl_coef = config.number("ppo_kl_coef")?.unwrap_or(1.0) as f32;
    let mode = config.text("aggregation")?.unwrap_or("token-mean");
    config.number("horizon")?;
    config.finish()?;
    if mode != "token-mean" {
        return Err(format!("aggregation `{mode}` is not known for this op"));
    }
    let gate = GateChoice::KlCov { kl_cov_ratio, ppo_kl_coef, clip_ratio_low: None, clip_ratio_high: None };
    let builder = verl()?.gate(gate).guard(GuardChoice::None, 20.0).aggregation(AggregationMode::TokenMean);
    let recipe = builder.build().map_err(text)?;
    let case = Arrays::new(case)?;
    let out = recipe.policy_loss(device, batch, &case.input()).map_err(text)?;
    let terms = out.token_loss.iter().map(|l| f64::from(l.abs())).sum::<f64>() / out.counts.tokens as f64;
    let abs =
        ops::kl(device, batch, &case.logp, &case.logp_old, &Kl::new(kl::Estimator::Abs)).map_err(text)?;
    let mut expected = Expected::new(case.expected, batch);
    expected.array("dloss_dlogp", &widen(&out.coef))?;
    expected.scalar("loss", out.loss.ok_or("no loss came back")?, terms)?;
    expected.metrics(&[("ppo_kl", abs.sum / out.counts.tokens as f64, 0.0)])?;
    expected.finish(&["dloss_dlogp", "loss", "metrics"])
}

/// The arrays of a policy loss.
struct Arrays<'a> {
    logp: Vec<f32>,
    logp_old: Vec<f32>,
    advantage: Vec<f32>,
    per_token: bool,
    weights: Option<Vec<f32>>,
    expected: &'a serde_json::Map<String, serde_json::Value>,
}

impl<'a> Arrays<'a> {
    fn new(case: &'a Case) -> Result<Self, String> {
        let Inputs { logp_new, logp_old, seq_advantages, token_advantages, is_weights, .. } = &case.inputs;
        let per_token = token_advantages.is_some();
        Ok(Arrays {
            logp: floats("logp_new", logp_new)?,
            logp_old: floats("logp_old", logp_old)?,
            advantage: match token_advantages {
                Some(_) => floats("token_advantages", token_advantages)?,
                None => floats("seq_advantages", seq_advantages)?,
            },
            per_token,
            weights: is_weights.is_some().then(|| floats("is_weights", is_weights)).transpose()?,
            expected: &case.expected,
        })
    }

    fn input(&self) -> PolicyInput<'_> {
        let advantage = match self.per_token {
            true => Advantage::PerToken(&self.advantage),
            false => Advantage::PerSequence(&self.advantage),
        };
        let weights = self.weights.as_deref();
        PolicyInput { weights, ..PolicyInput::new(&self.logp, &self.logp_old, advantage) }
    }

    /// Magnitudes of the terms of mean(logp_old − logp), which can cancel.
    fn kl_terms(&self, batch: &Batch<'_>) -> f64 {
        let live: Vec<usize> = (0..batch.tokens()).filter(|i| batch.loss_mask().at(*i)).collect();
        let apart = |i: &usize| f64::from((self.logp_old[*i] - self.logp[*i]).abs());
        live.iter().map(apart).sum::<f64>() / live.len() as f64
    }
}

fn kl(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let name = config.text("estimator")?.ok_or("config `estimator` is missing")?;
    config.finish()?;
    let base = name.strip_suffix('+').unwrap_or(name);
    let estimator = match base {
        "k1" | "kl" => kl::Estimator::K1,
        "abs" => kl::Estimator::Abs,
        "k2" | "mse" => kl::Estimator::K2,
        "k3" | "low_var_kl" => kl::Estimator::K3,
        _ => return Err(format!("estimator `{name}` is not known")),
    };
    let kl = Kl { straight_through: base.len() < name.len(), ..Kl::guarded(estimator) };
    let logp = floats("logp_new", &case.inputs.logp_new)?;
    let logp_ref = floats("logp_ref", &case.inputs.logp_ref)?;
    let out = ops::kl(device, batch, &logp, &logp_ref, &kl).map_err(text)?;
    let mut expected = Expected::new(&case.expected, batch);
    expected.array("kl", &widen(&out.kl))?;
    expected.array("dkl_dlogp", &widen(&out.gradient))?;
    expected.finish(&["kl", "dkl_dlogp"])
}

pub(super) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// An input as binary32. The format promises that this is exact; if it is not, the comparison would mean nothing.
pub(super) fn floats(name: &str, values: &Option<Vec<f64>>) -> Result<Vec<f32>, String> {
    let values = values.as_ref().ok_or_else(|| format!("input `{name}` is missing"))?;
    let inexact = |(_, x): &(usize, &f64)| f64::from(**x as f32) != **x;
    match values.iter().enumerate().find(inexact) {
        Some((i, x)) => Err(format!("input `{name}`[{i}] is {x}: not exactly a binary32 number")),
        None => Ok(values.iter().map(|x| *x as f32).collect()),
    }
}

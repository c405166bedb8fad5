//! `lockstep score`: applies a recipe to rollouts from a file, whatever produced them.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lockstep::{Column, Columns, Credit, Loss, Metrics, RatioStats, RolloutsBuf};
use serde_json::{Map, Value, json};

use crate::rl::{Algorithm, recipe};
use crate::tensors::Writer;
use crate::{atomic, files};

/// Arguments of `lockstep score`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScoreArgs {
    /// A safetensors file of columns: cu_seqlens, cu_groups and those that the recipe reads (listed by
    /// `lockstep explain`)
    #[arg(value_name = "ROLLOUTS.safetensors")]
    pub rollouts: PathBuf,
    /// The recipe: a name (grpo, dapo, sapo, verl, trl, ...) or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub recipe: String,
    /// Output file for advantages, gradients, losses and metrics
    #[arg(short, long, value_name = "OUT.safetensors")]
    pub output: PathBuf,
    /// Device to compute on: cpu, cpu:LEVEL, cuda, cuda:N, rocm, rocm:N; the choice does not change a bit
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// Refuse columns that the recipe does not use, instead of warning about them
    #[arg(long)]
    pub strict: bool,
    /// Allow tensors that are not columns
    #[arg(long)]
    pub allow_extra: bool,
}

/// Runs `lockstep score`. Returns the summary and the warnings.
pub fn score(args: &ScoreArgs) -> Result<(String, Vec<String>)> {
    atomic::check(&args.output)?;
    atomic::check_apart(&args.output, &[&args.rollouts, args.recipe.as_ref()])?;
    let recipe = recipe(&args.recipe)?.to_toml()?;
    let algorithm = Algorithm::new(&recipe, &args.device)?;
    let (rollouts, extra) = files::read_rollouts(&args.rollouts, args.allow_extra)?;
    let mut warnings = Vec::new();
    if !extra.is_empty() {
        warnings.push(format!(
            "{} has tensors that are not columns: {}",
            args.rollouts.display(),
            extra.join(", ")
        ));
    }
    let unused = unused(&algorithm, &rollouts);
    if !unused.is_empty() {
        let said = format!("the recipe {} does not use the columns {}", args.recipe, unused.join(", "));
        ensure!(!args.strict, "{}: {said}", args.rollouts.display());
        warnings.push(said);
    }
    let scored = score_rollouts(&algorithm, &recipe, &rollouts);
    let (bytes, summary) = scored.with_context(|| args.rollouts.display().to_string())?;
    atomic::write(&args.output, &bytes)?;
    Ok((format!("{summary}\nwritten: {}", args.output.display()), warnings))
}

/// Names of the columns that neither call reads.
fn unused(algorithm: &Algorithm, rollouts: &RolloutsBuf) -> Vec<&'static str> {
    let mut measured = algorithm.recipe().reads();
    if measured.contains(Column::logp_old) {
        // The engine-trainer mismatch is measured whenever possible.
        measured = measured.and(Columns::of(&[Column::logp_rollout]));
    }
    rollouts.view().columns().without(measured).iter().map(Column::name).collect()
}

/// The output file's bytes, and a summary.
fn score_rollouts(algorithm: &Algorithm, recipe: &str, rollouts: &RolloutsBuf) -> Result<(Vec<u8>, String)> {
    let credit = algorithm.advantages(rollouts)?;
    let loss = algorithm.loss(rollouts, &credit)?;
    let mut writer = Writer::default();
    let mut floats = |name: &str, values: Option<&[f32]>| {
        if let Some(values) = values {
            writer.floats(name, &[values.len()], values);
        }
    };
    floats("advantage", Some(&credit.advantage));
    floats("coef", Some(&loss.coef));
    floats("token_loss", Some(&loss.token_loss));
    floats("weights", credit.weights.as_deref());
    floats("returns", (!credit.returns.is_empty()).then_some(&credit.returns[..]));
    floats("dloss_dentropy", loss.entropy.as_ref().map(|term| &term.coef[..]));
    floats("dloss_dvalue", loss.value.as_ref().map(|value| &value.gradient[..]));
    if let Some(mask) = &credit.loss_mask {
        writer.mask("loss_mask", mask);
    }
    if !credit.state.role_values.is_empty() {
        writer.doubles("state.role_values", &credit.state.role_values);
    }
    let mut named = Map::new();
    let mut summary = String::new();
    for (name, value) in scalars(algorithm, rollouts, &credit, &loss)? {
        let tensor = if name == "loss" { name.to_owned() } else { format!("metrics.{name}") };
        writer.scalar(tensor, value);
        named.insert(name.to_owned(), json!(value));
        summary += &format!("{name:<30}{value}\n");
    }
    let note = json!({ "recipe": recipe, "metrics": Value::Object(named) });
    Ok((writer.finish(note.to_string())?, summary.trim_end().to_owned()))
}

/// Every scalar of a batch.
fn scalars(
    algorithm: &Algorithm,
    rollouts: &RolloutsBuf,
    credit: &Credit,
    loss: &Loss,
) -> Result<Vec<(&'static str, f64)>> {
    let (total, measured) =
        loss.loss.zip(loss.metrics).context("the loss was asked for, but not computed")?;
    let mut scalars = vec![
        ("loss", total),
        ("constant_groups", credit.groups.constant_groups() as f64),
        ("singleton_groups", credit.groups.singleton_groups() as f64),
    ];
    scalars.extend(metrics(&measured));
    if let Some(mismatch) = algorithm.mismatch(rollouts, rollouts.logp_old.as_deref())? {
        scalars.extend(mismatch_metrics(&mismatch));
    }
    if let Some(correction) = &credit.correction {
        let rejected = correction.counts_before.tokens - correction.counts_after.tokens;
        scalars.extend([
            ("correction_weight_mean", correction.stats.mean),
            ("correction_weight_std", correction.stats.std),
            ("correction_ess", correction.stats.ess),
            ("correction_outside_fraction", correction.stats.outside_fraction),
            ("correction_rejected_fraction", correction.stats.rejected_fraction),
            ("correction_rejected_tokens", rejected as f64),
        ]);
    }
    if let Some(term) = &loss.entropy {
        scalars.extend([("entropy", term.entropy), ("entropy_loss", term.loss)]);
    }
    if let Some(value) = &loss.value {
        scalars.extend([("value_loss", value.loss), ("value_clip_fraction", value.clip_fraction)]);
    }
    Ok(scalars)
}

fn metrics(m: &Metrics) -> [(&'static str, f64); 17] {
    [
        ("tokens", m.tokens as f64),
        ("policy_loss_mean", m.policy_loss_mean),
        ("kl_ref_mean", m.kl_ref_mean),
        ("approx_kl", m.approx_kl),
        ("ratio_mean", m.ratio_mean),
        ("ratio_std", m.ratio_std),
        ("ratio_min", m.ratio_min),
        ("ratio_max", m.ratio_max),
        ("ess", m.ess),
        ("gate_mean", m.gate_mean),
        ("clip_fraction", m.clip_fraction),
        ("clip_fraction_high", m.clip_fraction_high),
        ("clip_fraction_low", m.clip_fraction_low),
        ("clip_fraction_dual", m.clip_fraction_dual),
        ("guarded_tokens", m.guarded_tokens as f64),
        ("in_band_fraction", m.in_band_fraction),
        ("neg_mean_logp", m.neg_mean_logp),
    ]
}

fn mismatch_metrics(m: &RatioStats) -> [(&'static str, f64); 5] {
    [
        ("mismatch_k1", m.kl_k1),
        ("mismatch_k3", m.kl_k3),
        ("mismatch_ratio_min", m.ratio_min),
        ("mismatch_ratio_max", m.ratio_max),
        ("mismatch_ratio_std", m.ratio_std),
    ]
}

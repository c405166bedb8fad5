//! `lockstep score`: a recipe applied to rollouts from a file, whoever made them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lockstep::{Metrics, RatioStats};
use serde_json::{Map, Value, json};

use crate::atomic;
use crate::rl::{Algorithm, recipe_toml};
use crate::rollouts::Rollouts;
use crate::tensors::Writer;

/// What is scored, by what, and where the result goes.
#[derive(Clone, Debug, clap::Args)]
pub struct ScoreArgs {
    /// A safetensors file with cu_seqlens, cu_groups, rewards, logp, logp_old, and optionally loss_mask, logp_ref, logp_rollout, tokens
    #[arg(value_name = "ROLLOUTS.safetensors")]
    pub rollouts: PathBuf,
    /// The recipe: a name (grpo, dapo, sapo, verl, trl, ...) or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub recipe: String,
    /// Where advantage, coef, token_loss, loss and metrics go
    #[arg(short, long, value_name = "OUT.safetensors")]
    pub output: PathBuf,
    /// Where to compute: cpu, cpu:LEVEL, cuda, cuda:N, rocm, rocm:N; it changes no bit
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
}

/// Runs `lockstep score` and returns what it tells a person.
pub fn score(args: &ScoreArgs) -> Result<String> {
    let recipe = recipe_toml(&args.recipe)?;
    let rollouts = Rollouts::read(&args.rollouts)?;
    let (bytes, summary) = score_rollouts(&recipe, &args.device, &rollouts)
        .with_context(|| args.rollouts.display().to_string())?;
    atomic::write(&args.output, &bytes)?;
    Ok(format!("{summary}\nwritten: {}", display(&args.output)))
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// The bytes of the output file and a summary.
pub fn score_rollouts(recipe: &str, device: &str, rollouts: &Rollouts) -> Result<(Vec<u8>, String)> {
    let algorithm = Algorithm::new(recipe, device)?;
    // Per token where the recipe computes them so, otherwise per sequence.
    let (advantage, advantages) = match algorithm.token_advantages(rollouts)? {
        Some(found) => (found.advantage, found.group),
        None => {
            let found = algorithm.advantages(rollouts)?;
            (found.advantage.clone(), found)
        }
    };
    let loss = algorithm.policy_loss(rollouts, &advantage)?;
    let mut scalars = vec![
        ("loss", loss.loss),
        ("constant_groups", advantages.constant_groups() as f64),
        ("singleton_groups", advantages.singleton_groups() as f64),
    ];
    scalars.extend(metrics(&loss.metrics));
    if let Some(mismatch) = algorithm.mismatch(rollouts)? {
        scalars.extend(mismatch_metrics(&mismatch));
    }
    if let Some(correction) = algorithm.correction(rollouts)? {
        scalars.extend([
            ("correction_weight_mean", correction.stats.mean),
            ("correction_weight_std", correction.stats.std),
            ("correction_ess", correction.stats.ess),
            ("correction_outside_fraction", correction.stats.outside_fraction),
            ("correction_rejected_fraction", correction.stats.rejected_fraction),
        ]);
    }

    let mut writer = Writer::default();
    for (name, values) in [("advantage", &advantage), ("coef", &loss.coef), ("token_loss", &loss.token_loss)]
    {
        writer.floats(name, &[values.len()], values);
    }
    let mut named = Map::new();
    let mut summary = String::new();
    for (name, value) in scalars {
        let tensor = if name == "loss" { name.to_owned() } else { format!("metrics.{name}") };
        writer.scalar(tensor, value);
        named.insert(name.to_owned(), json!(value));
        summary += &format!("{name:<22}{value}\n");
    }
    let note = json!({ "recipe": recipe, "metrics": Value::Object(named) });
    Ok((writer.finish(note.to_string())?, summary.trim_end().to_owned()))
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

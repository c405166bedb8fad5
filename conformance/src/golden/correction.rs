//! verl's rollout correction: weights with their statistics, and the mask that rejection leaves.

use super::compare::Compared;
use super::config::Config;
use super::expected::Expected;
use super::format::Case;
use super::run::{floats, text, widen};
use lockstep::core::correction::{K1Band, Rejections, Rule, Statistic, WeightLevel};
use lockstep::ops::correction::{Correction, CorrectionParams, rollout_correction};
use lockstep::{Batch, Device};

/// verl spells a band `low_high`; a single number is an upper bound.
fn band(spec: &str) -> Result<(Option<f32>, f32), String> {
    let number = |text: &str| text.trim().parse::<f32>().map_err(|e| format!("threshold `{text}`: {e}"));
    match spec.split_once('_') {
        Some((low, high)) => Ok((Some(number(low)?), number(high)?)),
        None => Ok((None, number(spec)?)),
    }
}

fn threshold(config: &mut Config<'_>) -> Result<String, String> {
    config.number_or_text("threshold")?.ok_or_else(|| "config `threshold` is missing".to_owned())
}

fn run(
    device: &Device,
    batch: &Batch<'_>,
    case: &Case,
    params: &CorrectionParams,
) -> Result<Correction, String> {
    let logp_old = floats("logp_old", &case.inputs.logp_old)?;
    let logp_rollout = floats("logp_rollout", &case.inputs.logp_rollout)?;
    rollout_correction(device, batch, &logp_old, &logp_rollout, params).map_err(text)
}

/// `rollout_correction_is`: truncated weights or IcePop, on either level, with or without batch normalisation.
pub(super) fn weights(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let level = match config.text("level")?.ok_or("config `level` is missing")? {
        "token" => WeightLevel::Token,
        "sequence" => WeightLevel::Sequence,
        other => return Err(format!("level `{other}` is not known")),
    };
    let (low, high) = band(&threshold(&mut config)?)?;
    let normalize = config.boolean("batch_normalize")?.unwrap_or(false);
    config.finish()?;
    let rule = if low.is_some() { Rule::Mask } else { Rule::Truncate };
    let params = CorrectionParams { level, rule, low, high, normalize, ..CorrectionParams::NONE };
    let out = run(device, batch, case, &params)?;
    let stats = out.stats;
    // Means of weights that are 0 or more do not cancel; a deviation or distance from 1 may.
    let mut expected = Expected::new(&case.expected, batch);
    expected.array("weights", &widen(&out.weights))?;
    expected.metrics(&[
        ("rollout_is_mean", stats.mean, 0.0),
        ("rollout_is_std", stats.std, 0.0),
        ("rollout_is_min", stats.min, 0.0),
        ("rollout_is_max", stats.max, 0.0),
        ("rollout_is_eff_sample_size", stats.ess, 0.0),
        ("rollout_is_ratio_fraction_high", stats.above_fraction, 0.0),
        ("rollout_is_ratio_fraction_low", stats.below_fraction, 0.0),
        ("rollout_is_oob_ratio", stats.outside_fraction, 0.0),
        ("rollout_is_seq_mean", stats.sequence_mean, 0.0),
        ("rollout_is_seq_std", stats.sequence_std, 0.0),
        ("rollout_is_seq_min", stats.sequence_min, 0.0),
        ("rollout_is_seq_max", stats.sequence_max, 0.0),
        ("rollout_is_seq_max_deviation", stats.sequence_max_deviation, 0.0),
        ("rollout_is_seq_fraction_high", stats.sequence_above_fraction, 0.0),
        ("rollout_is_seq_fraction_low", stats.sequence_below_fraction, 0.0),
        ("rollout_is_batch_norm_factor", stats.normalizer, 0.0),
    ])?;
    expected.finish(&["weights", "metrics"])
}

/// `rollout_correction_reject`: one statistic or several, separated by commas, with as many thresholds.
pub(super) fn reject(device: &Device, batch: &Batch<'_>, case: &Case) -> Result<Vec<Compared>, String> {
    let mut config = Config::new(&case.config);
    let modes = config.text("mode")?.ok_or("config `mode` is missing")?;
    let thresholds = threshold(&mut config)?;
    config.finish()?;
    let (modes, thresholds): (Vec<&str>, Vec<&str>) =
        (modes.split(',').collect(), thresholds.split(',').collect());
    if modes.len() != thresholds.len() {
        return Err(format!("{} modes with {} thresholds", modes.len(), thresholds.len()));
    }
    let mut rejections = Rejections::NONE;
    for (mode, threshold) in modes.iter().zip(thresholds) {
        let statistic = Statistic::ALL
            .into_iter()
            .find(|statistic| statistic.name() == mode.trim())
            .ok_or_else(|| format!("mode `{mode}` is not known"))?;
        let (low, high) = band(threshold)?;
        // verl's code, not its documentation.
        rejections = rejections.with(statistic, low, high, K1Band::InverseRho).map_err(|e| e.to_string())?;
    }
    let out = run(device, batch, case, &CorrectionParams::NONE.reject(rejections))?;
    let mut expected = Expected::new(&case.expected, batch);
    let mask: Vec<f64> = out.kept_mask.iter().map(|byte| f64::from(*byte)).collect();
    expected.array("loss_mask", &mask)?;
    expected.finish(&["loss_mask"])
}

//! VCPO: effective sample sizes and the learning-rate scale; the minimum-variance baseline.
//!
//! Its unclamped sequence weights are the rule `plain` without a bound.

use crate::inputs::Inputs;
use crate::numbers::{Got, widen};
use crate::outcome::{Calls, Exception, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{Plan, Request};
use lockstep::core::correction::{Rule, WeightLevel};
use lockstep::core::kl::Kl;
use lockstep::core::ratio::LrRule;
use lockstep::ops::correction::{CorrectionParams, rollout_correction};
use lockstep::ops::vcpo::{SequenceScore, VcpoWeights, vcpo_weights};
use lockstep::ops::{self, sequence_sample_sizes};
use lockstep::{Batch, Device};
use std::ops::Range;

const BASELINE: &[&str] = &["loss_mask", "cu_seqlens"];

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["ess_lr_scale", "min_variance_baseline"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    let (cu_seqlens, cu_groups): (Vec<u32>, Vec<u32>) =
        (inputs.whole("cu_seqlens")?, inputs.whole("cu_groups")?);
    let mask = inputs.optional("loss_mask", Inputs::whole::<u8>)?;
    let batch = Batch::with_empty_rows(&cu_seqlens, &cu_groups, mask.as_deref()).map_err(text)?;
    let logp = [inputs.floats("logp_old")?, inputs.floats("logp_rollout")?];
    // `null` or 0 means no threshold.
    let threshold = config.number("rollout_is_threshold")?.filter(|threshold| *threshold > 0.0);
    match op {
        "ess_lr_scale" => sample_sizes(config, &batch, inputs, &logp, threshold, device),
        _ => baseline(config, &batch, inputs, &logp, threshold, device),
    }
}

fn sample_sizes(
    config: &mut Config<'_>,
    batch: &Batch<'_>,
    inputs: &Inputs<'_>,
    [old, rollout]: &[Vec<f32>; 2],
    threshold: Option<f64>,
    device: &Device,
) -> Result<Plan, String> {
    let shape = inputs.shape()?;
    // A sequence's weight is that of each of its live tokens; an empty product is 1, below the threshold.
    let weights = |level, rule, high| {
        let params = CorrectionParams { level, rule, high, bound: f32::INFINITY, ..CorrectionParams::NONE };
        let tokens = rollout_correction(device, batch, old, rollout, &params).map_err(text)?.weights;
        let of =
            |span: &Range<usize>| span.clone().find(|i| shape.live[*i]).map_or(high.min(1.0), |i| tokens[i]);
        Ok::<Vec<f32>, String>(shape.spans.iter().map(of).collect())
    };
    let product = weights(WeightLevel::Sequence, Rule::Plain, f32::INFINITY)?;
    let high = threshold.map_or(f32::INFINITY, |threshold| threshold as f32);
    let clipped = weights(WeightLevel::Sequence, Rule::Truncate, high)?;
    let mean = weights(WeightLevel::Geometric, Rule::Plain, f32::INFINITY)?;
    let k3 = ops::kl(device, batch, rollout, old, &Kl::UNCLAMPED_K3).map_err(text)?.row_sum;
    let live = |span: &Range<usize>| span.clone().filter(|i| shape.live[*i]).count().max(1) as f64;
    let k3 = k3.iter().zip(&shape.spans).map(|(sum, span)| sum / live(span)).collect();

    let rule = match config.text("scaling_rule")?.unwrap_or("sqrt") {
        "sqrt" => LrRule::Sqrt,
        "linear" => LrRule::Linear,
        rule => return Err(format!("config `scaling_rule` is {rule:?}")),
    };
    let base = config.number("base_ess_ratio")?.unwrap_or(1.0);
    let sizes = |weights: &[f32]| sequence_sample_sizes(device, batch, weights, None).map_err(text);
    let (all, capped) = (sizes(&product)?, sizes(&clipped)?);
    let used = if config.boolean("use_clipped")? == Some(true) { &capped } else { &all };
    let scale = used.lr_scale(base, rule).map_err(text)?;
    // The share of the batch is the scale of the linear rule relative to 1.
    let share = |sizes: &ops::ess::SampleSizes| sizes.lr_scale(1.0, LrRule::Linear).map_err(text);
    let numbers = vec![
        ("ess", Got::Number(all.batch, 0.0)),
        ("ess_ratio", Got::Number(share(&all)?, 0.0)),
        ("ess_clipped", Got::Number(capped.batch, 0.0)),
        ("ess_ratio_clipped", Got::Number(share(&capped)?, 0.0)),
        ("lr_scale", Got::Number(scale, 0.0)),
        ("seq_is", Got::All(widen(&product))),
        ("seq_is_clipped", Got::All(widen(&clipped))),
        ("geom_mean", Got::All(widen(&mean))),
        ("k3", Got::All(k3)),
    ];
    Ok(Plan::Numbers("ops::sequence_sample_sizes", numbers, None))
}

fn baseline(
    config: &mut Config<'_>,
    batch: &Batch<'_>,
    inputs: &Inputs<'_>,
    [old, rollout]: &[Vec<f32>; 2],
    threshold: Option<f64>,
    device: &Device,
) -> Result<Plan, String> {
    let preset = match config.text("agg_mode")?.unwrap_or("mean") {
        "mean" => "vcpo",
        "median" => "vcpo_median",
        "winsorized_mean" => "vcpo_winsorised",
        mode => return Err(format!("config `agg_mode` is {mode:?}")),
    };
    let mut to = Setup::new(Overlay::new(preset), Calls::Advantages, BASELINE, &[]);
    let by_std = config.boolean("norm_by_std")?.unwrap_or(true);
    // The size of the groups.
    config.ignore(&["n_resp_per_rollout"]);
    // Over the whole minibatch, the existing advantages serve as rewards.
    let whole = match config.text("scope")?.unwrap_or("group") {
        "group" => false,
        "minibatch" => true,
        scope => return Err(format!("config `scope` is {scope:?}")),
    };
    if !by_std || whole {
        to.recipe.set("advantage.norm_by_std", false);
        to.recipe.word("advantage.least_std", "none");
    }
    let (mut rewards, mut cu_groups) = (inputs.floats("rewards")?, inputs.whole::<u32>("cu_groups")?);
    if whole {
        cu_groups = vec![0, rewards.len() as u32];
        rewards = inputs.floats("seq_advantages")?;
    }
    if cu_groups.windows(2).any(|group| group[1] - group[0] == 1) {
        to.recipe.word("advantage.singleton", "zero");
    }
    let alike = |group: &[u32]| {
        let rewards = &rewards[group[0] as usize..group[1] as usize];
        rewards.iter().all(|reward| *reward == rewards[0])
    };
    if preset != "vcpo_median" && cu_groups.windows(2).all(alike) {
        to.exception = Some(Exception::Differs(
            "a group of equal rewards: exactly 0; VCPO's 1e-8, added to the sum of weights, leaves a residue",
        ));
    }

    // Theirs are norms, ours squared norms.
    let squares: Vec<f32> = inputs.floats("score_grad_norm")?.iter().map(|norm| norm * norm).collect();
    let clipped = config.boolean("use_clipped_is_ratios")? == Some(true);
    let per_length = config.boolean("normalize_by_length")? == Some(true);
    let params = VcpoWeights { per_length, most: threshold.filter(|_| clipped) };
    // Without ratio weights, the two policies are the same.
    let rollout = if config.boolean("use_is_weights")? == Some(false) { old } else { rollout };
    let weights = vcpo_weights(device, batch, [old, rollout], SequenceScore::Norm(&squares), &params);
    let weights = weights.map_err(text)?;
    to.prepare = Some(Box::new(move |_, columns, _| {
        (columns.rewards, columns.cu_groups) = (Some(rewards.clone()), Some(cu_groups.clone()));
        columns.baseline_weights = Some(weights.clone());
        Ok(())
    }));
    to.own("baseline", |outcome| Ok(Got::All(widen(&outcome.credit.groups.mean))));
    to.own("gradient_weight", |outcome| Ok(Got::All(widen(&outcome.credit.advantage))));
    Ok(Plan::recipe(to))
}

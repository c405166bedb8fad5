//! ROLL's weights and filters between trainer and sampler, and their logged metrics.
//!
//! A segment is a run of live tokens. Its ratio is computed as that of a sequence, in a batch of segments.

use super::over_tokens::Tokens;
use crate::inputs::{Inputs, Shape};
use crate::numbers::{Got, widen};
use crate::outcome::{Calls, Exception, Outcome, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{Plan, ROLLOUT};
use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::core::correction::{K1Band, Rejections, Rule, Statistic, WeightLevel};
use lockstep::core::ratio::ScanKind;
use lockstep::ops::correction::{Correction, CorrectionParams};
use lockstep::ops::{self, rollout_correction};
use lockstep::{Batch, Counts, Device, Rollouts};
use serde_json::Value;

/// Offsets of segments: each row has one run of live tokens, or is a sequence without any.
pub(super) fn segments(shape: &Shape) -> Vec<u32> {
    let mut offsets = vec![0];
    for span in &shape.spans {
        let starts = span.clone().filter(|i| shape.live[*i] && (*i == span.start || !shape.live[i - 1]));
        offsets.extend(starts.skip(1).map(|i| i as u32));
        offsets.push(span.end as u32);
    }
    offsets
}

/// The level at which ROLL takes a ratio, and the names of its metrics.
struct Level {
    name: &'static str,
    of: WeightLevel,
    /// Of a ratio, and of a difference.
    statistics: [Statistic; 2],
    ratio: &'static str,
    difference: &'static str,
    kept: [&'static str; 2],
}

#[rustfmt::skip]
const LEVELS: [Level; 4] = [
    Level {
        name: "token", of: WeightLevel::Token, statistics: [Statistic::TokenK1, Statistic::TokenDiff],
        ratio: "metrics.train_infer_ratio_token_mean",
        difference: "metrics.train_infer_diff_token_mean",
        kept: ["metrics.train_infer_token_ratio_mask_mean", "metrics.train_infer_token_diff_mask_mean"],
    },
    Level {
        name: "geometric", of: WeightLevel::Geometric,
        statistics: [Statistic::SeqMeanK1, Statistic::SeqMeanDiff],
        ratio: "metrics.train_infer_ratio_geometric_mean",
        difference: "metrics.train_infer_diff_geometric_mean",
        kept: ["metrics.train_infer_geometric_ratio_mask_mean",
            "metrics.train_infer_geometric_diff_mask_mean"],
    },
    Level {
        name: "sequence", of: WeightLevel::Sequence, statistics: [Statistic::SeqSumK1, Statistic::SeqSumDiff],
        ratio: "metrics.train_infer_ratio_sequence_mean",
        difference: "metrics.train_infer_diff_sequence_mean",
        kept: ["metrics.train_infer_sequence_ratio_mask_mean", "metrics.train_infer_sequence_diff_mask_mean"],
    },
    Level {
        name: "segment", of: WeightLevel::Geometric,
        statistics: [Statistic::SeqMeanK1, Statistic::SeqMeanDiff],
        ratio: "metrics.train_infer_ratio_segment_mean",
        difference: "metrics.train_infer_diff_segment_mean",
        kept: ["metrics.train_infer_segment_ratio_mask_mean", "metrics.train_infer_segment_diff_mask_mean"],
    },
];

fn level(name: Option<&str>) -> Result<&'static Level, String> {
    let known = LEVELS.iter().find(|level| Some(level.name) == name);
    known.ok_or_else(|| format!("level {name:?} is not known"))
}

/// The settings `is_weight` and `filters`.
#[derive(Clone, Default)]
pub(super) struct Sampler {
    weight: Option<(&'static Level, Option<f64>)>,
    bands: Vec<(&'static Level, Statistic, [f64; 2])>,
    /// Whether there are filters, enabled or not.
    filters: bool,
    /// The width of the batch, if the configuration has it; otherwise that of the longest row.
    pub(super) width: Option<f64>,
}

impl Sampler {
    pub(super) fn read(config: &mut Config<'_>) -> Result<Sampler, String> {
        let mut out = Sampler::default();
        if let Some(weight) = config.take("is_weight") {
            out.weight = Some((level(weight["weight_type"].as_str())?, weight["upper_bound"].as_f64()));
        }
        let filters = config.take("filters").and_then(Value::as_array).map_or(&[][..], |list| &list[..]);
        out.filters = !filters.is_empty();
        for filter in filters {
            let on = |key: &str| filter["enabled"] == true && filter[key] == true;
            let bound = |key: &str| filter[key].as_f64().ok_or_else(|| format!("`{key}` is missing"));
            let of = level(filter["agg_type"].as_str())?;
            if on("ratio_enabled") {
                let band = [bound("ratio_low")?.max(0.0), bound("ratio_high")?];
                out.bands.push((of, of.statistics[0], band));
            }
            if on("diff_enabled") {
                out.bands.push((of, of.statistics[1], [bound("diff_low")?, bound("diff_high")?]));
            }
        }
        Ok(out)
    }

    /// Whether there is anything to do.
    pub(super) fn corrects(&self) -> bool {
        self.weight.is_some() || self.filters
    }

    /// Whether any filter is enabled.
    pub(super) fn rejects(&self) -> bool {
        !self.bands.is_empty()
    }

    /// As a recipe table, which has no segments and takes each statistic once.
    pub(super) fn table(&self, filtered: bool) -> Option<String> {
        let names: Vec<&str> = self.bands.iter().map(|(_, statistic, _)| statistic.name()).collect();
        let twice = (1..names.len()).any(|k| names[..k].contains(&names[k]));
        let of_segments = self.bands.iter().any(|(level, ..)| level.name == "segment")
            || self.weight.is_some_and(|w| w.0.name == "segment");
        if twice || of_segments {
            return None;
        }
        let (level, rule) = match self.weight {
            Some((level, Some(high))) => {
                (level.name, format!("rule = \"truncate\", low = 0.0, high = {high:?}"))
            }
            Some((level, None)) => (level.name, "rule = \"plain\"".into()),
            None => ("one", "rule = \"plain\"".into()),
        };
        let reject = self.bands.iter().filter(|_| filtered).map(|(_, statistic, [low, high])| {
            format!("{{ statistic = {:?}, low = {low:?}, high = {high:?} }}", statistic.name())
        });
        let reject = reject.collect::<Vec<_>>().join(", ");
        Some(format!("{{ level = {level:?}, {rule}, denominator = \"after\", reject = [{reject}] }}"))
    }

    /// Weights before the filters.
    pub(super) fn weights(
        &self,
        device: &Device,
        rollouts: &Rollouts<'_>,
        shape: &Shape,
    ) -> Result<Correction, String> {
        match self.weight {
            None => correct(device, rollouts, shape, None, &PLAIN),
            Some((level, None)) => correct(device, rollouts, shape, Some(level), &PLAIN),
            Some((level, Some(high))) => {
                let params = truncated([0.0, high as f32]);
                correct(device, rollouts, shape, Some(level), &params)
            }
        }
    }

    /// The tokens that all filters keep.
    pub(super) fn kept(
        &self,
        device: &Device,
        rollouts: &Rollouts<'_>,
        shape: &Shape,
    ) -> Result<Vec<u8>, String> {
        let mut kept: Vec<u8> = shape.live.iter().map(|live| u8::from(*live)).collect();
        for (level, statistic, [low, high]) in &self.bands {
            let [low, high] = [*low as f32, *high as f32];
            let rejections = Rejections::NONE.with(*statistic, Some(low), high, K1Band::Rho);
            let params = PLAIN.reject(rejections.map_err(|e| text(e.into()))?);
            let own = correct(device, rollouts, shape, Some(level), &params)?.kept_mask;
            kept = kept.iter().zip(own).map(|(a, b)| a & b).collect();
        }
        Ok(kept)
    }

    /// The metrics that ROLL logs.
    pub(super) fn metrics(&self, to: &mut Setup, inputs: &Inputs<'_>, device: &Device) -> Result<(), String> {
        for level in &LEVELS {
            to.own(level.ratio, |o| {
                let own = correct(o.device, &o.columns.view(), &o.shape, Some(level), &PLAIN)?;
                let denominator = counts(o)?.nonempty as f64;
                let weight = Weight { per_row: PerRow::Length { eps: 1e-8 }, denominator, scale: 1.0 };
                let batch = o.columns.batch().map_err(text)?;
                let mean = ops::aggregate(o.device, &batch, &own.weights, &weight).map_err(text)?;
                Ok(Got::Number(mean.value, 0.0))
            });
            to.expects.push(level.difference);
            to.skips.push((level.difference, "a mean of p_old − p_rollout, which no number of ours is"));
        }
        for (level, statistic, _) in &self.bands {
            let kept = level.kept[usize::from(statistic.is_difference())];
            if !to.expects.contains(&kept) {
                to.expects.push(kept);
                let why = "counts padding too; the mask, or what it does to the gradients, is compared";
                to.skips.push((kept, why));
            }
        }
        // ROLL's ratios are binary64.
        let tokens = Tokens::read(inputs)?;
        let [old, rollout] = [inputs.floats("logp_old")?, inputs.floats("logp_rollout")?];
        let sums = ops::log_ratio_scan(device, &tokens.batch()?, &old, &rollout, ScanKind::Sum, false);
        if sums.map_err(text)?.into_iter().any(|sum| sum > 88.7) {
            let why = "above e^88.7 binary32 has no such ratio";
            to.skips.push(("metrics.train_infer_ratio_sequence_mean", why));
            if matches!(self.weight, Some((level, None)) if level.name == "sequence") {
                to.exception = Some(Exception::Refused("a ratio overflowed", why));
            }
        }
        if let Some((level, Some(high))) = self.weight {
            let of_rows = ["geometric", "sequence"].contains(&level.name);
            let sampler = self.clone();
            to.own("metrics.is_weight_clipfrac", move |o| {
                let own = sampler.weights(o.device, &o.columns.view(), &o.shape)?;
                // The code ignores the mask: a sequence counts as many times as the batch is wide.
                let longest = o.shape.spans.iter().map(ExactSizeIterator::len).max().unwrap_or(0) as f64;
                let width = sampler.width.unwrap_or(longest);
                let rows = own.stats.above_fraction * own.counts_before.nonempty as f64;
                let tokens = own.stats.outside_fraction * own.counts_before.tokens as f64;
                let clipped = if of_rows { rows * width } else { tokens };
                Ok(Got::Number(clipped / counts(o)?.tokens as f64, 0.0))
            });
            if high < 1.0 {
                to.skips.push(("metrics.is_weight_clipfrac", "counts all padding, whose ratio is 1"));
            }
        }
        if self.filters {
            let sampler = self.clone();
            to.own("metrics.train_infer_final_mask_mean", move |o| {
                let kept = sampler.kept(o.device, &o.columns.view(), &o.shape)?;
                let left: u32 = kept.iter().map(|kept| u32::from(*kept)).sum();
                let tokens = o.columns.batch().and_then(|batch| batch.counts(o.device)).map_err(text)?.tokens;
                Ok(Got::Number(f64::from(left) / tokens.max(1) as f64, 0.0))
            });
        }
        Ok(())
    }
}

/// Weights of 1, or raw weights, without a bound.
const PLAIN: CorrectionParams = CorrectionParams { bound: f32::INFINITY, ..CorrectionParams::NONE };

const fn truncated([low, high]: [f32; 2]) -> CorrectionParams {
    CorrectionParams { rule: Rule::Truncate, low: Some(low), high, ..PLAIN }
}

/// The correction of a batch, or of one made of segments, at a level; without one the weights are 1.
fn correct(
    device: &Device,
    rollouts: &Rollouts<'_>,
    shape: &Shape,
    level: Option<&Level>,
    params: &CorrectionParams,
) -> Result<Correction, String> {
    let whole = rollouts.cu_seqlens.unwrap_or_default().to_vec();
    let offsets = if level.is_some_and(|level| level.name == "segment") { segments(shape) } else { whole };
    let groups = [0, offsets.len() as u32 - 1];
    let batch = Batch::with_empty_rows(&offsets, &groups, rollouts.loss_mask).map_err(text)?;
    let [old, rollout] = [rollouts.logp_old, rollouts.logp_rollout].map(Option::unwrap_or_default);
    let params = CorrectionParams { level: level.map_or(WeightLevel::One, |level| level.of), ..*params };
    rollout_correction(device, &batch, old, rollout, &params).map_err(text)
}

/// exp(logp − logp_old) of each token, clipped to a band, as a constant.
pub(super) fn clipped_ratio(
    device: &Device,
    rollouts: &Rollouts<'_>,
    shape: &Shape,
    band: [f32; 2],
) -> Result<Vec<f32>, String> {
    let moved = Rollouts { logp_old: rollouts.logp, logp_rollout: rollouts.logp_old, ..*rollouts };
    Ok(correct(device, &moved, shape, Some(&LEVELS[0]), &truncated(band))?.weights)
}

/// The counts of the whole batch, if the case has them.
pub(super) fn counts(o: &Outcome<'_>) -> Result<Counts, String> {
    let own = o.columns.batch().and_then(|batch| batch.counts(o.device)).map_err(text)?;
    let [tokens, nonempty, _] = o.setup.counts;
    let (tokens, nonempty) = (tokens.unwrap_or(own.tokens).max(1), nonempty.unwrap_or(own.nonempty).max(1));
    Ok(Counts { tokens, nonempty, ..own })
}

/// Weights and mask as an op of their own.
pub(super) fn correction(
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let sampler = Sampler::read(config)?;
    let mut to = Setup::new(Overlay::new("roll"), Calls::Advantages, ROLLOUT, &[]);
    to.recipe.word("advantage.estimator", "reward");
    sampler.metrics(&mut to, inputs, device)?;
    let weights = sampler.clone();
    to.own("is_weight", move |o| {
        Ok(Got::All(widen(&weights.weights(o.device, &o.columns.view(), &o.shape)?.weights)))
    });
    to.own("filter_mask", move |o| {
        let kept = sampler.kept(o.device, &o.columns.view(), &o.shape)?;
        Ok(Got::All(kept.into_iter().map(f64::from).collect()))
    });
    Ok(Plan::recipe(to))
}

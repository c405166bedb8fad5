//! A case's numbers by their names in the file, from the results of the two calls.
//!
//! Only means, minima and maxima of what the calls return. If the results of a case's own recipe do not
//! include a number, another recipe on the same columns provides it: its KL, entropy or clip fractions.

use crate::compare::Compared;
use crate::format;
use crate::inputs::Shape;
use crate::outcome::{Outcome, text};
use crate::settings::Overlay;
use crate::terms;
use lockstep::ops::correction::{WeightStats, mean_abs_log_ratio, mismatch_stats};
use lockstep::ops::value_loss::ValueOutput;
use lockstep::recipe::{GateChoice, RatioLevel, WeightLevel};
use lockstep::{EntropyTerm, Loss, Metrics, Recipe, Rollouts};
use serde_json::Value;
use std::collections::BTreeMap;

/// A result of ours.
#[derive(Clone, Debug)]
pub(crate) enum Got {
    /// Per-token values, compared at live tokens: a framework's other values are padding.
    Live(Vec<f64>),
    /// Values of any kind, compared in full.
    All(Vec<f64>),
    /// Per-token values where the file has one number per sequence.
    OfSequence(Vec<f64>),
    /// A number, with the sum of the magnitudes of its terms if these may cancel.
    Number(f64, f64),
    /// Any of these, compared only with binary64 if the file has both: in binary32 it consists of
    /// cancellation error.
    Double(Box<Got>),
    /// Any of these, whose elements are sums of terms that may cancel, with the largest magnitude of a term.
    Cancelling(Box<Got>, f64),
    /// Nested lists and objects of numbers, compared place by place; the numbers under one key share a floor.
    Nested(Value),
    /// The same, with the magnitudes of terms that may cancel in the places of their sums.
    NestedTerms(Value, Value),
}
use Got::{All, Live, Nested, Number, OfSequence};

impl Got {
    pub(crate) fn double(self) -> Got {
        Got::Double(Box::new(self))
    }

    pub(crate) fn only_double(&self) -> bool {
        matches!(self, Got::Double(_))
    }

    /// Pairs ours with the file's, for the same tokens.
    pub(crate) fn beside(self, shape: &Shape, name: &str, want: &Value) -> Result<Compared, String> {
        if let Got::Double(own) = self {
            return own.beside(shape, name, want);
        }
        if let Got::Cancelling(own, terms) = self {
            return Ok(Compared { terms, ..own.beside(shape, name, want)? });
        }
        if let Got::NestedTerms(own, terms) = self {
            let terms = leaves(&terms, name)?.into_iter().map(|(_, place, terms)| (place, terms));
            let terms: BTreeMap<String, f64> = terms.collect();
            let at = |(_, place, _): &Leaf| terms.get(place).copied().unwrap_or(0.0);
            let each = leaves(&own, name)?.iter().map(at).collect();
            return Ok(Compared { each, ..Nested(own).beside(shape, name, want)? });
        }
        let Shape { live, spans } = shape;
        let mut out = Compared { name: name.into(), ..Compared::default() };
        let keep = |x: Vec<f64>| x.into_iter().zip(live).filter(|(_, live)| **live).map(|(x, _)| x).collect();
        if let Number(got, terms) = self {
            (out.got, out.want, out.terms) = (vec![got], vec![format::number(name, want)?], terms);
            return Ok(out);
        }
        if let Nested(got) = self {
            let (got, want) = (leaves(&got, name)?, leaves(want, name)?);
            let differs = got.iter().zip(&want).position(|((_, a, _), (_, b, _))| a != b);
            if let Some(k) = differs.or((got.len() != want.len()).then_some(got.len().min(want.len()))) {
                let place = |leaves: &[Leaf]| leaves.get(k).map_or("nothing".into(), |leaf| leaf.1.clone());
                return Err(format!("expected `{name}` has {}, ours has {}", place(&want), place(&got)));
            }
            let mut row = (0, String::new());
            for ((key, _, got), (_, _, want)) in got.into_iter().zip(want) {
                if key != row.1 {
                    out.rows.push(row.0..out.want.len());
                    row = (out.want.len(), key);
                }
                out.got.push(got);
                out.want.push(want);
            }
            out.rows.push(row.0..out.want.len());
            return Ok(out);
        }
        let mut want = format::numbers(name, want)?;
        if matches!(self, OfSequence(_)) && want.len() == spans.len() {
            want = spans.iter().zip(&want).flat_map(|(span, x)| vec![*x; span.len()]).collect();
        }
        (out.got, out.want) = match self {
            Live(got) | OfSequence(got) if got.len() == want.len() => (keep(got), keep(want)),
            All(got) if got.len() == want.len() => {
                // Gradients of one sequence may share a ratio; those of two sequences share only their
                // weights.
                out.rows = if name.starts_with("dloss") { spans.clone() } else { Vec::new() };
                (got, want)
            }
            _ => return Err(format!("expected `{name}` has {} numbers", want.len())),
        };
        Ok(out)
    }
}

/// A number in nested values: its key, its place and its value.
type Leaf = (String, String, f64);

/// The numbers of nested values by key, and in order under each key.
fn leaves(value: &Value, name: &str) -> Result<Vec<Leaf>, String> {
    fn collect(value: &Value, key: &str, place: String, to: &mut Vec<Leaf>) -> Result<(), String> {
        match value {
            Value::Array(list) => {
                to.push(("length".into(), format!("{place}[{}]", list.len()), list.len() as f64));
                list.iter().enumerate().try_for_each(|(i, x)| collect(x, key, format!("{place}[{i}]"), to))
            }
            Value::Object(map) => map.iter().try_for_each(|(own, x)| {
                // Keys that are ids belong to the enclosing key.
                let key = if own.parse::<u64>().is_ok() { key } else { own };
                collect(x, key, format!("{place}.{own}"), to)
            }),
            _ => {
                to.push((key.into(), place.clone(), format::number(&place, value)?));
                Ok(())
            }
        }
    }
    let mut out = Vec::new();
    collect(value, name, name.into(), &mut out)?;
    out.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(out)
}

pub(crate) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// Our number or array of this name.
pub(crate) fn get(o: &Outcome<'_>, name: &str) -> Result<Got, String> {
    let scaled = |values: &[f32]| All(widen(values).into_iter().map(|x| x * o.setup.scale).collect());
    let weights = || o.credit.weights.as_deref().map(widen).ok_or("no weights came back");
    if let Some(name) = name.strip_prefix("metrics.rollout_is_") {
        let stats = o.credit.correction.ok_or("the recipe corrected nothing")?.stats;
        // A deviation is no more exact than the weights, which are binary32.
        return Ok(Number(statistic(&stats, name)?, if name.ends_with("std") { stats.max } else { 0.0 }));
    }
    Ok(match name {
        "advantages" => Live(advantages(o)),
        // A sum of an advantage and a value, which may be opposite.
        "returns" => {
            let terms = terms::largest(o.columns.values_old.as_deref().unwrap_or_default());
            Got::Cancelling(Box::new(Live(widen(&o.credit.returns))), terms)
        }
        "weights" => All(weights()?),
        "is_weights" => Live(weights()?),
        "seq_is_weights" => OfSequence(weights()?),
        "loss_mask" => {
            let mask = o.credit.loss_mask.as_ref().ok_or("the recipe rejected nothing")?;
            All(mask.iter().map(|byte| f64::from(*byte)).collect())
        }
        "kl" => Live(widen(&loss(o)?.token_loss)),
        "dkl_dlogp" => Live(widen(&loss(o)?.coef)),
        "loss" if o.recipe.value.is_some() => Number(critic(o)?.loss, terms::of_value(o)?),
        "loss" => Number(total(o)? * o.setup.scale, terms::of_loss(o)? * o.setup.scale),
        "dloss_dlogp" => scaled(&loss(o)?.coef),
        "dloss_dentropy" => scaled(&entropy(o)?.coef),
        "dloss_dvalue" => All(widen(&critic(o)?.gradient)),
        "clipfrac" => Number(critic(o)?.clip_fraction, 0.0),
        "entropy_mask" => All(kept_by_entropy(o)?),
        // verl's KL-Cov reports the mean of |logp − logp_old|.
        "metrics.ppo_kl" => match o.recipe.gate {
            GateChoice::KlCov { .. } => Number(mean_distance(o)?, 0.0),
            _ => Number(metrics(o)?.approx_kl, terms::of_kl(o)),
        },
        // verl's GMPO reports its upper and its lower clip in these metrics, because it has no dual clip.
        "metrics.pg_clipfrac" => Number(by_gate(o, |m| m.clip_fraction, |m| m.clip_fraction_high)?, 0.0),
        "metrics.pg_clipfrac_lower" => {
            Number(by_gate(o, |m| m.clip_fraction_dual, |m| m.clip_fraction_low)?, 0.0)
        }
        "metrics.kl" => Number(metrics(o)?.kl_ref_mean, 0.0),
        "metrics.entropy" => Number(mean_entropy(o)?, 0.0),
        "metrics.policy_loss" => {
            let scale = if o.setup.logged_unscaled { 1.0 } else { o.setup.scale };
            Number((total(o)? - entropy(o)?.loss) * scale, terms::of_loss(o)? * scale)
        }
        "metrics.clip_ratio/low_mean" => Number(clipped(o, |m| m.clip_fraction_low, Over::Mean)?, 0.0),
        "metrics.clip_ratio/low_min" => Number(clipped(o, |m| m.clip_fraction_low, Over::Min)?, 0.0),
        "metrics.clip_ratio/high_mean" => Number(clipped(o, |m| m.clip_fraction_high, Over::Mean)?, 0.0),
        "metrics.clip_ratio/high_max" => Number(clipped(o, |m| m.clip_fraction_high, Over::Max)?, 0.0),
        "metrics.clip_ratio/region_mean" => Number(clipped(o, |m| m.clip_fraction, Over::Mean)?, 0.0),
        "metrics.cispo_clip_ratio" => Number(clipped(o, |m| m.clip_fraction_high, Over::Gains)?, 0.0),
        "metrics.sampling_logp_difference/mean" => Number(apart(o)?.0, 0.0),
        "metrics.sampling_logp_difference/max" => Number(apart(o)?.1, 0.0),
        "metrics.importance_sampling_ratio/min" => Number(over(&logged_weights(o)?, Over::Min), 0.0),
        "metrics.importance_sampling_ratio/mean" => Number(over(&logged_weights(o)?, Over::Mean), 0.0),
        "metrics.importance_sampling_ratio/max" => Number(over(&logged_weights(o)?, Over::Max), 0.0),
        _ => return Err(format!("expected `{name}` has no source")),
    })
}

pub(crate) fn statistic(stats: &WeightStats, name: &str) -> Result<f64, String> {
    Ok(match name {
        "mean" => stats.mean,
        "std" => stats.std,
        "min" => stats.min,
        "max" => stats.max,
        "eff_sample_size" => stats.ess,
        "ratio_fraction_high" => stats.above_fraction,
        "ratio_fraction_low" => stats.below_fraction,
        "oob_ratio" => stats.outside_fraction,
        "seq_mean" => stats.sequence_mean,
        "seq_std" => stats.sequence_std,
        "seq_min" => stats.sequence_min,
        "seq_max" => stats.sequence_max,
        "seq_max_deviation" => stats.sequence_max_deviation,
        "seq_fraction_high" => stats.sequence_above_fraction,
        "seq_fraction_low" => stats.sequence_below_fraction,
        "batch_norm_factor" => stats.normalizer,
        _ => return Err(format!("statistic `{name}` has no source")),
    })
}

pub(crate) fn loss<'a>(o: &'a Outcome<'_>) -> Result<&'a Loss, String> {
    o.loss.as_ref().ok_or_else(|| "no loss was computed".into())
}

pub(crate) fn total(o: &Outcome<'_>) -> Result<f64, String> {
    loss(o)?.loss.ok_or_else(|| "no loss came back".into())
}

pub(crate) fn metrics(o: &Outcome<'_>) -> Result<Metrics, String> {
    loss(o)?.metrics.ok_or_else(|| "no metrics came back".into())
}

pub(crate) fn entropy<'a>(o: &'a Outcome<'_>) -> Result<&'a EntropyTerm, String> {
    loss(o)?.entropy.as_ref().ok_or_else(|| "no entropy term came back".into())
}

pub(crate) fn critic<'a>(o: &'a Outcome<'_>) -> Result<&'a ValueOutput, String> {
    loss(o)?.value.as_ref().ok_or_else(|| "no value loss came back".into())
}

/// The loss of another recipe on the same columns.
pub(crate) fn probe(o: &Outcome<'_>, recipe: &Recipe, rollouts: &Rollouts<'_>) -> Result<Loss, String> {
    let rollouts = Rollouts { counts: None, ..*rollouts };
    recipe.loss(o.device, &rollouts, &o.credit).map_err(text)
}

/// Advantages per token: frameworks broadcast the advantages of sequences.
pub(crate) fn advantages(o: &Outcome<'_>) -> Vec<f64> {
    let advantage = widen(&o.credit.advantage);
    if o.credit.per_token {
        return advantage;
    }
    o.spans().iter().zip(advantage).flat_map(|(span, x)| span.clone().map(move |_| x)).collect()
}

fn by_gate(o: &Outcome<'_>, own: fn(&Metrics) -> f64, gmpo: fn(&Metrics) -> f64) -> Result<f64, String> {
    let value = if matches!(o.recipe.gate, GateChoice::Gmpo { .. }) { gmpo } else { own };
    Ok(value(&metrics(o)?))
}

/// Mean of |logp − logp_old|, which a recipe measures as its KL when the reference is the old policy.
fn mean_distance(o: &Outcome<'_>) -> Result<f64, String> {
    let recipe = Recipe::from_toml("kl = { estimator = \"abs\", coef = 0.0 }").map_err(text)?;
    let columns = o.columns.view();
    let loss = probe(o, &recipe, &Rollouts { logp_ref: columns.logp_old, ..columns })?;
    Ok(loss.metrics.ok_or("no metrics came back")?.kl_ref_mean)
}

/// Mean entropy of all live tokens of the call, whatever the bonus applies to.
fn mean_entropy(o: &Outcome<'_>) -> Result<f64, String> {
    let recipe = Recipe::from_toml("extends = \"trl\"\nentropy = { coef = 0.0 }").map_err(text)?;
    Ok(probe(o, &recipe, &o.columns.view())?.entropy.ok_or("no entropy term came back")?.entropy)
}

/// 1 where `mask.top_entropy` keeps a token, i.e. where a bonus on the kept tokens has a gradient.
fn kept_by_entropy(o: &Outcome<'_>) -> Result<Vec<f64>, String> {
    let mut recipe = Recipe::from_toml(
        "extends = \"trl\"\nmask.top_entropy = 1.0\nentropy = { coef = 1.0, over = \"call\", of = \"kept\" }",
    )
    .map_err(text)?;
    recipe.mask = o.recipe.mask;
    recipe.mask.opsm_delta = None;
    recipe.mask.opsm_against = Default::default();
    let term = probe(o, &recipe, &o.columns.view())?.entropy.ok_or("no entropy term came back")?;
    Ok(term.coef.iter().map(|x| f64::from(u8::from(*x != 0.0))).collect())
}

/// Which statistic of several numbers a framework logs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Over {
    Mean,
    /// The mean, with numbers for A ≤ 0 counted as 0.
    Gains,
    Min,
    Max,
}

pub(crate) fn over(values: &[f64], which: Over) -> f64 {
    match which {
        Over::Mean | Over::Gains => values.iter().sum::<f64>() / values.len().max(1) as f64,
        Over::Min => values.iter().copied().reduce(f64::min).unwrap_or(0.0),
        Over::Max => values.iter().copied().reduce(f64::max).unwrap_or(0.0),
    }
}

/// A clip fraction as TRL logs it. Each sequence is a batch of its own; the mean is over tokens or, for
/// sequence-level ratios, over sequences, where an empty one counts as not clipped.
///
/// GMPO's metrics are verl's, which count bounds even where the sign of A makes them void. TRL counts like
/// PPO.
fn clipped(o: &Outcome<'_>, value: fn(&Metrics) -> f64, which: Over) -> Result<f64, String> {
    let of_tokens = o.recipe.ratio.level == RatioLevel::Token;
    let mut recipe = o.recipe.clone();
    if let GateChoice::Gmpo { clip_log_low, clip_log_high, .. } = recipe.gate {
        let mut ppo = Overlay::new("trl");
        ppo.number("gate.clip_ratio_low", -f64::from(-clip_log_low).exp_m1());
        ppo.number("gate.clip_ratio_high", f64::from(clip_log_high).exp_m1());
        recipe = ppo.recipe()?;
    }
    let (spans, live) = (o.spans().to_vec(), o.live());
    let mut columns = o.columns.clone();
    (columns.cu_groups, columns.counts) = (Some((0..=spans.len() as u32).collect()), None);
    // The group statistics of the whole batch do not apply to these parts.
    let credit = lockstep::Credit { groups: Default::default(), ..o.credit.clone() };
    let mut each = Vec::new();
    for (s, span) in spans.into_iter().enumerate() {
        let tokens = span.filter(|i| live[*i]).count();
        if tokens == 0 {
            // An empty sequence gives no token values, which TRL leaves out, or a ratio of 1, which is within
            // every bound except a CISPO bound below it.
            let beyond = matches!(recipe.gate, GateChoice::Cispo { high, .. } if high < 1.0);
            let counts = beyond && (which != Over::Gains || o.credit.advantage[s] > 0.0);
            each.extend((!of_tokens).then_some(f64::from(u8::from(counts))));
            continue;
        }
        let (part, _) = columns.view().select(&[s]).map_err(text)?;
        let credit = credit.select(&columns.view(), &[s]).map_err(text)?;
        let loss = recipe.loss(o.device, &part.view(), &credit).map_err(text)?;
        let own = value(&loss.metrics.ok_or("no metrics came back")?);
        let own = if which == Over::Gains && credit.advantage[0] <= 0.0 { 0.0 } else { own };
        let by_tokens = of_tokens && matches!(which, Over::Mean | Over::Gains);
        each.extend(std::iter::repeat_n(own, if by_tokens { tokens } else { 1 }));
    }
    Ok(over(&each, which))
}

/// Mean and largest |logp_old − logp_rollout| over live tokens that the sampler scored.
fn apart(o: &Outcome<'_>) -> Result<(f64, f64), String> {
    let columns = o.columns.view();
    let (old, rollout) = (columns.logp_old.unwrap_or_default(), columns.logp_rollout.unwrap_or_default());
    let scored =
        o.live().iter().zip(rollout).map(|(live, x)| u8::from(*live && !x.is_nan())).collect::<Vec<_>>();
    let batch = columns.batch().and_then(|batch| batch.with_mask(&scored)).map_err(text)?;
    let mismatch = mismatch_stats(o.device, &batch, old, rollout, f32::INFINITY).map_err(text)?;
    let mean = mean_abs_log_ratio(&batch, old, rollout).map_err(text)?;
    Ok((mean, mismatch.max_log_ratio.abs().max(mismatch.min_log_ratio.abs())))
}

/// The weights that TRL logs: those of live tokens, or one per sequence, where that of an empty one is 1.
fn logged_weights(o: &Outcome<'_>) -> Result<Vec<f64>, String> {
    let live = o.live();
    let weights = o.credit.weights.as_deref().map(widen).ok_or("no weights came back")?;
    if o.recipe.correction.as_ref().is_some_and(|c| c.level == WeightLevel::Token) {
        return Ok(weights.into_iter().zip(live).filter(|(_, live)| **live).map(|(w, _)| w).collect());
    }
    let spans = o.spans();
    Ok(spans.iter().map(|span| span.clone().find(|i| live[*i]).map_or(1.0, |i| weights[i])).collect())
}

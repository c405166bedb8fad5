//! A dropped file of rollouts, through both calls.

use crate::Error;
use lockstep::core::num::exp64;
use lockstep::{Call, Device, Recipe, RolloutsBuf};
use serde::Serialize;

/// Bars of a histogram.
const BARS: usize = 30;

#[derive(Debug, Serialize)]
pub(crate) struct Scored {
    tokens: usize,
    sequences: usize,
    groups: usize,
    needs: Vec<Need>,
    /// Columns of the file that the recipe does not read.
    unused: Vec<&'static str>,
    loss: Option<f64>,
    metrics: Vec<(&'static str, f64)>,
    advantage: Histogram,
    coef: Histogram,
    ratio: Option<Histogram>,
}

#[derive(Debug, Serialize)]
struct Need {
    column: &'static str,
    stage: &'static str,
    call: &'static str,
    required: bool,
    there: bool,
}

/// Counts between a smallest and a largest value.
#[derive(Debug, Default, Serialize)]
struct Histogram {
    range: [f64; 2],
    counts: Vec<usize>,
}

/// Reads the file and runs both calls. Errors: the library's own, about the file, its columns or its values.
pub(crate) fn file(device: &Device, recipe: &Recipe, bytes: &[u8]) -> Result<Scored, Error> {
    let (rollouts, _) = RolloutsBuf::from_safetensors(bytes, true)?;
    let view = rollouts.view();
    let (credit, loss) = recipe.step(device, &view)?;
    let batch = rollouts.batch()?;
    let live = |at: usize| batch.loss_mask().at(at);
    let counted = |values: &[f32], all: bool| {
        let kept = values.iter().enumerate().filter(|(at, _)| all || live(*at));
        histogram(kept.map(|(_, x)| f64::from(*x)))
    };
    let ratio = rollouts.logp.as_ref().zip(rollouts.logp_old.as_ref()).map(|(logp, old)| {
        let pairs = logp.iter().zip(old).enumerate().filter(|(at, _)| live(*at));
        histogram(pairs.map(|(_, (logp, old))| exp64(f64::from(logp - old))))
    });
    let need = |need: lockstep::Need| Need {
        column: need.column.name(),
        stage: need.stage,
        call: if need.call == Call::Advantages { "advantages" } else { "loss" },
        required: need.required,
        there: view.length(need.column).is_some(),
    };
    Ok(Scored {
        tokens: batch.tokens(),
        sequences: batch.sequences(),
        groups: batch.groups(),
        needs: recipe.needs().into_iter().map(need).collect(),
        unused: view.columns().without(recipe.reads()).iter().map(|column| column.name()).collect(),
        loss: loss.loss,
        metrics: loss.metrics.iter().flat_map(|metrics| metrics.named()).collect(),
        advantage: counted(&credit.advantage, !credit.per_token),
        coef: counted(&loss.coef, false),
        ratio,
    })
}

fn histogram(values: impl Iterator<Item = f64>) -> Histogram {
    let values: Vec<f64> = values.filter(|x| x.is_finite()).collect();
    let (low, high) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)));
    if values.is_empty() {
        return Histogram::default();
    }
    let mut counts = vec![0; BARS];
    for x in values {
        let share = if high > low { (x - low) / (high - low) } else { 0.5 };
        counts[((share * BARS as f64) as usize).min(BARS - 1)] += 1;
    }
    Histogram { range: [low, high], counts }
}

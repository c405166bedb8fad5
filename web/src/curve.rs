//! Loss and gradient of one token as its ratio moves.

use crate::Error;
use lockstep::core::num::exp64;
use lockstep::{Credit, Device, Recipe, synthetic};
use serde::Serialize;

/// The old policy's log-probability: ratios up to e² leave a probability.
const OLD: f32 = -2.0;
/// Log-ratios, in fiftieths: ratios from 0.14 to 3.3.
const STEPS: std::ops::RangeInclusive<i16> = -100..=60;

/// Both signs of the advantage over the same ratios.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Curve {
    ratio: Vec<f64>,
    positive: Line,
    negative: Line,
}

#[derive(Debug, Default, Serialize)]
struct Line {
    loss: Vec<f64>,
    /// dL/dlogp.
    coef: Vec<f32>,
}

/// The recipe's loss of a response of one token, alone in its batch, with A = 1 and A = −1. Every policy but
/// the trained one has the old policy's log-probability; selections of tokens and the critic are left out.
pub(crate) fn curve(device: &Device, recipe: &Recipe) -> Result<Curve, Error> {
    let mut recipe = recipe.clone();
    (recipe.mask.top_entropy, recipe.value) = (None, None);
    let mut rollouts = synthetic::rollouts(&recipe, 1, 1, 1)?;
    for column in [
        &mut rollouts.logp_old,
        &mut rollouts.logp_rollout,
        &mut rollouts.logp_ref,
        &mut rollouts.logp_latest,
        &mut rollouts.logp_previous,
    ] {
        *column = column.is_some().then(|| vec![OLD]);
    }
    let mut curve = Curve::default();
    for step in STEPS {
        let moved = f32::from(step) / 50.0;
        curve.ratio.push(exp64(moved.into()));
        rollouts.logp = Some(vec![OLD + moved]);
        rollouts.log_ratio = rollouts.log_ratio.is_some().then(|| vec![moved]);
        for (advantage, line) in [(1.0, &mut curve.positive), (-1.0, &mut curve.negative)] {
            let loss = recipe.loss(device, &rollouts.view(), &Credit::per_sequence(vec![advantage]))?;
            line.loss.push(loss.loss.unwrap_or(f64::NAN));
            line.coef.push(loss.coef[0]);
        }
    }
    Ok(curve)
}

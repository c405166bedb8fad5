//! EVOL-RL's rewards: bands by majority, ranked by novelty.

use crate::numbers::{Got, widen};
use crate::outcome::{Exception, text};
use crate::sources::{Plan, Request};
use lockstep::Batch;
use lockstep::core::reward::novelty::INVALID;
use lockstep::ops::novelty_bands;
use lockstep::ops::reward::Bands;

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["reward_evol_rl"];

/// Translates a case into a plan.
pub(crate) fn read(Request { config, inputs, device, .. }: Request<'_, '_>) -> Result<Plan, String> {
    // A label.
    config.ignore(&["kind"]);
    let embeddings = inputs.rows("embeddings")?;
    let (majority, valid): (Vec<u32>, Vec<u32>) = (inputs.whole("majority")?, inputs.whole("valid")?);
    let classes: Vec<u32> = majority
        .iter()
        .zip(&valid)
        .map(|(class, valid)| if *valid == 0 { INVALID } else { *class })
        .collect();
    let answers = classes.len() as u32;
    let (cu_seqlens, cu_groups): (Vec<u32>, _) = ((0..=answers).collect(), [0, answers]);
    let batch = Batch::new(&cu_seqlens, &cu_groups, None).map_err(text)?;
    let alike = similarity(&embeddings);
    let out = novelty_bands(device, &batch, &classes, &alike, None, &Bands::EVOL_RL).map_err(text)?;
    let got = vec![("rewards", Got::All(widen(&out.rewards)))];
    let lone = valid.iter().filter(|valid| **valid != 0).count() == 1;
    let why = match answers {
        1 if majority != [1] || !lone => Some("a lone rollout keeps its ±1; ours has the reward of its band"),
        2.. if lone => Some("a lone valid answer gets −1; ours has the reward of its band"),
        _ => None,
    };
    Ok(Plan::Numbers("ops::novelty_bands", got, why.map(Exception::Differs)))
}

/// Lockstep's input: cosines within 0 and 1, row by row.
fn similarity(embeddings: &[Vec<f64>]) -> Vec<f32> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let norms: Vec<f64> = embeddings.iter().map(|e| dot(e, e).sqrt().max(1e-8)).collect();
    let units: Vec<Vec<f64>> =
        embeddings.iter().zip(&norms).map(|(e, norm)| e.iter().map(|x| x / norm).collect()).collect();
    let cosines = units.iter().flat_map(|a| units.iter().map(move |b| dot(a, b)));
    cosines.map(|cosine| cosine.clamp(0.0, 1.0) as f32).collect()
}

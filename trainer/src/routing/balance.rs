//! The load-balance loss of a pass.

use anyhow::Result;
use lockstep::routing::{LoadSum, RoutingTrace, load};
use lockstep::{Device, ops};

use super::Record;
use crate::model::{Shape, router};

/// The load-balance loss and its gradient.
pub struct Balance {
    /// Mean over layers.
    pub loss: f64,
    /// dL/dscores of the records, `[tokens, layers, E]`; 0 without a record.
    pub gradient: Vec<f32>,
}

/// The load-balance loss coef · E Σ f P, averaged over layers. f is counted from the natural routing map,
/// also under replay (as in verl).
pub fn balance(shape: &Shape, record: &Record, coef: f32) -> Result<Balance> {
    let device = Device::cpu();
    let Shape { layers, experts, top_k, .. } = *shape;
    let natural = RoutingTrace::live(&device, &router(experts, top_k), layers, &record.scores, None)?;
    let mut found = Balance { loss: 0.0, gradient: vec![0.0; record.scores.len()] };
    let recorded = record.trace.view();
    for layer in 0..layers {
        let rows: Vec<usize> = (0..recorded.tokens())
            .map(|token| token * layers + layer)
            .filter(|row| !recorded.is_absent(*row))
            .collect();
        let mut scores = Vec::with_capacity(rows.len() * experts);
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len() * top_k);
        for &row in &rows {
            scores.extend(&record.scores[row * experts..(row + 1) * experts]);
            let first = natural.view().position(row);
            ids.extend((0..top_k).map(|j| i64::from(natural.view().at(first + j))));
        }
        let ran = RoutingTrace::from_ids(&ids, rows.len(), experts, 1, top_k)?;
        let f = load(&ran.view(), experts, LoadSum::One)?;
        let out = ops::balance_loss(&device, &scores, &f, f64::from(coef) / layers as f64)?;
        found.loss += out.loss;
        for (&row, gradient) in rows.iter().zip(out.gradient.chunks_exact(experts)) {
            found.gradient[row * experts..(row + 1) * experts].copy_from_slice(gradient);
        }
    }
    Ok(found)
}

//! The magnitudes of the terms of sums that may cancel.

use crate::numbers::{Over, critic, loss, over};
use crate::outcome::{Outcome, text};

/// The largest magnitude.
pub(crate) fn largest(values: &[f32]) -> f64 {
    values.iter().fold(0.0, |most, x| most.max(f64::from(x.abs())))
}

/// The same in units of what `scaled` is `centred` divided by.
pub(crate) fn largest_scaled(values: &[f32], centred: &[f32], scaled: &[f32]) -> f64 {
    let divided = values.iter().zip(centred).zip(scaled).filter(|((_, centred), _)| **centred != 0.0);
    let each = divided.map(|((x, centred), scaled)| f64::from((x * scaled / centred).abs()));
    each.fold(0.0, f64::max)
}

/// The summed magnitudes of the loss's terms: W·|l| of each token, or of each sequence that is a single term,
/// plus the bonus.
pub(crate) fn of_loss(o: &Outcome<'_>) -> Result<f64, String> {
    let (loss, live) = (loss(o)?, o.live());
    if loss.token_loss.is_empty() {
        return Ok(loss.row_loss.iter().map(|l| l.abs()).sum());
    }
    let batch = o.columns.batch().map_err(text)?;
    let weight = o.recipe.aggregation.weight_in(&batch, loss.counts);
    let of_row = |span: std::ops::Range<usize>| {
        let tokens: Vec<usize> = span.filter(|i| live[*i]).collect();
        let sum: f64 = tokens.iter().map(|i| f64::from(loss.token_loss[*i].abs())).sum();
        if sum == 0.0 { 0.0 } else { weight.of(tokens.len() as u64) * sum }
    };
    let bonus = loss.entropy.as_ref().map_or(0.0, |term| term.loss.abs());
    // A table may have replaced the file's sequences by others.
    let rows = (0..batch.sequences()).map(|row| batch.cu_seqlens().span(row));
    Ok(rows.map(|span| of_row(span.start..span.end)).sum::<f64>() + bonus)
}

/// The summed magnitudes of the terms of mean(logp_old − logp).
pub(crate) fn of_kl(o: &Outcome<'_>) -> f64 {
    let (new, old) = (o.columns.logp.as_deref(), o.columns.logp_old.as_deref());
    let pairs = new.unwrap_or_default().iter().zip(old.unwrap_or_default()).zip(o.live());
    let apart: Vec<f64> =
        pairs.filter(|(_, live)| **live).map(|((a, b), _)| f64::from((a - b).abs())).collect();
    over(&apart, Over::Mean)
}

/// For the value loss W·e²/2, the sum of W·|e|·|bound| over clipped tokens: a bound, V_old ± ε, is rounded to
/// binary32 before the returns are subtracted.
pub(crate) fn of_value(o: &Outcome<'_>) -> Result<f64, String> {
    let loss = critic(o)?;
    let old = o.columns.values_old.as_deref().unwrap_or_default();
    let Some(range) = o.recipe.value.as_ref().and_then(|value| value.cliprange_value) else { return Ok(0.0) };
    let rows = o.spans().iter().zip(&loss.row_loss).map(|(span, row_loss)| {
        let of_row: f64 = span.clone().map(|i| f64::from(loss.token_loss[i])).sum();
        // A clipped token has no gradient.
        let clipped = span.clone().filter(|i| loss.gradient[*i] == 0.0 && loss.token_loss[*i] != 0.0);
        let terms =
            clipped.map(|i| (2.0 * f64::from(loss.token_loss[i])).sqrt() * f64::from(old[i].abs() + range));
        if of_row == 0.0 { 0.0 } else { row_loss / of_row * terms.sum::<f64>() }
    });
    Ok(rows.sum())
}

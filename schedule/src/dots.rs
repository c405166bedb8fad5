//! DOTS: selects prompts whose predicted pass rate is near one half.
//!
//! **Formula** (2506.05316, official code; docs/maths/schedules.md):
//!
//! ```text
//! difficulty: w = softmax_j((q·r_j/√h)/τ),  base = Σ_j w_j v_j     (v_j: pass rate of reference question j)
//! calibrated: σ(logit(clip(base, 1e-4, 1 − 1e-4))/clip(softplus(a), 0.01, 10) + tanh b)
//!             σ(slope·logit(clip(base, 1e-4, 1 − 1e-4)) + shift)    (Platt; temperature: 1/slope)
//! selection:  P = softmax(−|p̂ − α|/τ_s) without replacement,  α 0.5, τ_s 1e-3
//! drawn at once: μ B σ prompts (μ B in the first epoch), μ 2 steps per selection
//! ```
//!
//! Selection uses Gumbel keys, −|p̂ − α|/τ_s − ln(−ln u): the highest keys are successive draws without
//! replacement from the softmax.
//!
//! **Shapes**: `query` `[h]`, `references` `[K, h]` in row-major order, `pass_rates` `[K]`, predictions and
//! keys `[P]`.

use crate::numbers;
use crate::random::{Purpose, Stream};
use lockstep_core::Error;
use lockstep_core::num::{self, Arith, Soft};
use lockstep_core::require;

/// Predicts the pass rate Σ w v of a question by attention over reference questions. `weights` is scratch
/// `[K]`; on return it holds w.
///
/// Errors: no reference; lengths that disagree; τ not above 0; a pass rate outside 0..=1 (with its index); a
/// query or reference that is not finite (with its index); a product, divided by √h and τ, that is beyond 1e9
/// (with the index of the reference), where rounding would spoil the softmax.
pub fn difficulty(
    query: &[f64],
    references: &[f64],
    pass_rates: &[f64],
    temperature: f64,
    weights: &mut [f64],
) -> Result<f64, Error> {
    let (h, k) = (query.len(), pass_rates.len());
    require::some("query", "an embedding", h)?;
    require::some("pass_rates", "one per reference question", k)?;
    require::length("references", h.saturating_mul(k), "one embedding per pass rate", references.len())?;
    require::length("weights", k, "one per pass rate", weights.len())?;
    require::positive("temperature", temperature)?;
    require::each("query", query, "a finite number", f64::is_finite)?;
    require::each("references", references, "a finite number", f64::is_finite)?;
    require::each("pass_rates", pass_rates, "0 to 1", |v| (0.0..=1.0).contains(&v))?;
    let scale = Soft::sqrt64(h as f64);
    for (reference, weight) in references.chunks_exact(h).zip(weights.iter_mut()) {
        let mut dot = 0.0;
        for (q, r) in query.iter().zip(reference) {
            dot += q * r;
        }
        *weight = dot / scale / temperature;
    }
    let expected = "a product with the query, over √h and the temperature, of at most 1e9";
    require::each("references", weights, expected, |w| w.abs() <= 1e9)?;
    let total = numbers::ln_sum_exp(weights.iter().copied());
    let mut base = 0.0;
    for (weight, v) in weights.iter_mut().zip(pass_rates) {
        *weight = num::exp64(*weight - total);
        base += *weight * v;
    }
    Ok(base.min(1.0))
}

fn sigmoid(x: f64) -> f64 {
    let e = num::exp64(-x.abs());
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

/// Calibrates a predicted pass rate; a small network computes (a, b) from the mean and standard deviation of
/// the pass rates. NaN in, NaN out.
pub fn calibrate(base: f64, a: f64, b: f64) -> f64 {
    let p = base.clamp(1e-4, 1.0 - 1e-4);
    let logit = num::ln64(p / (1.0 - p));
    let softplus = a.max(0.0) + num::ln64(1.0 + num::exp64(-a.abs()));
    let tanh = 2.0 * sigmoid(2.0 * b) - 1.0;
    let y = sigmoid(logit / softplus.clamp(0.01, 10.0) + tanh);
    if a.is_nan() { num::canonical64(a) } else { num::canonical64(y) }
}

/// Calibrates a predicted pass rate by a slope and a shift of its logit (Platt scaling). NaN in, NaN out.
pub fn calibrate_platt(base: f64, slope: f64, shift: f64) -> f64 {
    let p = base.clamp(1e-4, 1.0 - 1e-4);
    num::canonical64(sigmoid(slope * num::ln64(p / (1.0 - p)) + shift))
}

/// Computes the probabilities of the first draw, softmax(−|p̂ − α|/τ_s).
///
/// Errors: as for [`selection_keys`].
pub fn probabilities(
    predicted: &[f64],
    target: f64,
    temperature: f64,
    probabilities: &mut [f64],
) -> Result<(), Error> {
    require::length("probabilities", predicted.len(), "one per prompt", probabilities.len())?;
    scores(predicted, target, temperature, probabilities)?;
    // Counted from the largest: beside a large score the logarithm of the sum would be lost.
    let top = probabilities.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    probabilities.iter_mut().for_each(|p| *p -= top);
    let total = numbers::ln_sum_exp(probabilities.iter().copied());
    probabilities.iter_mut().for_each(|p| *p = num::exp64(*p - total));
    Ok(())
}

/// −|p̂ − α|/τ_s, finite.
fn scores(predicted: &[f64], target: f64, temperature: f64, out: &mut [f64]) -> Result<(), Error> {
    require::positive("temperature", temperature)?;
    require::finite("target", target)?;
    require::each("predicted", predicted, "0 to 1", |p| (0.0..=1.0).contains(&p))?;
    for (p, score) in predicted.iter().zip(out) {
        *score = -(p - target).abs() / temperature;
        require::scalar(
            "temperature",
            score.is_finite(),
            "so large that |p̂ − α|/τ_s is finite",
            temperature,
        )?;
    }
    Ok(())
}

/// Computes Gumbel keys, `[P]`; [`order::by_key`](super::order::by_key) sorts them into the order of the
/// draws.
///
/// Errors: a prediction outside 0..=1 (with its index); τ_s not above 0, or so small that a quotient is not
/// finite; an α that is not finite; lengths that disagree.
pub fn selection_keys(
    predicted: &[f64],
    target: f64,
    temperature: f64,
    seed: u64,
    step: u32,
    keys: &mut [f64],
) -> Result<(), Error> {
    require::length("keys", predicted.len(), "one per prompt", keys.len())?;
    scores(predicted, target, temperature, keys)?;
    for (id, key) in keys.iter_mut().enumerate() {
        let u = Stream::new(seed, Purpose::SELECTION, step, id as u32).open();
        *key -= num::ln64(-num::ln64(u));
    }
    Ok(())
}

/// Number of prompts that one selection draws: ⌊μ B σ + 1/2⌋, or μ B in the first epoch. Errors: σ outside
/// 0..=1; a μ B of 2^32 or more.
pub fn selection_size(steps: u32, batch: u32, fresh: f64, first_epoch: bool) -> Result<u32, Error> {
    require::unit("fresh", fresh)?;
    let all = f64::from(steps) * f64::from(batch);
    require::scalar("steps", all < 4_294_967_296.0, "fewer than 2^32 prompts in all", steps)?;
    Ok(numbers::nearest(if first_epoch { all } else { all * fresh }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order;

    #[test]
    fn attention_weighs_the_nearest_reference_most() {
        let mut w = [0.0; 2];
        let base = difficulty(&[1.0, 0.0], &[1.0, 0.0, 0.0, 1.0], &[0.9, 0.1], 0.5, &mut w).unwrap();
        // Weights softmax(√2, 0).
        let first = 1.0 / (1.0 + libm::exp(-core::f64::consts::SQRT_2));
        assert!((w[0] - first).abs() < 1e-15 && (w[0] + w[1] - 1.0).abs() < 1e-15);
        assert!((base - (0.9 * first + 0.1 * (1.0 - first))).abs() < 1e-15);
    }

    #[test]
    fn calibration_against_the_written_formula() {
        for (base, a, b) in [(0.3, 0.2, 0.1), (0.0, 5.0, -3.0), (1.0, -50.0, 2.0), (0.5, 800.0, 0.0)] {
            let p = f64::clamp(base, 1e-4, 1.0 - 1e-4);
            let softplus = if a > 500.0 { a } else { libm::log1p(libm::exp(a)) };
            let z = libm::log(p / (1.0 - p)) / softplus.clamp(0.01, 10.0) + libm::tanh(b);
            let expected = 1.0 / (1.0 + libm::exp(-z));
            assert!((calibrate(base, a, b) - expected).abs() < 1e-13, "{base} {a} {b}");
        }
        assert!(calibrate(f64::NAN, 0.0, 0.0).is_nan() && calibrate(0.5, f64::NAN, 0.0).is_nan());
    }

    #[test]
    fn the_first_draw_has_its_probabilities() {
        let mut p = [0.0; 3];
        probabilities(&[0.5, 0.4, 0.75], 0.5, 0.1, &mut p).unwrap();
        let total = 1.0 + libm::exp(-1.0) + libm::exp(-2.5);
        assert!((p[0] - 1.0 / total).abs() < 1e-15 && (p[2] - libm::exp(-2.5) / total).abs() < 1e-15);
        assert!((calibrate_platt(0.3, 1.0, 0.0) - 0.3).abs() < 1e-15);
        assert!((calibrate_platt(0.5, 2.0, 1.0) - 1.0 / (1.0 + libm::exp(-1.0))).abs() < 1e-15);
        assert!(calibrate_platt(f64::NAN, 1.0, 0.0).is_nan());
    }

    #[test]
    fn tiny_temperatures_give_a_distribution_or_an_error() {
        let mut p = [0.0; 4];
        for temperature in [1e-9, 1e-18, 1e-300] {
            probabilities(&[0.3, 0.3, 0.9, 0.3], 0.5, temperature, &mut p).unwrap();
            assert!((p[0] - 1.0 / 3.0).abs() < 1e-15 && p == [p[0], p[0], 0.0, p[0]], "{p:?}");
        }
        let named = |found| matches!(found, Err(Error::Value { argument: "temperature", .. }));
        assert!(named(probabilities(&[0.3; 4], 0.5, 1e-310, &mut p)));
        assert!(named(selection_keys(&[0.3; 4], 0.5, 1e-310, 3, 0, &mut p)));
        // The weights were 1 each and the base their sum.
        assert!(matches!(
            difficulty(&[1e9], &[1.0, 1e9], &[0.1, 0.2], 1.0, &mut p[..2]),
            Err(Error::Value { argument: "references", index: Some(1), .. })
        ));
    }

    #[test]
    fn selection_follows_the_softmax() {
        // Two prompts whose scores differ by ln 3: the first wins three times out of four.
        let tau = 0.1;
        let predicted = [0.5, 0.5 - tau * libm::log(3.0)];
        let wins = (0..4000)
            .filter(|step| {
                let (mut keys, mut order) = ([0.0; 2], [0; 2]);
                selection_keys(&predicted, 0.5, tau, 3, *step, &mut keys).unwrap();
                order::by_key(&keys, &mut order).unwrap();
                order[0] == 0
            })
            .count();
        // Five standard deviations: 5·√(4000·3/16) = 137.
        assert!(wins.abs_diff(3000) < 137, "{wins}");
    }

    #[test]
    fn at_the_default_temperature_the_nearest_to_the_target_win() {
        let predicted = [0.1, 0.49, 0.9, 0.5, 0.3];
        let (mut keys, mut order) = ([0.0; 5], [0; 5]);
        selection_keys(&predicted, 0.5, 1e-3, 3, 0, &mut keys).unwrap();
        order::by_key(&keys, &mut order).unwrap();
        // Scores differ by about 100 units, Gumbel noise by a few; 0.1 and 0.9 are equally far and come in
        // either order.
        assert_eq!(order[2], 4);
        assert!([1, 3].contains(&order[0]) && [1, 3].contains(&order[1]), "{order:?}");
    }

    #[test]
    fn sizes_and_errors() {
        assert_eq!(selection_size(2, 256, 0.5, false), Ok(256));
        assert_eq!(selection_size(2, 256, 0.5, true), Ok(512));
        assert!(matches!(selection_size(2, 1, 1.5, true), Err(Error::Value { argument: "fresh", .. })));
        let e = selection_keys(&[0.5, f64::NAN], 0.5, 1e-3, 0, 0, &mut [0.0; 2]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "predicted", index: Some(1), .. }));
        let e = difficulty(&[1.0], &[1.0, f64::INFINITY], &[0.5; 2], 1.0, &mut [0.0; 2]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "references", index: Some(1), .. }));
    }
}

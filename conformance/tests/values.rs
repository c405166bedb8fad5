//! The value loss: by hand, against finite differences, what it refuses, and its stage in a recipe.

use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::ops::value_loss::{ValueInput, explained_variance, value_loss};
use lockstep::recipe::{AggregationMode, ValueChoice};
use lockstep::{Batch, Counts, Device, Error, Recipe};
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::oracle::value_loss as oracle;
use lockstep_conformance::precision::{FINITE_DIFFERENCE, KINK, STEP};

const ONE: Weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };

/// Loss, gradient and clip of one token.
fn one(value: f32, old: f32, ret: f32, range: f32) -> (f32, f32, f64) {
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    let input = ValueInput { values: &[value], values_old: Some(&[old]), returns: &[ret] };
    let out = value_loss(&Device::cpu(), &batch, &input, range, &ONE).unwrap();
    (out.token_loss[0], out.gradient[0], out.clip_fraction)
}

#[test]
fn worked_6_6_value_loss_branches() {
    assert_eq!(one(1.25, 1.0, 2.0, 0.5), (0.28125, -0.75, 0.0), "inside the range: ½·0.75²");
    assert_eq!(
        one(1.75, 1.0, 2.0, 0.5),
        (0.125, 0.0, 1.0),
        "ran ahead towards the return: ½·0.5², no gradient"
    );
    assert_eq!(
        one(0.25, 1.0, 2.0, 0.5),
        (1.53125, -1.75, 0.0),
        "away from the return: the square of V itself"
    );
    assert_eq!(one(3.0, 1.0, 2.0, 0.5), (0.5, 1.0, 0.0), "overshot past the return: V is further than V_c");
    assert_eq!(one(2.5, 1.0, 2.0, 0.5), (0.125, 0.5, 0.0), "a tie of two branches keeps its gradient");
    assert_eq!(one(1.5, 1.0, 2.0, 0.5), (0.125, -0.5, 0.0), "at the bound");
    assert_eq!(one(1.75, 1.0, 2.0, f32::INFINITY), (0.03125, -0.25, 0.0), "no clipping");
    assert_eq!(one(2.0, 2.0, 2.0, 0.5).1.to_bits(), 0, "never −0");
}

#[test]
fn gradient_is_that_of_the_oracles_loss() {
    let (n, range) = (4000usize, 0.5f32);
    let source = Source::new(11);
    let draw =
        |fork: u64, scale: f32| -> Vec<f32> { (0..n).map(|i| scale * source.fork(fork).signed(i)).collect() };
    let (old, moved, target) = (draw(1, 3.0), draw(2, 1.0), draw(3, 2.0));
    let values: Vec<f32> = old.iter().zip(&moved).map(|(a, b)| a + b).collect();
    let returns: Vec<f32> = old.iter().zip(&target).map(|(a, b)| a + b).collect();
    let offsets = [0, 1, n as u32];
    let batch = Batch::new(&offsets, &[0, 2], None).unwrap();
    let input = ValueInput { values: &values, values_old: Some(&old), returns: &returns };
    let weight = Weight { per_row: PerRow::AtLeastOne, denominator: 2.0, scale: 0.1 };
    let out = value_loss(&Device::cpu(), &batch, &input, range, &weight).unwrap();
    let (mut compared, mut flat) = (0, 0);
    for i in 0..n {
        let at = |x: f64| oracle::token(x, old[i].into(), returns[i].into(), range.into());
        let v = f64::from(values[i]);
        if at(v).distance_to_kink < KINK {
            continue;
        }
        let w = weight.of(if i == 0 { 1 } else { n as u64 - 1 });
        let want = w * (at(v + STEP).loss - at(v - STEP).loss) / (2.0 * STEP);
        assert!((f64::from(out.gradient[i]) - want).abs() <= FINITE_DIFFERENCE * 3.0 * w, "token {i}");
        (compared, flat) = (compared + 1, flat + usize::from(out.gradient[i] == 0.0));
    }
    assert!(compared > 3900 && flat > 500, "{compared} compared, {flat} clipped");
}

#[test]
fn what_is_refused() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let run = |values: &[f32], old: Option<&[f32]>, returns: &[f32], range: f32| {
        let input = ValueInput { values, values_old: old, returns };
        value_loss(&device, &batch, &input, range, &ONE).map(|_| ()).unwrap_err().to_string()
    };
    let good = [0.5f32, 1.0];
    let infinite = run(&good, Some(&good), &[1.0, f32::INFINITY], 0.5);
    assert_eq!(infinite, "`returns`[1] is inf: expected a finite number");
    assert_eq!(
        run(&good, Some(&[f32::NAN, 0.0]), &good, 0.5),
        "`values_old`[0] is NaN: expected a finite number"
    );
    assert_eq!(run(&good, None, &good, 0.5), "`values_old`: needed to clip values");
    assert!(
        run(&good, Some(&good), &good, 0.0).contains("`cliprange_value` is 0: expected a positive number")
    );
    assert!(run(&good[..1], Some(&good), &good, 0.5).starts_with("`values` has 1 entries: expected 2"));
    assert!(run(&[1e30, 0.0], None, &good, f32::INFINITY).starts_with("`value loss`[0] is not finite"));
    let masked = Batch::new(&[0, 2], &[0, 1], Some(&[0, 1])).unwrap();
    let input = ValueInput { values: &[f32::NAN, 1.0], values_old: None, returns: &good };
    let out = value_loss(&device, &masked, &input, f32::INFINITY, &ONE).unwrap();
    assert_eq!((out.gradient, out.loss), (vec![0.0, 0.0], 0.0), "a masked NaN is not looked at");
}

#[test]
fn explained_variance_of_perfect_constant_and_wrong_values() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 5], &[0, 1], Some(&[1, 1, 0, 1, 1])).unwrap();
    let returns = [1.0, 2.0, f32::NAN, 3.0, 4.0];
    let explained = |values: &[f32], eps| explained_variance(&device, &batch, values, &returns, eps).unwrap();
    assert_eq!(explained(&returns, 0.0), 1.0);
    assert_eq!(explained(&[2.5; 5], 0.0), 0.0);
    assert_eq!(
        explained(&[4.0, 3.0, 0.0, 2.0, 1.0], 0.0),
        -3.0,
        "residuals −3, −1, 1, 3: variance 20/3 of 5/3"
    );
    let eps = 1.0 - (5.0 / 3.0) / (5.0 / 3.0 + 1e-5);
    assert!((explained(&[2.5; 5], 1e-5) - eps).abs() < 1e-12, "verl's eps");
    let bad = explained_variance(&device, &batch, &[0.0, f32::NAN, 0.0, 0.0, 0.0], &returns, 0.0);
    assert_eq!(bad.unwrap_err().to_string(), "`values`[1] is NaN: expected a finite number");
    assert_eq!(explained_variance(&device, &batch, &[0.0; 5], &[1.0; 5], 0.0).unwrap(), 0.0);
}

#[test]
fn the_stage_of_a_recipe() {
    let text = "[value]\ncliprange_value = 0.2\ncoef = 0.5\n[value.aggregation]\nmode = \"token-sum\"\n";
    let recipe = Recipe::from_toml(text).unwrap();
    assert_eq!(recipe, Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap());
    let mode = recipe.value.unwrap().aggregation.mode;
    assert_eq!(
        (mode, recipe.aggregation.mode),
        (AggregationMode::TokenSum, AggregationMode::SeqMeanTokenMean)
    );
    let device = Device::cpu();
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let input = ValueInput { values: &[1.0, 2.0], values_old: Some(&[1.0, 2.0]), returns: &[0.0, 0.0] };
    let out = recipe.value_loss(&device, &batch, &input, None).unwrap();
    assert_eq!((out.gradient, out.loss), (vec![0.5, 1.0], 1.25));
    let mean = Recipe::builder("mean").value(ValueChoice::default()).build().unwrap();
    let counts = Counts { tokens: 8, nonempty: 4, sequences: 4 };
    let part = mean.value_loss(&device, &batch, &input, Some(counts)).unwrap();
    assert_eq!(part.loss, 2.5 / 8.0, "a micro-batch of a batch of eight tokens");
    assert!(matches!(
        Recipe::named("grpo").unwrap().value_loss(&device, &batch, &input, None),
        Err(Error::Recipe(_))
    ));
    for (wrong, names) in [
        ("[value]\ncliprange_value = 0.0\n", "value.cliprange_value"),
        ("[value]\ncoef = nan\n", "value.coef"),
        ("[value.aggregation]\nmode = \"seq-mean-token-sum-norm\"\n", "value.aggregation.horizon"),
        ("[value]\nclip = 0.2\n", "clip"),
        ("[entropy]\ncoef = inf\n", "entropy.coef"),
    ] {
        let error = Recipe::from_toml(wrong).unwrap_err().to_string();
        assert!(error.contains(names), "{error}");
    }
}

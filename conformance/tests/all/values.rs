//! The value loss and the KL terms: by hand, against finite differences, what they refuse, and as stages of a
//! recipe.

use crate::differences::slope;
use crate::prelude::*;
use lockstep::ops::kl;
use lockstep::ops::kl_importance::{ThreePolicies, kl_importance, kl_in_reward};
use lockstep::ops::value_loss::{ValueInput, explained_variance, value_loss};
use lockstep::recipe::ValueChoice;
use lockstep_conformance::oracle::{kl as estimator, kl_importance as weighted, token, value_loss as oracle};

const ONE: Weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };

/// Loss, gradient and clip of one token.
fn one(value: f32, old: f32, ret: f32, range: f32) -> (f32, f32, f64) {
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    let input = ValueInput { values: &[value], values_old: Some(&[old]), returns: &[ret], huber_delta: None };
    let out = value_loss(&Device::cpu(), &batch, &input, range, &ONE).unwrap();
    (out.token_loss[0], out.gradient[0], out.clip_fraction)
}

#[test]
fn worked_6_6_value_loss_branches() {
    for (value, old, range, want, why) in [
        (1.25, 1.0, 0.5, (0.28125, -0.75, 0.0), "inside the range: ½·0.75²"),
        (1.75, 1.0, 0.5, (0.125, 0.0, 1.0), "ran ahead towards the return: ½·0.5², no gradient"),
        (0.25, 1.0, 0.5, (1.53125, -1.75, 0.0), "away from the return: the square of V itself"),
        (3.0, 1.0, 0.5, (0.5, 1.0, 0.0), "overshot past the return: V is further than V_c"),
        (2.5, 1.0, 0.5, (0.125, 0.5, 0.0), "a tie of two branches keeps its gradient"),
        (1.5, 1.0, 0.5, (0.125, -0.5, 0.0), "at the bound"),
        (1.75, 1.0, f32::INFINITY, (0.03125, -0.25, 0.0), "no clipping"),
    ] {
        assert_eq!(one(value, old, 2.0, range), want, "{why}");
    }
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
    let weight = Weight { per_row: PerRow::AtLeastOne, denominator: 2.0, scale: 0.1 };
    for huber_delta in [None, Some(0.75f32)] {
        let input = ValueInput { values: &values, values_old: Some(&old), returns: &returns, huber_delta };
        let out = value_loss(&Device::cpu(), &batch, &input, range, &weight).unwrap();
        let delta = huber_delta.map_or(f64::INFINITY, f64::from);
        let (mut compared, mut flat) = (0, 0);
        for i in 0..n {
            let at = |x: f64| oracle::token(x, old[i].into(), returns[i].into(), range.into(), delta);
            let v = f64::from(values[i]);
            if at(v).distance_to_kink < KINK {
                continue;
            }
            let w = weight.of(if i == 0 { 1 } else { n as u64 - 1 });
            let want = w * slope(|step| at(v + step).loss);
            assert!((f64::from(out.gradient[i]) - want).abs() <= FINITE_DIFFERENCE * 3.0 * w, "token {i}");
            (compared, flat) = (compared + 1, flat + usize::from(out.gradient[i] == 0.0));
        }
        assert!(compared > 3900 && flat > 500, "{compared} compared, {flat} clipped");
    }
}

#[test]
fn what_is_refused() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let good = [0.5f32, 1.0];
    let finite = "expected a finite number";
    for (values, old, returns, range, says) in [
        (&good[..], Some(&good[..]), &[1.0, f32::INFINITY], 0.5, format!("`returns`[1] is inf: {finite}")),
        (&good, Some(&[f32::NAN, 0.0]), &good, 0.5, format!("`values_old`[0] is NaN: {finite}")),
        (&good, None, &good, 0.5, "`values_old`: needed to clip values".into()),
        (&good, Some(&good), &good, 0.0, "…`cliprange_value` is 0: expected a positive number…".into()),
        (&good[..1], Some(&good), &good, 0.5, "`values` has 1 entries: expected 2…".into()),
        (&[1e30, 0.0], None, &good, f32::INFINITY, "`value loss`[0] is not finite…".into()),
    ] {
        let input = ValueInput { values, values_old: old, returns, huber_delta: None };
        refused(value_loss(&device, &batch, &input, range, &ONE), &says);
    }
    let masked = Batch::new(&[0, 2], &[0, 1], Some(&[0, 1])).unwrap();
    let input = ValueInput { values: &[f32::NAN, 1.0], values_old: None, returns: &good, huber_delta: None };
    let out = value_loss(&device, &masked, &input, f32::INFINITY, &ONE).unwrap();
    assert_eq!((out.gradient, out.loss), (vec![0.0, 0.0], 0.0), "a masked NaN is not looked at");
}

#[test]
fn explained_variance_of_perfect_constant_and_wrong_values() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 5], &[0, 1], Some(&[1, 1, 0, 1, 1])).unwrap();
    let returns = [1.0, 2.0, f32::NAN, 3.0, 4.0];
    let run = |values: &[f32], eps| explained_variance(&device, &batch, values, &returns, eps);
    // Residuals −3, −1, 1, 3: variance 20/3 of 5/3.
    for (values, want) in [(&returns, 1.0), (&[2.5; 5], 0.0), (&[4.0, 3.0, 0.0, 2.0, 1.0], -3.0)] {
        assert_eq!(run(values, 0.0).unwrap(), want);
    }
    let eps = 1.0 - (5.0 / 3.0) / (5.0 / 3.0 + 1e-5);
    assert!((run(&[2.5; 5], 1e-5).unwrap() - eps).abs() < 1e-12, "verl's eps");
    refused(run(&[0.0, f32::NAN, 0.0, 0.0, 0.0], 0.0), "`values`[1] is NaN: expected a finite number");
    let infinite = explained_variance(&device, &batch, &[0.0; 5], &[0.0, f32::INFINITY, 0.0, 0.0, 0.0], 0.0);
    refused(infinite, "`returns`[1] is inf: expected a finite number");
    refused(run(&[0.0; 5], f64::NAN), "`eps`…");
    assert_eq!(explained_variance(&device, &batch, &[0.0; 5], &[1.0; 5], 0.0).unwrap(), 0.0);
}

#[test]
fn the_stage_of_a_recipe() {
    let text = "[value]\ncliprange_value = 0.2\ncoef = 0.5\n[value.aggregation]\nmode = \"token-sum\"\n";
    let recipe = Recipe::from_toml(text).unwrap();
    assert_eq!(recipe, Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap());
    let modes = (recipe.value.unwrap().aggregation.mode, recipe.aggregation.mode);
    assert_eq!(modes, (AggregationMode::TokenSum, AggregationMode::SeqMeanTokenMean));
    let device = Device::cpu();
    let (logp, values) = (Some(&[-1.0f32, -1.0][..]), Some(&[1.0f32, 2.0][..]));
    let rollouts =
        Rollouts { logp, logp_old: logp, values, values_old: values, ..Rollouts::new(&[0, 2], &[0, 1]) };
    let credit = Credit { returns: vec![0.0, 0.0], ..Credit::per_sequence(vec![1.0]) };
    let value = recipe.loss(&device, &rollouts, &credit).unwrap().value.unwrap();
    assert_eq!((value.gradient, value.loss), (vec![0.5, 1.0], 1.25));
    let mean = Recipe::builder("mean").value(ValueChoice::default()).build().unwrap();
    let part = Rollouts { counts: Some(&[8, 4, 4]), ..rollouts };
    let part = mean.loss(&device, &part, &credit).unwrap().value.unwrap();
    assert_eq!(part.loss, 2.5 / 8.0, "a micro-batch of a batch of eight tokens");
    for (credit, says) in [
        (Credit::per_sequence(vec![1.0]), "`credit.returns`: needed by [value]…"),
        (Credit { returns: vec![0.0], ..credit }, "`credit.returns` has 1 entries: expected 2…"),
    ] {
        refused(recipe.loss(&device, &rollouts, &credit), says);
    }
    for (text, says) in [
        ("[value]\ncliprange_value = 0.0\n", "…value.cliprange_value…"),
        ("[value]\ncoef = nan\n", "…value.coef…"),
        ("[value.aggregation]\nmode = \"seq-mean-token-sum-norm\"\n", "…value.aggregation.horizon…"),
        ("[value]\nclip = 0.2\n", "…clip…"),
        ("[entropy]\ncoef = inf\n", "…entropy.coef…"),
    ] {
        refused(Recipe::from_toml(text), says);
    }
}

#[test]
fn worked_8_2_k3_with_importance_weights() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    // u, k3, dk3/dlogp of docs/maths/vectors.md, and a log-ratio.
    for (u, k3, slope, d) in [
        (-1.0f32, 0.367879, 0.632121, 0.5f32),
        (0.5, 0.148721, -0.648721, -0.25),
        (2.0, 4.389056, -6.389056, 0.0),
    ] {
        let r = f64::from(d).exp();
        let policies = ThreePolicies { logp: &[-4.0], logp_old: &[-4.0 - d], logp_ref: &[-4.0 + u] };
        let run =
            |kl: Kl, guard, through| kl_importance(&device, &batch, &policies, &kl, guard, through).unwrap();
        let close = |got: f32, want: f64| (f64::from(got) - want).abs() <= 1e-6 * want.abs().max(1.0);
        let detached = run(Kl::UNCLAMPED_K3, Guard::NONE, false);
        assert!(close(detached.kl[0], r * k3) && close(detached.gradient[0], r * slope), "{u}");
        let through = run(Kl::UNCLAMPED_K3, Guard::NONE, true);
        assert!(close(through.kl[0], r * k3) && close(through.gradient[0], -r * f64::from(u)), "{u}: r·x");
        let guarded = run(Kl::UNCLAMPED_K3, Guard::clamp(0.125), true);
        let bounded = f64::from(d.clamp(-0.125, 0.125)).exp();
        let slope = if d == 0.0 { slope + k3 } else { slope };
        assert!(close(guarded.gradient[0], bounded * slope), "{u}: nothing flows through a clamped r");
        if d == 0.0 {
            let alone = kl(&device, &batch, policies.logp, policies.logp_ref, &Kl::UNCLAMPED_K3).unwrap();
            assert_eq!((alone.kl[0], alone.gradient[0]), (detached.kl[0], detached.gradient[0]));
        }
    }
}

#[test]
fn row_1_3_clamp_of_the_input_is_redundant_beside_the_clamp_of_the_value() {
    let device = Device::cpu();
    let n = 4000usize;
    let source = Source::new(8);
    let logp: Vec<f32> = (0..n).map(|i| -200.0 * source.unit(i)).collect();
    let reference: Vec<f32> = (0..n).map(|i| -200.0 * source.fork(1).unit(i)).collect();
    let offsets = [0, n as u32];
    let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
    let both = kl(&device, &batch, &logp, &reference, &Kl::LOW_VAR_KL).unwrap();
    let value = Kl { clamp_in: f32::INFINITY, ..Kl::LOW_VAR_KL };
    assert_eq!(both, kl(&device, &batch, &logp, &reference, &value).unwrap());
}

#[test]
fn importance_weighted_gradient_is_that_of_its_value() {
    let device = Device::cpu();
    let n = 2000usize;
    let source = Source::new(21);
    let draw = |fork: u64| -> Vec<f32> { (0..n).map(|i| -4.0 * source.fork(fork).unit(i)).collect() };
    let (logp, old, reference) = (draw(1), draw(2), draw(3));
    let offsets = [0, n as u32];
    let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
    let policies = ThreePolicies { logp: &logp, logp_old: &old, logp_ref: &reference };
    let out = kl_importance(&device, &batch, &policies, &Kl::UNCLAMPED_K3, Guard::clamp(2.0), true).unwrap();
    let formula = estimator::Kl {
        estimator: estimator::KlFormula::K3,
        clamp_in: f64::INFINITY,
        clamp_out: f64::INFINITY,
        straight_through: false,
    };
    let (mut compared, mut clamped) = (0, 0);
    for i in 0..n {
        let (x, d) = (f64::from(logp[i]) - f64::from(reference[i]), f64::from(logp[i]) - f64::from(old[i]));
        let guard = token::Guard::Clamp(2.0);
        if guard.distance_to_kink(d) < KINK {
            continue;
        }
        let value = |step: f64| weighted::token(&formula, guard, true, x + step, d + step).0;
        let want = slope(value);
        let error = (f64::from(out.gradient[i]) - want).abs() / want.abs().max(1.0);
        assert!(error <= FINITE_DIFFERENCE, "token {i}: {} against {want}", out.gradient[i]);
        (compared, clamped) = (compared + 1, clamped + usize::from(!guard.inside(d)));
    }
    assert!(compared > 1900 && clamped > 200, "{compared} compared, {clamped} of them clamped");
}

#[test]
fn what_the_kl_terms_refuse() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let good = [-0.5f32, -1.0];
    let k1 = Kl::new(KlFormula::K1);
    for (logp_old, logp_ref, kl, guard, through, says) in [
        (&[-0.5, 0.5], &good, Kl::LOW_VAR_KL, Guard::NONE, true, "`logp_old`[1] is 0.5…"),
        (&good, &good, Kl::LOW_VAR_KL, Guard::clamp(0.0), true, "`guard` is 0…"),
        (&[-0.5, -1e30], &[-9.0, -9.0], k1, Guard::NONE, false, "`kl`[1] is not finite…"),
    ] {
        let policies = ThreePolicies { logp: &good, logp_old, logp_ref };
        refused(kl_importance(&device, &batch, &policies, &kl, guard, through), says);
    }
    for (rewards, beta, says) in [
        (&[0.0, f32::NAN][..], 0.1, "`token rewards`[1] is NaN…"),
        (&[0.0, 0.0], f32::NAN, "`kl beta` is NaN…"),
        (&[0.0], 0.1, "`token rewards` has 1 entries…"),
    ] {
        refused(kl_in_reward(&device, &batch, rewards, &good, &good, &k1, beta), says);
    }
}

//! The worked vectors of docs/maths/vectors.md: the oracle's formulas and Lockstep against the printed
//! numbers.

use crate::gate_batch::close;
use crate::prelude::*;
use lockstep::PolicyInput;
use lockstep::core::advantage::{Baseline, Scale, Singleton};
use lockstep::core::gate::{Gate, PpoClip, Sapo};
use lockstep::core::policy_loss::PolicyLoss;
use lockstep::ops::policy_loss::{PolicyParams, policy_loss};
use lockstep::ops::{group_advantage, kl};
use lockstep::recipe::AdvantageChoice;
use lockstep_conformance::oracle::{self, baseline};

/// One token with this gate and nothing else.
pub(crate) fn alone<G: Gate>(gate: G, a: f32, (logp, logp_old): (f32, f32)) -> PolicyOutput
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    let weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };
    let (level, guard, band) = (RatioGranularity::Token, Guard::NONE, [0.5, 2.0]);
    let params = PolicyParams { gate, level, guard, kl: None, kl_weighted: false, weight, band };
    let (logp, logp_old, a) = ([logp], [logp_old], [a]);
    let input = PolicyInput::new(&logp, &logp_old, Advantage::PerSequence(&a));
    let mut out = PolicyOutput::default();
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    policy_loss(&Device::cpu(), &batch, &input, &params, &mut out).unwrap();
    out
}

/// Loss and dl/dlogp of one token.
fn token<G: Gate>(gate: G, a: f64, r: f64) -> (f64, f64)
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    let d = r.ln() as f32;
    let out = alone(gate, a as f32, if d > 0.0 { (0.0, -d) } else { (d, 0.0) });
    (out.loss.unwrap(), out.coef[0].into())
}

#[test]
fn sapo_8_1() {
    // tau, r, f(r), w(r), r·w(r)
    let table = [
        (1.00, 0.25, 1.283285203, 0.871579975, 0.217894994),
        (1.00, 0.5, 1.510162675, 0.940014849, 0.470007424),
        (1.00, 1.0, 2.000000000, 1.0, 1.0),
        (1.00, 1.5, 2.489837325, 0.940014849, 1.410022273),
        (1.00, 3.0, 3.523188312, 0.419974342, 1.259923025),
        (1.00, 10.0, 3.999506422, 0.000493517, 0.004935174),
        (1.05, 0.5, 1.415938330, 0.934139823, 0.467069912),
        (1.05, 1.0, 1.904761905, 1.0, 1.0),
        (1.05, 3.0, 3.393916872, 0.388778819, 1.166336458),
        (1.05, 10.0, 3.809224063, 0.000314709, 0.003147087),
    ];
    for (tau, r, f, w, rw) in table {
        let formula = oracle::sapo::Sapo { tau_pos: tau, tau_neg: tau };
        assert!(close(formula.f(r, 1.0), f) && close(formula.weight(r, 1.0), w), "oracle, tau {tau}, r {r}");
        assert!(close(formula.gradient(r, 1.0), -rw), "oracle, tau {tau}, r {r}");
        let gate = Sapo::new(tau as f32, tau as f32);
        for a in [1.0, -1.0] {
            let (loss, gradient) = token(gate, a, r);
            assert!(close(loss, -f * a) && close(gradient, -rw * a), "tau {tau}, r {r}: {loss} {gradient}");
        }
    }
}

#[test]
fn ppo_8_1() {
    let formula = oracle::ppo_clip::PpoClip { low: 0.2, high: 0.28, dual: 3.0 };
    let gate = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 3.0 };
    let table = [
        (1.0, 1.1, -1.1, -1.1),
        (1.0, 1.5, -1.28, 0.0),
        (1.0, 0.5, -0.5, -0.5),
        (-1.0, 0.5, 0.8, 0.0),
        (-1.0, 1.5, 1.5, 1.5),
        (-1.0, 4.0, 3.0, 0.0),
    ];
    for (a, r, loss, gradient) in table {
        for got in [(formula.loss(r, a), formula.gradient(r, a)), token(gate, a, r)] {
            assert!(close(got.0, loss) && close(got.1, gradient), "A {a}, r {r}: {got:?}");
        }
    }
}

#[test]
fn kl_8_2() {
    let names = [
        (KlFormula::K1, oracle::kl::KlFormula::K1),
        (KlFormula::K2, oracle::kl::KlFormula::K2),
        (KlFormula::K3, oracle::kl::KlFormula::K3),
    ];
    // u, [k1, k2, k3], [their derivatives]
    let table = [
        (-1.0, [1.0, 0.5, 0.367879], [1.0, 1.0, 0.632121]),
        (0.5, [-0.5, 0.125, 0.148721], [1.0, -0.5, -0.648721]),
        (2.0, [-2.0, 2.0, 4.389056], [1.0, -2.0, -6.389056]),
        (3.0, [-3.0, 4.5, 16.085537], [1.0, -3.0, -19.085537]),
    ];
    for (u, values, gradients) in table {
        for (k, (estimator, oracle_estimator)) in names.into_iter().enumerate() {
            let (clamp_in, clamp_out) = (f64::INFINITY, f64::INFINITY);
            let formula =
                oracle::kl::Kl { estimator: oracle_estimator, clamp_in, clamp_out, straight_through: false };
            for got in [(formula.value(-u), formula.gradient(-u)), one_kl(u, Kl::new(estimator))] {
                assert!(close(got.0, values[k]) && close(got.1, gradients[k]), "{u} {estimator:?}: {got:?}");
            }
            let plus = one_kl(u, Kl { straight_through: true, ..Kl::new(estimator) });
            assert!(close(plus.0, values[k]) && close(plus.1, -u), "u {u} {estimator:?}+: {plus:?}");
        }
    }
    // verl's clamp of the value; of u, then of the value; e^-20 + 20 - 1 is above 10 too.
    for u in [3.0, 25.0, -25.0] {
        assert_eq!(one_kl(u, Kl::guarded(KlFormula::K3)), (10.0, 0.0), "{u}");
    }
    let only_in = Kl { clamp_in: 2.0, ..Kl::new(KlFormula::K3) };
    assert!(close(one_kl(3.0, only_in).0, 4.389056) && one_kl(3.0, only_in).1 == 0.0);
    assert!(close(one_kl(2.0, only_in).1, -6.389056), "the bound itself is inside");
}

fn one_kl(u: f64, estimator: Kl) -> (f64, f64) {
    // logp_ref − logp = u.
    let (logp, logp_ref) = if u > 0.0 { ([-u as f32], [0.0]) } else { ([0.0], [u as f32]) };
    let batch = Batch::new(&[0, 1], &[0, 1], None).unwrap();
    let out = kl(&Device::cpu(), &batch, &logp, &logp_ref, &estimator).unwrap();
    (out.kl[0].into(), out.gradient[0].into())
}

#[test]
fn worked_8_6_grpo_and_dr_grpo() {
    let batch = Batch::new(&[0, 1, 2, 3, 4, 5], &[0, 5], None).unwrap();
    let rewards = [1.0f32, 0.0, 0.0, 1.0, 0.0];
    let table = [
        (true, 1, 1e-6, 1.095443, -0.730295),
        (true, 0, 1e-6, 1.224742, -0.816495),
        (false, 1, 1e-6, 0.6, -0.4),
    ];
    for (norm_by_std, ddof, eps, good, bad) in table {
        let want = [good, bad, bad, good, bad];
        let params = GroupParams::grpo(norm_by_std, ddof, eps).singleton(Singleton::Zero);
        let got = group_advantage(&Device::cpu(), &batch, &rewards, None, &params).unwrap();
        let n = f64::from(ddof);
        let scale = match norm_by_std {
            true => baseline::Scale::Std { ddof: n, eps },
            false => baseline::Scale::None { ddof: n },
        };
        let members = rewards.map(|r| Some(baseline::Member { reward: r.into(), weight: 1.0 }));
        let limits = [f64::INFINITY, 0.0];
        let group = baseline::group(baseline::Baseline::Mean, scale, limits, &members, 0.0, false);
        for (i, want) in want.into_iter().enumerate() {
            assert!(close(got.advantage[i].into(), want), "{:?}", got.advantage);
            assert!(close(group.advantage[i], want), "oracle: {group:?}");
        }
        assert!(close(got.mean[0].into(), 0.4));
        assert_eq!((got.counted[0], got.constant_groups(), got.singleton_groups()), (5, 0, 0));
    }
}

fn of_named(name: &str, rewards: &[f32], lengths: &[u32]) -> Credit {
    of_group(name, rewards, lengths, |_| {})
}

/// Advantages of one group through the public API.
fn of_group(name: &str, rewards: &[f32], lengths: &[u32], edit: impl Fn(&mut AdvantageChoice)) -> Credit {
    let (cu_seqlens, cu_groups) = (offsets_of(lengths.iter().copied()), [0, rewards.len() as u32]);
    let rollouts = Rollouts { rewards: Some(rewards), ..Rollouts::new(&cu_seqlens, &cu_groups) };
    let mut recipe = Recipe::named(name).unwrap();
    edit(&mut recipe.advantage);
    recipe.check().unwrap();
    recipe.advantages(&Device::cpu(), &rollouts).unwrap()
}

#[test]
fn worked_8_6_rloo_opo_mc_grpo_and_row_10_12() {
    let rewards = [1.0f32, 0.0, 0.0, 1.0, 0.0];
    let lengths = [10, 20, 30, 40, 50];
    let rloo = of_named("rloo", &rewards, &lengths);
    assert_worked(&rloo.advantage, &[0.75, -0.5, -0.5, 0.75, -0.5]);
    let opo = of_named("opo", &rewards, &lengths);
    let (good, bad) = (0.666667, -0.333333);
    assert_worked(&opo.advantage, &[good, bad, bad, good, bad]);
    assert_worked(&opo.groups.mean, &[1.0 / 3.0]);

    let binary = of_named("mc_grpo", &rewards, &lengths);
    assert_worked(&binary.advantage, &[1000.0, 0.0, 0.0, 1000.0, 0.0]);
    let groups = binary.groups;
    // The pivot is the first of the zeros.
    assert_eq!((groups.mean[0], groups.std[0], groups.pivot[0]), (0.0, 0.0, 1));
    let limited = of_group("mc_grpo", &rewards, &lengths, |a| a.limit = Some(5.0));
    assert_worked(&limited.advantage, &[5.0, 0.0, 0.0, 5.0, 0.0]);
    let real = of_named("mc_grpo", &[0.1, 0.4, 0.5, 0.9, 0.7], &lengths);
    assert_worked(&real.advantage, &[-1.990050, -0.497512, 0.0, 1.990050, 0.995025]);
    assert_worked(&[real.groups.mean[0], real.groups.std[0]], &[0.5, 0.2]);
    assert_eq!(real.groups.pivot, [2]);
    // An even group: the lower median, not the mean of the middle two (row 12 of
    // docs/maths/disagreements.md).
    let even = of_group("mc_grpo", &[0.0, 1.0, 3.0, 9.0], &lengths[..4], |a| a.mad_floor = Some(0.0));
    assert_eq!((even.groups.mean[0], even.groups.std[0], even.groups.pivot[0]), (1.0, 1.0, 1));
}

/// By hand from the formulas of docs/maths/advantages.md, where no vector is printed.
#[test]
fn baselines_by_hand() {
    for (name, good, bad) in [
        ("grpo", 1.095443, -0.730295),
        ("verl", 1.095443, -0.730295),
        ("dr_grpo", 0.6, -0.4),
        ("trl", 1.095245, -0.730163),
        ("gpg", 1.5, -1.0),
        // Over 0.4 + 1e-6.
        ("max_rl", 1.499996, -0.999998),
        // A tie of maxima.
        ("pass_k", 0.0, 0.0),
        // One group: the batch's deviation is its own, sqrt(0.3), and eps 1e-4 as in `trl`.
        ("lite_ppo", 1.095245, -0.730163),
        // For a 1 the others are {0, 0, 1, 0}: mean 1/4, std 1/2; for a 0 they are {1, 0, 1, 0}: mean 1/2,
        // std 0.577350.
        ("nemo", 1.499997, -0.866024),
        // Mean 0.4, one token each: ddof 1 variance 0.3.
        ("reinforce_plus_plus_baseline", 1.095445, -0.730297),
    ] {
        let got = of_named(name, &[1.0, 0.0, 0.0, 1.0, 0.0], &[1; 5]);
        assert_worked(&got.advantage, &[good, bad, bad, good, bad]);
    }
    let best = of_group("pass_k", &[0.25, 1.0, 0.5], &[1; 3], |a| a.norm_by_std = false);
    assert_eq!((&best.advantage[..], &best.groups.pivot[..]), (&[0.0, 0.5, 0.0][..], &[1][..]));
    // All others equal: a deviation of exactly 0, so nothing is divided (NeMo-RL #4158).
    let one = of_named("nemo", &[0.1, 0.1, 0.1, 0.1, 1.1], &[1; 5]);
    assert_worked(&one.advantage[4..], &[1.0]);
    // A group of 4096 works, medians included.
    let large: Vec<f32> = (0..4096).map(|i| (i * 2047 % 4096) as f32).collect();
    let got = of_named("mc_grpo", &large, &[1; 4096]);
    assert_eq!((got.groups.mean[0], got.groups.std[0]), (2047.0, 1024.0));
}

#[test]
fn row_10_2_singletons_by_name() {
    // Row 2 of docs/maths/disagreements.md: verl's list versions give the raw reward; TRL and verl's
    // vectorised RLOO give zero.
    for (name, want) in [
        ("rloo", 0.7),
        ("verl_rloo_vectorized", 0.0),
        ("opo", 0.7),
        ("verl", 0.7 / 1.000001),
        ("trl", 0.0),
        ("mc_grpo", 0.0),
    ] {
        assert_worked(&of_named(name, &[0.7], &[3]).advantage, &[want]);
    }
    let zero = of_group("rloo", &[0.7], &[3], |a| a.singleton = SingletonChoice::Zero);
    assert_eq!(zero.advantage, [0.0]);
}

#[test]
fn shrinkage_by_hand() {
    // V0.5-style (our reading), docs/maths/rewards.md: r̄ 0.5, s² 1/3 of n = 4, s²/n 1/12.
    let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None).unwrap();
    let rewards = [1.0f32, 0.0, 1.0, 0.0];
    let baseline = |prior: f32, tau2: f64, laplace: bool| {
        let params = GroupParams {
            given: Some(&[prior]),
            ..GroupParams::new(Baseline::Shrunk { tau2, laplace }, Scale::None { ddof: 1 })
        };
        f64::from(group_advantage(&Device::cpu(), &batch, &rewards, None, &params).unwrap().mean[0])
    };
    for (prior, tau2, laplace, want, why) in [
        (0.25, 0.0, false, 0.25, "inside the noise: the prior"),
        (1.0, 0.0, false, 0.5 + 0.5 / 3.0, "λ = (1/12)/(1/4)"),
        (1.0, 0.25, false, 0.5 + 0.125, "λ = (1/12)/(1/12 + 1/4)"),
        (1.0, 0.0, true, 0.625, "Laplace: p 3/6, s² 1/4, s²/n 1/16"),
    ] {
        assert!(close(baseline(prior, tau2, laplace), want), "{why}");
    }
}

#[test]
fn worked_8_6_pass_at_k() {
    let rewards = [1.0f32, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let batch = Batch::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8], &[0, 8], None).unwrap();
    let got = lockstep::ops::pass_at_k(&Device::cpu(), &batch, &rewards, None, 4, 0.5, 0.0).unwrap();
    let (rate, good, bad) = oracle::pass_at_k::group(2, 6, 4, 0.0).unwrap();
    assert!(close(rate, 0.785714) && close(good, 0.522233) && close(bad, -0.174078), "oracle");
    assert_worked(&got.pass_at_k, &[0.785714]);
    assert_worked(&got.advantage[..3], &[0.522233, 0.522233, -0.174078]);
    let sum: f64 = got.advantage.iter().map(|a| f64::from(*a)).sum();
    assert!(sum.abs() < WORKED, "{sum}");
}

/// Row 24 of docs/maths/disagreements.md, by hand: the components are (±1/√2)·(√2) in groups of two, so a =
/// (1.5, −1.5, 0.5, −0.5) up to eps.
#[test]
fn row_10_24_gdpo_batch_step() {
    let batch = Batch::new(&[0, 3, 4, 5, 6], &[0, 2, 4], None).unwrap();
    let rewards = [1.0f32, 0.0, 1.0, 0.0, 0.4, 0.2, 0.1, 0.3];
    let scale = std::f64::consts::FRAC_1_SQRT_2;
    let a = [1.5 * scale, -1.5 * scale, 0.5 * scale, -0.5 * scale];
    let group = GroupParams::grpo(true, 1, 0.0);
    for (params, count) in [(WhitenParams::VERL, [3.0, 1.0, 1.0, 1.0]), (WhitenParams::TRL, [1.0; 4])] {
        let n: f64 = count.iter().sum();
        let mean = a.iter().zip(count).map(|(a, n)| a * n).sum::<f64>() / n;
        let variance = a.iter().zip(count).map(|(a, n)| n * (a - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let divisor = if n > 4.0 { (variance + 1e-8).sqrt() } else { variance.sqrt() + 1e-4 };
        let want = a.map(|a| (a - mean) / divisor);
        let got =
            lockstep::ops::gdpo(&Device::cpu(), &batch, &rewards, &[1.0, 0.5], &group, &params).unwrap();
        assert_worked(&got, &want);
    }
}

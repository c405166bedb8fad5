//! Log-ratios of ±1e4: under a clamp, value *and* gradient are finite; without one, an overflow is an error
//! that gives the position.

use lockstep::recipe::{GuardChoice, KlChoice, KlEstimator, KlPlace, KlRatio, KlWeighting};
use lockstep::{Credit, Device, Error, Loss, Outputs, Recipe, Rollouts, core};

const LOGP: [f32; 6] = [0.0, -1e4, -0.0, -1e4, -0.5, -1e4];
const OLD: [f32; 6] = [-1e4, 0.0, -1e4, -1e-30, -0.5, -1e4];

/// Three sequences of two tokens, or one of six.
fn far<'a>(logp: &'a [f32], groups: &'a [u32]) -> Rollouts<'a> {
    let offsets: &[u32] = if groups[1] == 3 { &[0, 2, 4, 6] } else { &[0, 6] };
    Rollouts { logp: Some(logp), logp_old: Some(&OLD), ..Rollouts::new(offsets, groups) }
}

fn recipes() -> Vec<Recipe> {
    let choices = [GuardChoice::Clamp, GuardChoice::StraightThrough];
    let builders = choices.map(|guard| {
        let ppo = Recipe::builder("ppo").guard(guard, 20.0).ppo_clip(0.2, 0.28, None);
        let dual = Recipe::builder("dual").guard(guard, 20.0).ppo_clip(0.2, 0.28, Some(3.0));
        let sapo = Recipe::builder("sapo").guard(guard, 20.0).sapo(1.0, 1.05);
        [ppo, dual, sapo].map(|b| b.build().unwrap())
    });
    builders.into_iter().flatten().collect()
}

#[test]
fn finite_under_a_guard() {
    for recipe in recipes() {
        for advantage in [[1.0f32, 2.0, -1.0], [-1.0, -3.0, 0.0]] {
            let credit = Credit::per_sequence(advantage.to_vec());
            let out = recipe.loss(&Device::cpu(), &far(&LOGP, &[0, 3]), &credit).unwrap();
            let metrics = out.policy.metrics.as_ref().unwrap();
            assert!(out.coef.iter().chain(&out.token_loss).all(|x| x.is_finite()), "{}", recipe.name);
            assert!(
                out.loss.unwrap().is_finite()
                    && metrics.ratio_max.is_finite()
                    && metrics.ratio_std.is_finite()
            );
            assert_eq!(metrics.guarded_tokens, 4);
            if recipe.ratio.guard == GuardChoice::Clamp {
                assert_eq!(out.coef[..4], [0.0; 4], "no gradient outside of the clamp");
            }
        }
    }
}

#[test]
fn kl_of_far_policies() {
    let kl = |clamp_in, clamp_out| KlChoice {
        estimator: KlEstimator::K3,
        coef: 0.1,
        clamp_in,
        clamp_out,
        straight_through: false,
        importance_weighted: KlWeighting::None,
        ratio: KlRatio::Token,
        place: KlPlace::Loss,
    };
    let run = |choice| {
        let recipe = Recipe::builder("kl").kl(choice).build().unwrap();
        let rollouts = Rollouts { logp_old: Some(&LOGP), logp_ref: Some(&OLD), ..far(&LOGP, &[0, 1]) };
        recipe.loss(&Device::cpu(), &rollouts, &Credit::per_sequence(vec![1.0]))
    };
    let out = run(kl(Some(20.0), Some(10.0))).unwrap();
    assert!(out.coef.iter().all(|x| x.is_finite()) && out.loss.unwrap().is_finite());
    assert!(out.policy.metrics.unwrap().kl_ref_mean <= 10.0);
    assert!(run(kl(Some(20.0), None)).unwrap().coef.iter().all(|x| x.is_finite()));
    // Only the value is clamped: exp(1e4) overflows, yet the clamp returns 10 with gradient 0.
    assert!(run(kl(None, Some(10.0))).unwrap().coef.iter().all(|x| x.is_finite()));
    let error = run(kl(None, None)).unwrap_err();
    let Error::Argument(core::Error::NotFinite { result: "coef", index: 1, .. }) = error else {
        panic!("{error:?}");
    };
}

#[test]
fn without_a_guard_an_overflow_is_an_error() {
    let rollouts = far(&LOGP, &[0, 3]);
    let recipe = Recipe::named("trl").unwrap();
    let credit = Credit::per_sequence(vec![1.0, -1.0, 1.0]);
    let error = recipe.loss(&Device::cpu(), &rollouts, &credit).unwrap_err();
    let Error::Argument(core::Error::NotFinite { result: "coef", index: 2, hint }) = error else {
        panic!("{error:?}");
    };
    assert!(hint.contains("guard"), "{hint}");
    // A > 0 is clipped at 1 + eps, and SAPO fades: no overflow in either.
    let credit = Credit::per_sequence(vec![1.0; 3]);
    for name in ["trl", "trl_sapo"] {
        let (recipe, mut out) = (Recipe::named(name).unwrap(), Loss::default());
        recipe.loss_into(&Device::cpu(), &rollouts, &credit, Outputs::COEF, &mut out).unwrap();
        assert!(out.coef.iter().all(|x| x.is_finite()), "{name}");
    }
}

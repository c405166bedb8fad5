//! Log-ratios of ±1e4: under a clamp value *and* gradient are finite; without one an overflow is an error that says where.

use lockstep::recipe::{GuardChoice, KlChoice, KlEstimator, KlPlace, KlWeighting};
use lockstep::{Advantage, Batch, Device, Error, Outputs, PolicyInput, Recipe, core};

const LOGP: [f32; 6] = [0.0, -1e4, -0.0, -1e4, -0.5, -1e4];
const OLD: [f32; 6] = [-1e4, 0.0, -1e4, -1e-30, -0.5, -1e4];

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
    let batch = Batch::new(&[0, 2, 4, 6], &[0, 3], None).unwrap();
    for recipe in recipes() {
        for advantage in [[1.0f32, 2.0, -1.0], [-1.0, -3.0, 0.0]] {
            let input = PolicyInput::new(&LOGP, &OLD, Advantage::PerSequence(&advantage));
            let out = recipe.policy_loss(&Device::cpu(), &batch, &input).unwrap();
            let metrics = out.metrics.unwrap();
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
    let batch = Batch::new(&[0, 6], &[0, 1], None).unwrap();
    let kl = |clamp_in, clamp_out| KlChoice {
        estimator: KlEstimator::K3,
        coef: 0.1,
        clamp_in,
        clamp_out,
        straight_through: false,
        importance_weighted: KlWeighting::None,
        place: KlPlace::Loss,
    };
    let run = |choice| {
        let recipe = Recipe::builder("kl").kl(choice).build().unwrap();
        let input = PolicyInput {
            logp_ref: Some(&OLD),
            ..PolicyInput::new(&LOGP, &LOGP, Advantage::PerSequence(&[1.0]))
        };
        recipe.policy_loss(&Device::cpu(), &batch, &input)
    };
    let out = run(kl(Some(20.0), Some(10.0))).unwrap();
    assert!(out.coef.iter().all(|x| x.is_finite()) && out.loss.unwrap().is_finite());
    assert!(out.metrics.unwrap().kl_ref_mean <= 10.0);
    assert!(run(kl(Some(20.0), None)).unwrap().coef.iter().all(|x| x.is_finite()));
    // Only the value is clamped: exp(1e4) overflows, and the clamp returns 10 with gradient 0 all the same.
    assert!(run(kl(None, Some(10.0))).unwrap().coef.iter().all(|x| x.is_finite()));
    let error = run(kl(None, None)).unwrap_err();
    let Error::Argument(core::Error::NotFinite { result: "coef", index: 1, .. }) = error else {
        panic!("{error:?}");
    };
}

#[test]
fn without_a_guard_an_overflow_is_an_error() {
    let batch = Batch::new(&[0, 2, 4, 6], &[0, 3], None).unwrap();
    let recipe = Recipe::named("trl").unwrap();
    let input = PolicyInput::new(&LOGP, &OLD, Advantage::PerSequence(&[1.0, -1.0, 1.0]));
    let error = recipe.policy_loss(&Device::cpu(), &batch, &input).unwrap_err();
    let Error::Argument(core::Error::NotFinite { result: "coef", index: 2, hint }) = error else {
        panic!("{error:?}");
    };
    assert!(hint.contains("guard"), "{hint}");
    // A > 0 is clipped at 1 + eps and SAPO fades: no overflow in either.
    let input = PolicyInput::new(&LOGP, &OLD, Advantage::PerSequence(&[1.0, 1.0, 1.0]));
    for name in ["trl", "trl_sapo"] {
        let input = PolicyInput { outputs: Outputs::COEF, ..input };
        let out = Recipe::named(name).unwrap().policy_loss(&Device::cpu(), &batch, &input).unwrap();
        assert!(out.coef.iter().all(|x| x.is_finite()), "{name}");
    }
}

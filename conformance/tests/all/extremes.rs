//! Log-ratios of ±1e4: under a clamp, value *and* gradient are finite; without one, an overflow is an error
//! that gives the position.

use lockstep::recipe::GuardChoice;
use lockstep::{Credit, Device, Error, Loss, Outputs, Recipe, Rollouts, core};

const LOGP: [f32; 6] = [0.0, -1e4, -0.0, -1e4, -0.5, -1e4];
const OLD: [f32; 6] = [-1e4, 0.0, -1e4, -1e-30, -0.5, -1e4];

/// Three sequences of two tokens.
fn far() -> Rollouts<'static> {
    Rollouts { logp: Some(&LOGP), logp_old: Some(&OLD), ..Rollouts::new(&[0, 2, 4, 6], &[0, 3]) }
}

/// Index and hint of a coefficient that is no number.
fn overflow(error: Error) -> (usize, &'static str) {
    match error {
        Error::Argument(core::Error::NotFinite { result: "coef", index, hint }) => (index, hint),
        other => panic!("{other:?}"),
    }
}

#[test]
fn finite_under_a_guard() {
    for guard in [GuardChoice::Clamp, GuardChoice::StraightThrough] {
        let ppo = Recipe::builder("ppo").ppo_clip(0.2, 0.28, None);
        let dual = Recipe::builder("dual").ppo_clip(0.2, 0.28, Some(3.0));
        for builder in [ppo, dual, Recipe::builder("sapo").sapo(1.0, 1.05)] {
            let recipe = builder.guard(guard, 20.0).build().unwrap();
            for advantage in [[1.0f32, 2.0, -1.0], [-1.0, -3.0, 0.0]] {
                let credit = Credit::per_sequence(advantage.to_vec());
                let out = recipe.loss(&Device::cpu(), &far(), &credit).unwrap();
                let metrics = out.policy.metrics.as_ref().unwrap();
                assert!(out.coef.iter().chain(&out.token_loss).all(|x| x.is_finite()), "{}", recipe.name);
                let numbers = [out.loss.unwrap(), metrics.ratio_max, metrics.ratio_std];
                assert!(numbers.into_iter().all(f64::is_finite), "{}: {numbers:?}", recipe.name);
                assert_eq!(metrics.guarded_tokens, 4);
                if guard == GuardChoice::Clamp {
                    assert_eq!(out.coef[..4], [0.0; 4], "no gradient outside of the clamp");
                }
            }
        }
    }
}

#[test]
fn kl_of_far_policies() {
    let run = |clamps: &str| {
        let recipe =
            Recipe::from_toml(&format!("kl = {{ estimator = 'k3', coef = 0.1{clamps} }}\n")).unwrap();
        let one = Rollouts { logp_old: Some(&LOGP), logp_ref: Some(&OLD), ..Rollouts::new(&[0, 6], &[0, 1]) };
        let rollouts = Rollouts { logp: Some(&LOGP), ..one };
        recipe.loss(&Device::cpu(), &rollouts, &Credit::per_sequence(vec![1.0]))
    };
    // Where only the value is clamped, exp(1e4) overflows, yet the clamp returns 10 with gradient 0.
    let clamps = [", clamp_in = 20.0, clamp_out = 10.0", ", clamp_in = 20.0", ", clamp_out = 10.0"];
    let [both, inner, outer] = clamps.map(|clamps| run(clamps).unwrap());
    assert!([&both, &inner, &outer].into_iter().all(|out| out.coef.iter().all(|x| x.is_finite())));
    assert!(both.loss.unwrap().is_finite() && both.policy.metrics.unwrap().kl_ref_mean <= 10.0);
    assert_eq!(overflow(run("").unwrap_err()).0, 1);
}

#[test]
fn without_a_guard_an_overflow_is_an_error() {
    let recipe = Recipe::named("trl").unwrap();
    let credit = Credit::per_sequence(vec![1.0, -1.0, 1.0]);
    let (index, hint) = overflow(recipe.loss(&Device::cpu(), &far(), &credit).unwrap_err());
    assert!(index == 2 && hint.contains("guard"), "{index} {hint}");
    // A > 0 is clipped at 1 + eps, and SAPO fades: no overflow in either.
    let credit = Credit::per_sequence(vec![1.0; 3]);
    for name in ["trl", "trl_sapo"] {
        let (recipe, mut out) = (Recipe::named(name).unwrap(), Loss::default());
        recipe.loss_into(&Device::cpu(), &far(), &credit, Outputs::COEF, &mut out).unwrap();
        assert!(out.coef.iter().all(|x| x.is_finite()), "{name}");
    }
}

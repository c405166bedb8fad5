//! Recipe stages that run on the host: VCPO's robust baselines, PF-PPO's filtration, RAPO's replay.

use crate::prelude::*;
use lockstep::recipe::Duty;
use lockstep::schedules::rapo::replaces;

const REWARDS: [f32; 4] = [1.0, 0.0, 4.0, 3.0];
const WEIGHTS: [f32; 4] = [4.0, 4.0, 2.25, 1.0];

fn rollouts(rewards: &[f32]) -> Rollouts<'_> {
    Rollouts { rewards: Some(rewards), ..Rollouts::new(&[0, 1, 2, 3, 4], &[0, 3, 4]) }
}

fn advantages(recipe: &Recipe, rollouts: &Rollouts<'_>) -> Result<Vec<f32>, Error> {
    recipe.advantages(&Device::cpu(), rollouts).map(|out| out.advantage)
}

fn centred(name: &str) -> Recipe {
    with(name, SingletonChoice::Zero).rebuild("centred").norm_by_std(false).build().unwrap()
}

fn with(name: &str, singleton: SingletonChoice) -> Recipe {
    Recipe::named(name).unwrap().rebuild(name).singleton(singleton).build().unwrap()
}

#[test]
fn worked_4_6_robust_baselines() {
    let rewards = Rollouts { baseline_weights: Some(&WEIGHTS), ..rollouts(&REWARDS) };
    let near = |recipe: &Recipe, i: usize, want: f64| {
        let got = advantages(recipe, &rewards).unwrap();
        assert!((f64::from(got[i]) - want).abs() < 1e-6, "{got:?}");
    };
    // Half of 10.25 is reached at reward 1.
    assert_eq!(advantages(&centred("vcpo_median"), &rewards).unwrap(), [0.0, -1.0, 3.0, 0.0]);
    // Both quantiles are the extremes: the weighted mean 13/10.25.
    let mut wide = centred("vcpo_winsorised");
    near(&wide, 0, 1.0 - 13.0 / 10.25);
    // At a share of 0.3 the upper quantile is 1: (4·1 + 4·0 + 2.25·1)/10.25.
    wide.advantage.winsor_share = Some(0.3);
    near(&wide, 2, 4.0 - 6.25 / 10.25);
    // Divided by the population deviation, as in `vcpo`: sqrt(26/9).
    near(&with("vcpo_median", SingletonChoice::Zero), 2, 3.0 / (26.0f64 / 9.0).sqrt());
    // A member that does not count moves no baseline; without any weight the baseline is 0, like that of the
    // weighted mean.
    let valid = Rollouts { valid: Some(&[0, 1, 1, 1]), ..rewards };
    assert_eq!(advantages(&centred("vcpo_median"), &valid).unwrap(), [0.0, 0.0, 4.0, 0.0]);
    let none = Rollouts { baseline_weights: Some(&[0.0; 4]), ..rewards };
    for name in ["vcpo_median", "vcpo"] {
        assert_eq!(advantages(&centred(name), &none).unwrap(), REWARDS, "{name}");
    }
    // A group of one follows the policy of all estimators.
    for name in ["vcpo", "vcpo_median", "vcpo_winsorised"] {
        let lone = |singleton| advantages(&with(name, singleton), &rewards).map(|advantage| advantage[3]);
        assert_eq!(lone(SingletonChoice::Zero).unwrap(), 0.0, "{name}");
        assert_eq!(lone(SingletonChoice::RawReward).unwrap(), 3.0, "{name}");
        refused(lone(SingletonChoice::Error), "…`cu_groups`[1]…");
    }
}

#[test]
fn robust_baselines_are_read_and_checked() {
    let read = |toml: &str| Recipe::from_toml(toml);
    let own =
        read("[advantage]\nestimator = \"vcpo\"\nrobust = \"winsorised\"\nwinsor_share = 0.25\n").unwrap();
    assert_eq!(own, read(&own.to_toml().unwrap()).unwrap());
    for (toml, says) in [
        ("robust = \"median\"\n", "…advantage.robust…"),
        ("estimator = \"vcpo\"\nwinsor_share = 0.1\n", "…advantage.winsor_share…"),
        ("estimator = \"vcpo\"\nrobust = \"median\"\nwinsor_share = 0.1\n", "…advantage.winsor_share…"),
        (
            "estimator = \"vcpo\"\nrobust = \"winsorised\"\nwinsor_share = 0.5\n",
            "…advantage.winsor_share is 0.5…",
        ),
    ] {
        refused(read(&format!("[advantage]\n{toml}")), says);
    }
}

/// Every other rule is composed in whole.rs.
#[test]
fn filtration_does_not_draw_what_is_invalid() {
    let pf_ppo = Recipe::named("pf_ppo").unwrap();
    let got = advantages(&pf_ppo, &Rollouts { valid: Some(&[1, 1, 0, 1]), ..rollouts(&REWARDS) }).unwrap();
    // The group is a group of two.
    assert!(got[2] == 0.0 && (f64::from(got[0]) - 2.0 * 0.5f64.sqrt()).abs() < 1e-5, "{got:?}");
}

#[test]
fn replay_of_successes() {
    let recipe = Recipe::named("rapo_replay").unwrap();
    assert!(recipe.duties().contains(&Duty::ReplaySuccesses), "what the loop does with the function");
    assert!(!Recipe::named("rapo").unwrap().duties().contains(&Duty::ReplaySuccesses));
    let failed = [0.0f32, 0.5, 0.1, 0.2];
    let mut seen = [0; 3];
    for step in 0..300 {
        assert_eq!(replaces(&failed[3..], false, 5, step, 1), None, "nothing is stored for the second group");
        seen[replaces(&failed[..3], true, 5, step, 0).unwrap() as usize] += 1;
    }
    // Binomial, 300 draws of 1/3: 100 ± 8, five deviations.
    assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    // The group's statistics include the success in its place.
    let mut rewards = failed;
    rewards[replaces(&failed[..3], true, 5, 0, 0).unwrap() as usize] = 1.0;
    rewards[3 + replaces(&failed[3..], true, 5, 0, 1).unwrap() as usize] = 1.0;
    let out = recipe.advantages(&Device::cpu(), &rollouts(&rewards)).unwrap();
    assert!(out.groups.std[0] > 0.0 && out.advantage.iter().any(|a| *a > 0.0));
}

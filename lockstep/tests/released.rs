//! Recipe choices that a single released code makes: worked numbers.

use lockstep::{Credit, Device, Recipe, Rollouts};

/// Sequences of 3, 2, 4 and 1 tokens; the seventh token is masked, and so is the last sequence.
const CU_SEQLENS: [u32; 5] = [0, 3, 5, 9, 10];
const CU_GROUPS: [u32; 3] = [0, 2, 4];
const MASK: [u8; 10] = [1, 1, 1, 1, 1, 1, 0, 1, 1, 0];

fn rollouts(rewards: &[f32]) -> Rollouts<'_> {
    Rollouts { loss_mask: Some(&MASK), rewards: Some(rewards), ..Rollouts::new(&CU_SEQLENS, &CU_GROUPS) }
}

fn credit(toml: &str, rollouts: &Rollouts<'_>) -> Result<Credit, String> {
    let recipe = Recipe::from_toml(toml).map_err(|e| e.to_string())?;
    assert_eq!(recipe, Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap());
    recipe.advantages(&Device::cpu(), rollouts).map_err(|e| e.to_string())
}

fn near(got: &[f32], want: &[f32]) {
    let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}, expected {want:?}");
}

#[test]
fn returns_by_the_sign_of_the_outcome() {
    let of = |rest: &str| {
        format!(
            "extends = \"ppo\"\nadvantage.over_time = {{ kind = \"signed_return\", gamma = 0.5, {rest} }}\n"
        )
    };
    let weighted = of("correct = 0.25, wrong = -1.0");
    let got = credit(&weighted, &rollouts(&[1.0, 0.0, 1.0, 1.0])).unwrap();
    // The discount skips the masked token; a response without live tokens has no return.
    let returns = [0.25, 0.5, 1.0, 0.0, 0.0, 0.25, 0.0, 0.5, 1.0, 0.0];
    near(&got.returns, &returns);
    near(&got.advantage, &[0.0625, 0.125, 0.25, -1.0, -1.0, 0.0625, 0.0, 0.125, 0.25, 0.0]);
    let stopped = of("correct = 0.25, wrong = -1.0, stop_at_mask = true");
    let got = credit(&stopped, &rollouts(&[0.5, 0.0, 1.0, 1.0])).unwrap();
    near(&got.advantage, &[0.125, 0.25, 0.5, -1.0, -1.0, 0.0, 0.0, 0.125, 0.25, 0.0]);
    // NSR: −1 whatever the reward is, and the filter drops correct responses.
    let negative = of("offset = -1.0") + "reward.filter = { kind = \"equal\", value = 0.0 }\n";
    let got = credit(&negative, &rollouts(&[1.0, 0.0, f32::NAN, 0.5])).unwrap();
    near(&got.advantage, &[0.0, 0.0, 0.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(got.keep, [0, 1, 0, 0]);
    assert_eq!(got.loss_mask.unwrap(), [0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);

    let error = credit(&weighted, &rollouts(&[1.0, f32::INFINITY, 0.0, 0.0])).unwrap_err();
    assert!(error.contains("`rewards`[1]"), "{error}");
    for (rest, told) in [
        ("reward.shaping = { kind = \"signs\", correct = 1.0, wrong = 0.0 }\n", "reward.shaping"),
        ("reward.filter.kind = \"nonzero_advantage\"\n", "reward.filter"),
        ("kl = { estimator = \"k1\", coef = 0.1, place = \"reward\" }\n", "kl.place"),
    ] {
        let error = credit(&format!("{weighted}{rest}"), &rollouts(&[0.0; 4])).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    let error = credit(&of("correct = inf"), &rollouts(&[0.0; 4])).unwrap_err();
    assert!(error.contains("correct"), "{error}");
}

#[test]
fn weights_of_responses_by_length_and_difficulty() {
    let by_length =
        "extends = \"roll\"\nadvantage.estimator = \"reward\"\nreward.weights.length = [1.5, 0.5]\n";
    let batch = rollouts(&[1.0, 0.0, 0.5, 1.0]);
    // Live tokens 3, 2, 3, 0: 0.5, 5/6, 0.5, 1.5, whose mean is 5/6.
    let (long, two) = (0.6f32, 1.0f32);
    let want = [long, long, long, two, two, long, 0.0, long, long, 0.0];
    near(&credit(by_length, &batch).unwrap().weights.unwrap(), &want);
    let both = format!("{by_length}reward.weights.difficulty = [0.5, 2.0]\n");
    let error = credit(&both, &batch).unwrap_err();
    assert!(error.contains("difficulty (for reward.weights)"), "{error}");
    // Times 0.5, 2, 1.25, 0.5: 0.25, 5/3, 0.625, 0.75, whose sum is 79/24.
    let hard = Rollouts { difficulty: Some(&[0.0, 1.0, 0.5, -3.0]), ..batch };
    let [a, b, c] = [6.0f32, 40.0, 15.0].map(|x| x * 4.0 / 79.0);
    near(&credit(&both, &hard).unwrap().weights.unwrap(), &[a, a, a, b, b, c, 0.0, c, c, 0.0]);
    let nan = Rollouts { difficulty: Some(&[0.0, 1.0, f32::NAN, 0.0]), ..batch };
    let error = credit(&both, &nan).unwrap_err();
    assert!(error.contains("`difficulty`[2]"), "{error}");
    let error = credit("extends = \"roll\"\nreward.weights.length = [-1.0, 0.5]\n", &batch).unwrap_err();
    assert!(error.contains("length"), "{error}");
}

#[test]
fn they_multiply_the_weights_of_a_correction() {
    let correction = "extends = \"roll\"\nadvantage.estimator = \"reward\"\n\
        correction = { level = \"token\", rule = \"truncate\", high = 2.0, denominator = \"before\" }\n";
    let (old, rollout) = ([-1.0f32; 10], [-1.25f32; 10]);
    let plain = rollouts(&[1.0, 0.0, 0.5, 1.0]);
    let batch = Rollouts { logp_old: Some(&old), logp_rollout: Some(&rollout), ..plain };
    let weights = |toml: &str| credit(toml, &batch).unwrap().weights.unwrap();
    let own = weights(correction);
    let both = weights(&format!("{correction}reward.weights.length = [1.5, 0.5]\n"));
    near(&[both[0] / own[0], both[3] / own[3]], &[0.6, 1.0]);
}

#[test]
fn a_missing_reward_counts_nothing_or_0() {
    let grpo = "extends = \"grpo\"\nadvantage.norm_by_std = false\nadvantage.singleton = \"zero\"\n";
    let missing = rollouts(&[1.0, f32::NAN, 0.5, 1.0]);
    assert_eq!(credit(grpo, &missing).unwrap().advantage, [0.0, 0.0, -0.25, 0.25]);
    let zero = format!("{grpo}advantage.nan_reward = \"zero\"\n");
    assert_eq!(credit(&zero, &missing).unwrap().advantage, [0.5, -0.5, -0.25, 0.25]);
    // With several rewards, each is treated by itself.
    let gdpo = "extends = \"trl_gdpo\"\nadvantage.nan_reward = \"zero\"\n";
    let given = |components: &[f32]| {
        let batch = Rollouts {
            reward_components: Some(components),
            reward_weights: Some(&[1.0, 0.5]),
            ..Rollouts::new(&CU_SEQLENS, &CU_GROUPS)
        };
        credit(gdpo, &batch).unwrap().advantage
    };
    let nan = f32::NAN;
    let with = given(&[1.0, nan, 0.5, 1.0, nan, 1.0, 0.0, nan]);
    assert_eq!(with, given(&[1.0, 0.0, 0.5, 1.0, 0.0, 1.0, 0.0, 0.0]));
}

#[test]
fn mssr_leaves_a_lone_response_as_it_is() {
    let advantages = |rewards: &[f32]| {
        let (cu_seqlens, cu_groups): (Vec<u32>, Vec<u32>) =
            (0..=rewards.len() as u32).map(|s| (2 * s, s)).unzip();
        let baseline = vec![0.5f32; rewards.len()];
        let batch = Rollouts {
            rewards: Some(rewards),
            baseline: Some(&baseline),
            ..Rollouts::new(&cu_seqlens, &cu_groups)
        };
        credit("extends = \"mssr\"\nreward.entropy = \"none\"\n", &batch).unwrap().advantage
    };
    assert_eq!(advantages(&[1.0]), [0.5]);
    assert_eq!(advantages(&[1.0, 0.0]), [1.0, -1.0]);
    assert_eq!(advantages(&[0.75, f32::NAN]), [0.25, 0.0]);
}

/// Numbers of MaxRL's `compute_maxrl_outcome_advantage` and of `calc_adv` (Passk_Training), in binary64.
#[test]
fn max_rl_and_pass_at_k_have_the_eps_of_their_code() {
    for (name, choices, size, right, wanted) in [
        ("max_rl", "", 64, 1, [62.995_968_3, -0.999_936_0]),
        ("pass_at_k", "advantage.k = 8", 16, 7, [0.026_452_54, -0.020_574_20]),
    ] {
        let rewards: Vec<f32> = (0..size).map(|i| f32::from(i < right)).collect();
        let cu_seqlens: Vec<u32> = (0..=size).collect();
        let cu_groups = [0, size];
        let rollouts = Rollouts { rewards: Some(&rewards), ..Rollouts::new(&cu_seqlens, &cu_groups) };
        let recipe = Recipe::named(name).unwrap().with_toml(choices).unwrap();
        let advantage = recipe.advantages(&Device::cpu(), &rollouts).unwrap().advantage;
        for (got, wanted) in [advantage[0], *advantage.last().unwrap()].into_iter().zip(wanted) {
            assert!((f64::from(got) / wanted - 1.0).abs() < 1e-6, "{name}: {got}, not {wanted}");
        }
    }
}

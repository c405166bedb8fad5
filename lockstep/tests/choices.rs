//! Choices of recipes beyond those with a name: worked numbers, gradients compared with numerical derivatives
//! of the loss, which is written out here, and what is refused. The file exceeds 400 lines because every test
//! uses the same small batch.

use lockstep::recipe::refused;
use lockstep::{Column, Credit, Device, Loss, Recipe, Rollouts};

/// Sequences of 3, 2, 4 and 1 tokens; the seventh token is masked, and so is the last sequence.
const CU_SEQLENS: [u32; 5] = [0, 3, 5, 9, 10];
const CU_GROUPS: [u32; 3] = [0, 2, 4];
const MASK: [u8; 10] = [1, 1, 1, 1, 1, 1, 0, 1, 1, 0];
const LOGP: [f32; 10] = [-0.5, -1.25, -0.75, -2.0, -0.25, -1.5, -0.5, -0.875, -0.375, -1.0];
const OLD: [f32; 10] = [-0.625, -1.125, -0.6875, -1.875, -0.4375, -1.53125, -0.75, -1.0, -0.25, -1.5];
const REF: [f32; 10] = [-0.75, -1.0, -1.0, -1.5, -0.5, -1.25, -0.5, -1.125, -0.125, -1.0];
const WEIGHTS: [f32; 10] = [1.0, 0.5, 2.0, 0.25, 1.5, 0.75, 1.0, 1.25, 0.0, 1.0];
const ENTROPY: [f32; 10] = [0.5, 1.0, 0.25, 1.0, 0.75, 2.0, 9.0, 0.125, 1.5, 9.0];
const ADVANTAGE: [f32; 4] = [1.5, -0.5, -1.0, 2.0];

fn rollouts() -> Rollouts<'static> {
    Rollouts {
        loss_mask: Some(&MASK),
        logp: Some(&LOGP),
        logp_old: Some(&OLD),
        logp_ref: Some(&REF),
        entropy: Some(&ENTROPY),
        ..Rollouts::new(&CU_SEQLENS, &CU_GROUPS)
    }
}

fn recipe(toml: &str) -> Recipe {
    Recipe::from_toml(toml).unwrap()
}

fn refusal(toml: &str) -> String {
    Recipe::from_toml(toml).unwrap_err().to_string()
}

fn loss_of(toml: &str, rollouts: &Rollouts<'_>, credit: &Credit) -> Loss {
    recipe(toml).loss(&Device::cpu(), rollouts, credit).unwrap()
}

fn loss(toml: &str) -> Loss {
    loss_of(toml, &rollouts(), &Credit::per_sequence(ADVANTAGE.to_vec()))
}

fn weighted(toml: &str) -> Loss {
    let weights = Some(WEIGHTS.to_vec());
    loss_of(toml, &rollouts(), &Credit { weights, ..Credit::per_sequence(ADVANTAGE.to_vec()) })
}

fn near(got: f64, wanted: f64, what: &str) {
    assert!((got - wanted).abs() <= 1e-6 * wanted.abs().max(0.1), "{what}: {got}, expected {wanted}");
}

/// The live tokens of each sequence.
fn live() -> Vec<Vec<usize>> {
    let span = |s: usize| CU_SEQLENS[s] as usize..CU_SEQLENS[s + 1] as usize;
    (0..4).map(|s| span(s).filter(|i| MASK[*i] != 0).collect()).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// dL/dlogp by central differences.
fn slopes(logp: &[f32], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let at = |i: usize, step: f64| {
        let mut moved = wide(logp);
        moved[i] += step;
        loss(&moved)
    };
    (0..logp.len()).map(|i| (at(i, 1e-5) - at(i, -1e-5)) / 2e-5).collect()
}

/// Compares loss and coefficients with a loss written out.
fn agrees(got: &Loss, loss: impl Fn(&[f64]) -> f64, what: &str) {
    near(got.loss.unwrap(), loss(&wide(&LOGP)), what);
    for (i, slope) in slopes(&LOGP, loss).into_iter().enumerate() {
        near(got.coef[i].into(), slope, &format!("{what}, token {i}"));
    }
}

/// Σ d, d = logp − logp_old, over some tokens.
fn moved(logp: &[f64], tokens: &[usize]) -> f64 {
    tokens.iter().map(|i| logp[*i] - f64::from(OLD[*i])).sum()
}

/// −min(s·A, clip(s)·A).
fn ppo(s: f64, a: f64, low: f64, high: f64) -> f64 {
    -(s * a).min(s.clamp(1.0 - low, 1.0 + high) * a)
}

fn k3(logp: f64, i: usize) -> f64 {
    let u = f64::from(REF[i]) - logp;
    u.exp() - u - 1.0
}

const SEQUENCE: &str = "extends = \"trl\"\nratio.level = \"sequence\"\nratio.gradient = \"mean\"\n";
const PRODUCT: &str = "extends = \"trl_grpo\"\nratio.level = \"product\"\ngate.clip_ratio_low = 0.9\n";

#[test]
fn the_gradient_flows_through_the_mean_of_a_sequence() {
    let of_gate = |gate: &dyn Fn(f64, f64) -> f64, logp: &[f64]| -> f64 {
        let row = |(tokens, a): (&Vec<usize>, &f32)| {
            let s = (moved(logp, tokens) / tokens.len().max(1) as f64).exp();
            tokens.iter().map(|i| f64::from(WEIGHTS[*i]) * gate(s, f64::from(*a))).sum::<f64>()
        };
        live().iter().zip(&ADVANTAGE).map(row).sum::<f64>() / 8.0
    };
    let clip = weighted(SEQUENCE);
    agrees(&clip, |logp| of_gate(&|s, a| ppo(s, a, 0.2, 0.2), logp), "ppo_clip");
    let sapo = weighted(&format!("{SEQUENCE}gate = {{ kind = \"sapo\", tau_pos = 1.0, tau_neg = 1.5 }}\n"));
    let soft = |s: f64, a: f64| {
        let tau = if a > 0.0 { 1.0 } else { 1.5 };
        -a * 4.0 / tau / (1.0 + (-tau * (s - 1.0)).exp())
    };
    agrees(&sapo, |logp| of_gate(&soft, logp), "sapo");
    // Each token of a sequence gets the mean of the coefficients that they would have on their own.
    let own = weighted("extends = \"trl\"\nratio.level = \"sequence\"\n");
    assert_eq!((own.loss, &own.token_loss), (clip.loss, &clip.token_loss));
    for tokens in live() {
        let mean = tokens.iter().map(|i| f64::from(own.coef[*i])).sum::<f64>() / tokens.len().max(1) as f64;
        tokens.iter().for_each(|i| near(clip.coef[*i].into(), mean, "mean of the own ones"));
    }
}

#[test]
fn nothing_changes_where_the_ratio_is_no_sequences_or_not_differentiated() {
    let same = |a: &str, b: &str| assert_eq!(weighted(a), weighted(b), "{a}");
    same("extends = \"trl\"\nratio.gradient = \"mean\"\n", "extends = \"trl\"\n");
    let cispo = "gate = { kind = \"cispo\", low = 0.0, high = 5.0 }\n";
    same(&format!("{SEQUENCE}{cispo}"), &format!("extends = \"trl\"\nratio.level = \"sequence\"\n{cispo}"));
}

#[test]
fn a_kl_term_is_added_after_the_mean() {
    let toml = format!("{SEQUENCE}kl = {{ estimator = \"k3\", coef = 0.1 }}\n");
    let of = |logp: &[f64]| -> f64 {
        let row = |(tokens, a): (&Vec<usize>, &f32)| {
            let s = (moved(logp, tokens) / tokens.len().max(1) as f64).exp();
            let token =
                |i: &usize| f64::from(WEIGHTS[*i]) * ppo(s, f64::from(*a), 0.2, 0.2) + 0.1 * k3(logp[*i], *i);
            tokens.iter().map(token).sum::<f64>()
        };
        live().iter().zip(&ADVANTAGE).map(row).sum::<f64>() / 8.0
    };
    let got = weighted(&toml);
    agrees(&got, of, "kl beside the mean");
    let measured = live().concat().iter().map(|i| k3(LOGP[*i].into(), *i)).sum::<f64>() / 8.0;
    near(got.metrics.unwrap().kl_ref_mean, measured, "kl_ref_mean");
}

#[test]
fn a_ratio_is_the_product_over_the_sequence() {
    let of = |empty: f64| {
        move |logp: &[f64]| -> f64 {
            let row = |(tokens, a): (&Vec<usize>, &f32)| match tokens.len() {
                0 => -empty * f64::from(*a),
                _ => ppo(moved(logp, tokens).exp(), f64::from(*a), 0.9, 0.2),
            };
            live().iter().zip(&ADVANTAGE).map(row).sum::<f64>() / 4.0
        }
    };
    agrees(&loss(PRODUCT), of(0.0), "product");
    let counted = loss(&format!("{PRODUCT}aggregation.empty = \"one\"\n"));
    agrees(&counted, of(1.0), "product with the empty one");
    assert_eq!((counted.coef[9], counted.row_loss[3]), (0.0, -0.5));
    // exp(0.125 - 0.125 - 0.0625) = 0.939413, times -1.5, over 4 sequences, for each of its tokens.
    near(counted.coef[0].into(), -0.939413 * 1.5 / 4.0, "by hand");
    assert_eq!(counted.coef[0..3], [counted.coef[0]; 3]);
    // A detached ratio passes no gradient on: each token has 1/3 of it.
    let cispo = loss(
        &format!("{PRODUCT}gate = {{ kind = \"cispo\", low = 0.0, high = 5.0 }}\n")
            .replace("gate.clip_ratio_low = 0.9\n", ""),
    );
    near(cispo.coef[0].into(), -0.939413 * 1.5 / 12.0, "cispo");
}

#[test]
fn a_product_obeys_its_guard() {
    let guarded = |guard: &str| {
        let toml = format!(
            "{PRODUCT}gate.clip_ratio_high = 9.0\nratio.guard_bound = 0.05\nratio.guard = \"{guard}\"\n"
        );
        loss(&toml)
    };
    // Σ d of the sequences: -0.0625, 0.0625, 0.03125.
    let (clamp, through) = (guarded("clamp"), guarded("straight_through"));
    assert_eq!(clamp.loss, through.loss);
    assert_eq!((clamp.coef[0], clamp.coef[3]), (0.0, 0.0));
    near(through.coef[0].into(), -(-0.05f64).exp() * 1.5 / 4.0, "straight through");
    assert_eq!(clamp.coef[5], through.coef[5]);
}

#[test]
fn a_bound_without_a_guard_is_refused() {
    let error = refusal("ratio = { guard = \"none\", guard_bound = 5.0 }\n");
    assert!(error.contains("ratio.guard_bound is used by ratio.guard clamp and straight_through"), "{error}");
    // The default, which `to_toml` writes, says nothing.
    recipe("ratio = { guard = \"none\", guard_bound = 20.0 }\n");
}

#[test]
fn the_sample_size_of_weights_that_are_all_0_is_0() {
    let recipe = recipe(
        "advantage.singleton = \"zero\"\n\
         correction = { level = \"token\", rule = \"mask\", low = 0.5, high = 2.0 }\n",
    );
    let (sampled, rewards) = ([-9.0; 10], [1.0, 0.0, 0.0, 1.0]);
    let rollouts = Rollouts { rewards: Some(&rewards), logp_rollout: Some(&sampled), ..rollouts() };
    let stats = recipe.advantages(&Device::cpu(), &rollouts).unwrap().correction.unwrap().stats;
    assert_eq!((stats.max, stats.mean, stats.ess), (0.0, 0.0, 0.0));
}

/// L = Σ W·s·k·0.1, without a policy term, because the advantages are 0.
fn kl_alone(toml: &str) -> Loss {
    loss_of(toml, &rollouts(), &Credit::per_sequence(vec![0.0; 4]))
}

#[test]
fn a_kl_term_is_weighed_by_the_ratio_of_the_sequence() {
    let kl = |level: &str, gradient: &str, weighting: &str| {
        format!(
            "extends = \"trl_grpo\"\nratio.level = \"{level}\"\nratio.gradient = \"{gradient}\"\n\
             kl = {{ estimator = \"k3\", coef = 0.1, importance_weighted = \"{weighting}\", \
             ratio = \"policy\" }}\n"
        )
    };
    let of = |product: bool, weigh: &dyn Fn(&[f64], &[usize]) -> f64, logp: &[f64]| -> f64 {
        let row = |tokens: &Vec<usize>| {
            let divisor = if product { 1.0 } else { tokens.len().max(1) as f64 };
            let s = (weigh(logp, tokens) / divisor).exp();
            0.1 * s * tokens.iter().map(|i| k3(logp[*i], *i)).sum::<f64>() / tokens.len().max(1) as f64
        };
        live().iter().map(row).sum::<f64>() / 4.0
    };
    let mean = kl_alone(&kl("sequence", "mean", "through_ratio"));
    agrees(&mean, |logp| of(false, &moved, logp), "sequence");
    agrees(&kl_alone(&kl("product", "own", "through_ratio")), |logp| of(true, &moved, logp), "product");
    let constant = wide(&LOGP);
    let detached = |logp: &[f64]| of(false, &|_, tokens| moved(&constant, tokens), logp);
    agrees(&kl_alone(&kl("sequence", "mean", "detached")), detached, "detached");
    // Own: W·s·(k' + k) of each token.
    let own = kl_alone(&kl("sequence", "own", "through_ratio"));
    assert_eq!(own.loss, mean.loss);
    let d = f64::from(LOGP[0]) - f64::from(REF[0]);
    let (s, k) = ((-0.0625f64 / 3.0).exp(), k3(LOGP[0].into(), 0));
    near(own.coef[0].into(), 0.1 * s * ((1.0 - (-d).exp()) + k) / 12.0, "own");
    // The metric is of the weighted term.
    let tokens = live();
    let row = |tokens: &Vec<usize>| {
        let s = (moved(&constant, tokens) / tokens.len().max(1) as f64).exp();
        s * tokens.iter().map(|i| k3(LOGP[*i].into(), *i)).sum::<f64>()
    };
    near(mean.metrics.unwrap().kl_ref_mean, tokens.iter().map(row).sum::<f64>() / 8.0, "kl_ref_mean");
}

#[test]
fn a_kl_term_of_tokens_is_as_it_was_but_for_the_metric() {
    let kl = |ratio: &str| {
        format!(
            "extends = \"trl\"\nkl = {{ estimator = \"k3\", coef = 0.1, \
             importance_weighted = \"through_ratio\"{ratio} }}\n"
        )
    };
    let (token, policy) = (loss(&kl("")), loss(&kl(", ratio = \"policy\"")));
    assert_eq!((token.loss, &token.coef), (policy.loss, &policy.coef));
    let sum = |weighed: bool| {
        let token = |i: &usize| {
            let r = if weighed { (f64::from(LOGP[*i]) - f64::from(OLD[*i])).exp() } else { 1.0 };
            r * k3(LOGP[*i].into(), *i)
        };
        live().concat().iter().map(token).sum::<f64>() / 8.0
    };
    near(token.metrics.unwrap().kl_ref_mean, sum(false), "as it was");
    near(policy.metrics.unwrap().kl_ref_mean, sum(true), "weighted");
    // At level sequence too, the default is the token's own ratio (slime).
    let sequence = kl("").replace("kl =", "ratio.level = \"sequence\"\nkl =");
    assert_eq!(kl_alone(&sequence).coef, kl_alone(&kl("")).coef);
}

#[test]
fn an_entropy_bonus_has_an_aggregation_of_its_own() {
    let toml = "extends = \"trl_grpo\"\nentropy = { coef = 0.5, over = \"call\", aggregation = { \
                mode = \"token-mean\" } }\n";
    let plain = loss("extends = \"trl_grpo\"\n");
    let counts = [100, 10, 20];
    let sharded = Rollouts { counts: Some(&counts), ..rollouts() };
    let credit = Credit::per_sequence(ADVANTAGE.to_vec());
    for rollouts in [rollouts(), sharded] {
        let bonus = loss_of(toml, &rollouts, &credit).entropy.unwrap();
        // (0.5 + 1 + 0.25 + 1 + 0.75 + 2 + 0.125 + 1.5)/8.
        assert_eq!((bonus.entropy, bonus.loss), (0.890625, -0.4453125));
        assert_eq!(
            bonus.coef,
            [-0.0625, -0.0625, -0.0625, -0.0625, -0.0625, -0.0625, 0.0, -0.0625, -0.0625, 0.0]
        );
    }
    let whole = loss_of(&toml.replace("call", "batch"), &sharded, &credit).entropy.unwrap();
    near(whole.entropy, 0.07125, "by the counts of the whole batch");
    near(loss(toml).loss.unwrap(), plain.loss.unwrap() - 0.4453125, "in the loss");
    // Without its own table, it uses the policy's aggregation.
    let policys = loss("extends = \"trl_grpo\"\nentropy = { coef = 0.5 }\n").entropy.unwrap();
    near(policys.coef[0].into(), -0.5 / 12.0, "of the policy's aggregation");
}

#[test]
fn an_entropy_bonus_may_be_of_the_kept_tokens() {
    let toml = "extends = \"trl\"\nmask = { top_entropy = 0.5, quantile = \"torch\" }\n\
                entropy = { coef = 0.5, over = \"call\", of = \"kept\", aggregation = { \
                mode = \"token-mean\" } }\n";
    // Sorted: 0.125 0.25 0.5 0.75 1 1 1.5 2; the median is 0.875, and 1, 1, 2 and 1.5 are above.
    for toml in [toml, &toml.replace("torch", "count")] {
        let got = loss(toml);
        let bonus = got.entropy.as_ref().unwrap();
        assert_eq!((bonus.entropy, bonus.loss), (1.375, -0.6875));
        assert_eq!(bonus.coef, [0.0, -0.125, 0.0, -0.125, 0.0, -0.125, 0.0, 0.0, -0.125, 0.0]);
        assert_eq!(
            got.coef.iter().map(|c| u8::from(*c != 0.0)).collect::<Vec<_>>(),
            [0, 1, 0, 1, 0, 1, 0, 0, 1, 0]
        );
    }
}

#[test]
fn an_entropy_bonus_may_be_of_positive_samples() {
    let toml = "extends = \"trl_grpo\"\nentropy = { coef = 0.5, of = \"positive\" }\n";
    // One response of four has a positive advantage and a live token: (0.5 + 1 + 0.25)/3, over all four.
    let bonus = loss(toml).entropy.unwrap();
    near(bonus.entropy, 1.75 / 12.0, "the mean over all responses");
    near(bonus.loss, -0.5 * 1.75 / 12.0, "of the loss");
    let own = -0.5_f32 / 12.0;
    assert_eq!(bonus.coef, [own, own, own, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    // Advantages of tokens: of the second and the ninth; the seventh is masked, the third is 0.
    let credit = Credit::per_token(vec![-1.0, 2.0, 0.0, -1.0, -0.5, -1.0, 3.0, -2.0, 0.25, 1.0]);
    let tokens = toml.replace("\" }", "\", aggregation = { mode = \"token-mean\" } }");
    let bonus = loss_of(&tokens, &rollouts(), &credit).entropy.unwrap();
    assert_eq!((bonus.entropy, bonus.loss), (0.3125, -0.15625));
    assert_eq!(bonus.coef, [0.0, -0.0625, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.0625, 0.0]);
}

#[test]
fn ties_at_torchs_quantile_are_kept() {
    let top = |top: f64, rule: &str| {
        let toml = format!("extends = \"trl\"\nmask = {{ top_entropy = {top}, quantile = \"{rule}\" }}\n");
        loss(&toml).coef.iter().filter(|c| **c != 0.0).count()
    };
    // The quantile 4/7 is rank 4, a 1, of which there are two; 3/7 is rank 3, the 0.75.
    assert_eq!((top(3.0 / 7.0, "torch"), top(3.0 / 7.0, "count")), (4, 4));
    assert_eq!((top(2.0 / 7.0, "torch"), top(2.0 / 7.0, "count")), (4, 3));
    assert_eq!((top(0.0, "torch"), top(1.0, "torch")), (1, 8));
}

#[test]
fn a_lambda_below_the_floor_is_raised_to_it() {
    let with = |gate: &str| {
        let toml =
            format!("extends = \"trl_vespo\"\ngate = {{ kind = \"vespo\", against = \"old\", {gate} }}\n");
        loss(&toml)
    };
    let (none, floor) = (with("lambda_neg = 0.0, lambda_floor = \"none\""), with("lambda_neg = 0.0"));
    let raised = with("lambda_neg = 1e-4, lambda_floor = \"none\"");
    assert_eq!((floor.loss, &floor.coef), (raised.loss, &raised.coef));
    assert_eq!((floor.coef[0], floor.coef[4] == none.coef[4]), (none.coef[0], false));
    // A < 0: φ = exp(1e-4 + 3·ln W − 1e-4·W), ln W = 0.0625; token-mean over 8.
    let log_w = 0.0625f64;
    let phi = (1e-4 + 3.0 * log_w - 1e-4 * log_w.exp()).exp();
    near(floor.coef[4].into(), phi * 0.5 / 8.0, "by hand");
}

const GMPO: &str =
    "extends = \"trl_grpo\"\ngate = { kind = \"gmpo\", clip_log_low = 0.4, clip_log_high = 0.4 }\n";

#[test]
fn gmpo_leaves_out_tokens_that_the_mask_drops() {
    // 1, 1, 2 and 1.5 are kept: one token of each of the first two sequences, two of the third.
    let toml = format!("{GMPO}mask = {{ top_entropy = 0.5, quantile = \"torch\" }}\n");
    let kept = [vec![1], vec![3], vec![5, 8], vec![]];
    let of = |empty: f64| {
        let kept = kept.clone();
        move |logp: &[f64]| -> f64 {
            let row = |(tokens, a): (&Vec<usize>, &f32)| match tokens.len() {
                0 => -empty * f64::from(*a),
                n => -f64::from(*a) * (moved(logp, tokens) / n as f64).exp(),
            };
            kept.iter().zip(&ADVANTAGE).map(row).sum::<f64>() / 4.0
        }
    };
    agrees(&loss(&toml), of(0.0), "gmpo");
    agrees(&loss(&format!("{toml}aggregation.empty = \"one\"\n")), of(1.0), "gmpo with the empty one");
    let got = loss(&format!("{toml}kl = {{ estimator = \"k3\", coef = 0.1 }}\n"));
    let with_kl = |logp: &[f64]| {
        let term = |tokens: &Vec<usize>| {
            tokens.iter().map(|i| k3(logp[*i], *i)).sum::<f64>() / tokens.len().max(1) as f64
        };
        of(0.0)(logp) + 0.1 * live().iter().map(term).sum::<f64>() / 4.0
    };
    agrees(&got, with_kl, "the kl term is of all live tokens");
    // So is what it measures.
    let measured = live().concat().iter().map(|i| k3(LOGP[*i].into(), *i)).sum::<f64>() / 8.0;
    near(got.metrics.unwrap().kl_ref_mean, measured, "kl_ref_mean");
    let whole = loss(&format!("{GMPO}kl = {{ estimator = \"k3\", coef = 0.1 }}\n"));
    near(whole.metrics.unwrap().kl_ref_mean, measured, "kl_ref_mean of all");
}

#[test]
fn an_empty_sequence_of_gmpo_counts_one_or_nothing() {
    let (nothing, one) = (loss(GMPO), loss(&format!("{GMPO}aggregation.empty = \"one\"\n")));
    assert_eq!((nothing.row_loss[3], one.row_loss[3]), (0.0, -0.5));
    assert_eq!(nothing.coef, one.coef);
    near(one.loss.unwrap(), nothing.loss.unwrap() - 0.5, "loss");
}

#[test]
fn a_sampler_that_gave_nothing_has_ratio_one() {
    let mut sampler = OLD;
    (sampler[0], sampler[1], sampler[3]) = (f32::NAN, -2.125, f32::NAN);
    let rewards = [1.0, 0.0, 1.0, 0.0];
    let rollouts = Rollouts { logp_rollout: Some(&sampler), rewards: Some(&rewards), ..rollouts() };
    let credit = |level: &str, nan: &str| {
        let toml = format!(
            "extends = \"trl\"\ncorrection = {{ level = \"{level}\", rule = \"plain\", \
             denominator = \"before\", nan_rollout = \"{nan}\" }}\n"
        );
        recipe(&toml).advantages(&Device::cpu(), &rollouts)
    };
    let e = 1f32.exp();
    let close = |got: &[f32], wanted: &[f32]| {
        got.iter().zip(wanted).for_each(|(got, wanted)| near((*got).into(), (*wanted).into(), "weight"));
    };
    close(&credit("token", "one").unwrap().weights.unwrap()[..5], &[1.0, e, 1.0, 1.0, 1.0]);
    close(&credit("sequence", "one").unwrap().weights.unwrap()[..5], &[e, e, e, 1.0, 1.0]);
    close(&credit("geometric", "one").unwrap().weights.unwrap()[..3], &[(1f32 / 3.0).exp(); 3]);
    assert!(credit("token", "error").unwrap_err().to_string().contains("logp_rollout"));
}

#[test]
fn a_sampler_that_gave_nothing_counts_in_the_length_of_the_sequence_mask() {
    // A < 0: mean(rollout - logp) of the second sequence is (0 + 0.5)/2 with a NaN in place of its first.
    let mut sampler = OLD;
    (sampler[3], sampler[4]) = (f32::NAN, LOGP[4] + 0.125);
    let rollouts = Rollouts { logp_rollout: Some(&sampler), ..rollouts() };
    let coef = |delta: f32| {
        let toml = format!(
            "extends = \"trl\"\nmask = {{ opsm_delta = {delta}, opsm_against = \"rollout\" }}\n\
             correction = {{ level = \"one\", rule = \"plain\", nan_rollout = \"one\" }}\n"
        );
        loss_of(&toml, &rollouts, &Credit::per_sequence(ADVANTAGE.to_vec())).coef[3]
    };
    // 0.0625 to the mean of two, 0.125 were it of one.
    assert!(coef(0.0624) == 0.0 && coef(0.0626) != 0.0);
}

#[test]
fn a_band_may_have_no_upper_end() {
    let mut sampler = OLD;
    (sampler[0], sampler[1]) = (-50.625, -0.125);
    let rewards = [1.0, 0.0, 1.0, 0.0];
    let rollouts = Rollouts { logp_rollout: Some(&sampler), rewards: Some(&rewards), ..rollouts() };
    let weights = |rule: &str, high: &str| {
        let toml = format!(
            "extends = \"trl\"\ncorrection = {{ level = \"token\", rule = \"{rule}\", low = 0.5, \
             high = {high}, denominator = \"before\" }}\n"
        );
        recipe(&toml).advantages(&Device::cpu(), &rollouts).unwrap().weights.unwrap()
    };
    let large = weights("truncate", "inf");
    near(f64::from(large[0]) / 50f64.exp(), 1.0, "e^50");
    assert_eq!((large[1], weights("mask", "inf")[1]), (0.5, 0.0));
    assert_eq!(weights("mask", "inf")[0], large[0]);
    assert_eq!((weights("mask", "3.0")[0], weights("truncate", "3.0")[0]), (0.0, 3.0));
    assert!(refusal("correction.high = 0.0\n").contains("correction.high"));
}

#[test]
fn rewards_are_the_sum_of_their_components_within_a_clip() {
    let components = [1.0, 0.0, f32::NAN, f32::NAN, 2.0, f32::NAN, 8.0, f32::NAN];
    let rollouts = Rollouts {
        reward_components: Some(&components),
        reward_weights: Some(&[1.0, 0.5]),
        ..Rollouts::new(&[0, 1, 2, 3, 4], &[0, 4])
    };
    let advantage = |toml: &str| {
        let toml = format!("advantage = {{ estimator = \"rloo\", singleton = \"zero\" }}\n{toml}");
        recipe(&toml).advantages(&Device::cpu(), &rollouts).unwrap().advantage
    };
    // Sums 2, 0, 4 and no score: each minus the mean of the other two.
    assert_eq!(advantage("reward.components = \"sum\"\n"), [0.0, -3.0, 3.0, 0.0]);
    // 2, 0.5, 3.
    assert_eq!(advantage("reward = { components = \"sum\", clip = [0.5, 3.0] }\n"), [0.25, -2.0, 1.75, 0.0]);
    let one = Rollouts { rewards: Some(&[2.0, 0.0, f32::NAN, 9.0]), ..rollouts };
    let clipped = recipe("advantage.estimator = \"rloo\"\nreward.clip = [-inf, 3.0]\n");
    // 2, 0 and 3.
    assert_eq!(clipped.advantages(&Device::cpu(), &one).unwrap().advantage, [0.5, -2.5, 0.0, 2.0]);
    let error =
        recipe("reward.components = \"sum\"\n").advantages(&Device::cpu(), &Rollouts::new(&[0, 1], &[0, 1]));
    let told = error.unwrap_err().to_string();
    assert!(
        told.contains("reward_components (for reward.components), reward_weights")
            && !told.contains("rewards"),
        "{told}"
    );
    assert!(refusal("reward.clip = [1.0, 0.0]\n").contains("reward.clip"));
    // ReMax does not accept token rewards in place of the sum.
    let remax = recipe("extends = \"remax\"\nreward.clip = [0.0, 1.0]\n");
    let error = remax.advantages(&Device::cpu(), &Rollouts::new(&[0, 1], &[0, 1])).unwrap_err().to_string();
    assert!(error.contains("rewards (for reward.clip)") && !error.contains("token_rewards"), "{error}");
}

#[test]
fn a_lone_scored_member_is_left_out_of_the_whitening() {
    let rewards = [1.0, 0.0, 3.0, f32::NAN];
    let rollouts = Rollouts { rewards: Some(&rewards), ..Rollouts::new(&[0, 1, 2, 3, 4], &[0, 2, 4]) };
    let advantage = |singleton: &str| {
        let toml = format!(
            "advantage = {{ estimator = \"rloo\", singleton = \"{singleton}\", whiten = \"trl\" }}\n"
        );
        recipe(&toml).advantages(&Device::cpu(), &rollouts).unwrap().advantage
    };
    // The deviation of ±1 alone is √2; with an additional 0, it is 1.
    let (out, zero) = (advantage("leave_out"), advantage("zero"));
    near(out[0].into(), 1.0 / (2f64.sqrt() + 1e-4), "left out");
    near(zero[0].into(), 1.0 / 1.0001, "counted");
    assert_eq!((out[2], out[3], zero[2], zero[3]), (0.0, 0.0, 0.0, 0.0));
    let plain = recipe("advantage = { estimator = \"rloo\", singleton = \"leave_out\" }\n");
    assert_eq!(plain.advantages(&Device::cpu(), &rollouts).unwrap().advantage, [1.0, -1.0, 0.0, 0.0]);
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let kl = |rest: &str| format!("kl = {{ estimator = \"k3\", coef = 0.1, ratio = \"policy\"{rest} }}\n");
    let weighted = ", importance_weighted = \"through_ratio\"";
    let cases = [
        ("ratio = { level = \"given\", gradient = \"mean\" }\n".to_owned(), "ratio.gradient"),
        ("ratio = { level = \"product\", log_max = 10.0 }\n".into(), "ratio.log_max"),
        ("ratio.level = \"product\"\ngate.kind = \"kl_cov\"\n".into(), "kl_cov"),
        ("ratio.level = \"product\"\ngate.kind = \"clip_cov\"\n".into(), "clip_cov"),
        ("ratio.level = \"product\"\ngate.kind = \"dppo_tv\"\n".into(), "dppo_tv"),
        ("ratio.level = \"product\"\ngate.kind = \"gmpo\"\n".into(), "gmpo"),
        ("ratio = { level = \"sequence\", gradient = \"mean\" }\ngate.kind = \"kl_cov\"\n".into(), "kl_cov"),
        ("aggregation = { empty = \"one\", sequences = \"all\" }\n".into(), "aggregation.empty"),
        ("ratio.level = \"product\"\naggregation.empty = \"one\"\n".into(), "aggregation.sequences"),
        (
            "ratio.level = \"product\"\naggregation = { empty = \"one\", sequences = \"all\", \
             mode = \"token-mean\" }\n"
                .into(),
            "aggregation.mode",
        ),
        (
            "ratio.level = \"product\"\ngate.kind = \"sapo\"\n\
             aggregation = { empty = \"one\", sequences = \"all\" }\n"
                .into(),
            "gate.kind",
        ),
        ("value = { aggregation = { empty = \"one\" } }\n".into(), "value.aggregation.empty"),
        ("entropy = { coef = 0.1, aggregation = { empty = \"one\" } }\n".into(), "entropy.aggregation.empty"),
        ("entropy = { coef = 0.1, of = \"kept\", over = \"call\" }\n".into(), "mask.top_entropy"),
        ("mask.top_entropy = 0.2\nentropy = { coef = 0.1, of = \"kept\" }\n".into(), "entropy.over"),
        (kl(""), "kl.importance_weighted"),
        (kl(", importance_weighted = \"score\""), "kl.importance_weighted"),
        (format!("gate.kind = \"gmpo\"\n{}", kl(weighted)), "gmpo"),
        ("extends = \"reinforce_plus_plus\"\nreward.components = \"sum\"\n".into(), "reinforce_plus_plus"),
        ("extends = \"gdpo\"\nreward.clip = [0.0, 1.0]\n".into(), "gdpo"),
        ("extends = \"mars\"\nreward.clip = [0.0, 1.0]\n".into(), "advantage.over_time"),
        ("extends = \"gdpo\"\nadvantage.singleton = \"leave_out\"\n".into(), "leave_out"),
        ("gate = { kind = \"vespo\", lambda_floor = -1.0 }\n".into(), "gate.lambda_floor"),
        ("extends = \"gdpo\"\nreward.overlong = { max_length = 8, buffer = 4 }\n".into(), "reward.overlong"),
        ("extends = \"ppo_critic\"\nreward.shaping.kind = \"signs\"\n".into(), "reward.shaping"),
        ("extends = \"gdpo\"\nreward.filter = { kind = \"balanced\", tau = 0.1 }\n".into(), "balanced"),
        ("ratio.level = \"given\"\ngate = { kind = \"trust_region\" }\n".into(), "trust_region"),
        (format!("extends = \"mars\"\n{IN_REWARD}"), "kl.place reward"),
        (format!("extends = \"gdpo\"\n{IN_REWARD}"), "kl.place reward"),
        (format!("extends = \"evol_rl\"\n{IN_REWARD}"), "kl.place reward"),
        (format!("extends = \"psr\"\n{IN_REWARD}"), "kl.place reward"),
        (format!("extends = \"pass_at_k\"\n{IN_REWARD}"), "kl.place reward"),
    ];
    for (toml, told) in &cases {
        let error = refusal(toml);
        assert!(error.contains(told), "{toml}{error}");
    }
    assert!(refused().all(|(left, right, why)| !(left.is_empty() || right.is_empty() || why.is_empty())));
    // Omitted keys keep their defaults.
    let grpo = recipe("").to_toml().unwrap();
    for default in ["gradient = \"own\"", "empty = \"nothing\""] {
        assert!(grpo.contains(default), "{default} in {grpo}");
    }
}

const IN_REWARD: &str = "kl = { estimator = \"k1\", coef = 0.5, place = \"reward\" }\n";

/// DAPO's filter sees whether answers are right, not what the penalty makes of them.
#[test]
fn a_filter_reads_rewards_without_the_penalty() {
    let toml = format!("extends = \"dapo\"\nreward.filter.kind = \"varied\"\n{IN_REWARD}");
    let rewards = Some(&[1.0, 1.0, 1.0, 0.0][..]);
    let credit = recipe(&toml).advantages(&Device::cpu(), &Rollouts { rewards, ..rollouts() }).unwrap();
    assert_eq!((credit.keep, &credit.advantage[..2]), (vec![0, 0, 1, 1], &[0.0, 0.0][..]));
}

/// `clamp_out` bounds r·k, as for a ratio of each token.
#[test]
fn a_bound_of_a_weighted_kl_is_that_of_the_product() {
    let kl = |bound: f64| {
        format!(
            "kl = {{ estimator = \"k2\", coef = 1.0, clamp_out = {bound:?}, ratio = \"policy\", \
             importance_weighted = \"through_ratio\" }}\n"
        )
    };
    let nothing = Credit::per_sequence(vec![0.0; 4]);
    // r is at least e, and k 1/2.
    let [far, near_by] = [[-1.0; 10], [-2.0; 10]];
    let beyond =
        Rollouts { logp: Some(&far), logp_old: Some(&near_by), logp_ref: Some(&near_by), ..rollouts() };
    for level in ["level = \"token\"", "level = \"sequence\"", "level = \"product\""] {
        let got = loss_of(&format!("ratio = {{ {level} }}\n{}", kl(1.0)), &beyond, &nothing);
        near(got.loss.unwrap(), 1.0, level);
        assert_eq!(got.coef, [0.0; 10], "{level}");
    }
    // One token of the second sequence is beyond 0.05.
    let written = |logp: &[f64]| {
        let of = |tokens: &Vec<usize>| {
            let moved = tokens.iter().map(|i| logp[*i] - f64::from(OLD[*i])).sum::<f64>();
            let ratio = (moved / tokens.len() as f64).exp();
            let k = tokens.iter().map(|i| (logp[*i] - f64::from(REF[*i])).powi(2) / 2.0);
            k.map(|k| (ratio * k).min(0.05)).sum::<f64>() / tokens.len() as f64
        };
        live().iter().filter(|tokens| !tokens.is_empty()).map(of).sum::<f64>() / 3.0
    };
    let toml = format!("ratio = {{ level = \"sequence\", gradient = \"mean\" }}\n{}", kl(0.05));
    agrees(&loss_of(&toml, &rollouts(), &nothing), written, "sequence");
}

/// RAPO's factor counts groups whose rewards differ, whatever the estimator divides by.
#[test]
fn the_factor_of_groups_counts_rewards_that_differ() {
    let rewards = Some(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0][..]);
    let rollouts = Rollouts { rewards, ..Rollouts::new(&[0, 1, 2, 3, 4, 5, 6], &[0, 2, 4, 6]) };
    for estimator in ["grpo", "grpo_batch", "gpg", "max_rl", "mc_grpo"] {
        let of = |more: &str| {
            let toml = format!("advantage.estimator = \"{estimator}\"\n{more}");
            recipe(&toml).advantages(&Device::cpu(), &rollouts).unwrap().advantage
        };
        let (plain, scaled) = (of(""), of("reward.group_factor_cap = 8.0\n"));
        assert!(plain.iter().any(|advantage| *advantage != 0.0));
        for (plain, scaled) in plain.iter().zip(scaled) {
            near(scaled.into(), 3.0 * f64::from(*plain), estimator);
        }
    }
}

#[test]
fn what_a_stage_reads_is_needed() {
    // The gate's own KL term is against the old policy, whatever the ratio.
    let needs = recipe("ratio.level = \"given\"\ngate.kind = \"kl_cov\"\n").needs();
    assert!(needs.iter().any(|need| need.column == Column::logp_old && need.required));
    // ReMax takes token rewards only if nothing shapes those of responses.
    let remax = recipe("extends = \"remax\"\nreward.overlong = { max_length = 8, buffer = 4 }\n");
    let of_tokens = Rollouts { token_rewards: Some(&LOGP), baseline: Some(&[0.5, 0.5]), ..rollouts() };
    let error = remax.advantages(&Device::cpu(), &of_tokens).unwrap_err().to_string();
    assert!(error.contains("rewards (for reward.overlong)"), "{error}");
}

/// Where a step on the CPU takes the calls apart, as for OPO here, and where it runs a plan.
#[test]
fn what_no_stage_reads_is_not_checked() {
    let rewards = Rollouts { rewards: Some(&[1.0, 0.0, 0.0, 1.0]), ..rollouts() };
    let with = Rollouts { baseline: Some(&[9.0]), baseline_weights: Some(&[9.0]), ..rewards };
    for toml in [
        "",
        "advantage.estimator = \"opo\"\nadvantage.whiten = \"verl\"\n",
        "reward.shaping = { kind = \"signs\", correct = 1.0, wrong = -1.0 }\n",
    ] {
        let of = |rollouts| recipe(toml).advantages(&Device::cpu(), rollouts).unwrap().advantage;
        assert_eq!(of(&with), of(&rewards), "{toml}");
    }
    let fapo = recipe("extends = \"fapo\"\n");
    let error = fapo.advantages(&Device::cpu(), &Rollouts { flawed: Some(&[1]), ..rewards }).unwrap_err();
    assert!(error.to_string().contains("flawed"), "{error}");
}

#[test]
fn returns_without_whitening() {
    let token_rewards = [0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 4.0, 0.0];
    let rollouts = Rollouts { token_rewards: Some(&token_rewards), ..rollouts() };
    let toml = "extends = \"reinforce_plus_plus\"\nadvantage.whiten = \"none\"\nadvantage.gamma = 0.5\n";
    let credit = recipe(toml).advantages(&Device::cpu(), &rollouts).unwrap();
    // The seventh token is masked: no advantage.
    assert_eq!(credit.advantage, [0.25, 0.5, 1.0, 1.0, 2.0, 1.0, 0.0, 2.0, 4.0, 0.0]);
}

#[test]
fn on_policy_the_current_policy_is_the_old_one() {
    let toml = "extends = \"nemo\"\nkl = { estimator = \"k3\", coef = 0.1 }\n";
    let [without, same] = [None, Some(&LOGP[..])].map(|logp_old| Rollouts { logp_old, ..rollouts() });
    let of = |toml: &str, rollouts| loss_of(toml, rollouts, &Credit::per_sequence(ADVANTAGE.to_vec()));
    let forced = format!("{toml}ratio.on_policy = true\n");
    let loss = of(&forced, &without);
    assert_eq!(loss, of(toml, &same));
    assert_eq!(loss.metrics.map(|m| (m.ratio_min, m.ratio_max)), Some((1.0, 1.0)));
    // The column is not read.
    assert_eq!((&loss, loss.coef == of(toml, &rollouts()).coef), (&of(&forced, &rollouts()), false));
    assert!(refusal("ratio.level = \"given\"\nratio.on_policy = true\n").contains("ratio.on_policy"));
}

//! Rows of docs/maths/disagreements.md that no op's test covers: both options, each with the result that its
//! framework documents, by hand.

use crate::gate_batch::{close, one, run_with, summed};
use crate::prelude::*;
use lockstep::recipe::EntropyChoice;
use lockstep::{Column, Columns};

/// Sequences of three tokens and of one, all live except the last token of the first, with r = 1: every
/// token's loss is −A.
fn ragged(recipe: &Recipe, advantage: [f32; 2]) -> PolicyOutput {
    run_with(recipe, &rollouts(), &Credit::per_sequence(advantage.to_vec())).unwrap()
}

fn rollouts() -> Rollouts<'static> {
    Rollouts {
        loss_mask: Some(&[1, 1, 0, 1]),
        logp: Some(&[-1.0; 4]),
        logp_old: Some(&[-1.0; 4]),
        entropy: Some(&[1.0; 4]),
        ..Rollouts::new(&[0, 3, 4], &[0, 2])
    }
}

#[test]
fn row_10_6_dr_grpo_constant() {
    let rollouts = rollouts();
    let batch = rollouts.batch().unwrap();
    let with =
        |horizon: f64| Recipe::named("dr_grpo").unwrap().rebuild("c").horizon(horizon).build().unwrap();
    // Σ l = −2·3 − 1·1 = −7 over N₊·C. The padded width counts the masked token: C = 3.
    assert_eq!(batch.longest(), 3);
    let padded = ragged(&with(batch.longest() as f64), [3.0, 1.0]);
    assert!(close(padded.loss.unwrap(), -7.0 / 6.0) && close(padded.coef[0].into(), -0.5), "{padded:?}");
    // The configured constant is the same for every batch; its default is 1024.
    let configured = ragged(&with(10.0), [3.0, 1.0]);
    assert!(close(configured.loss.unwrap(), -7.0 / 20.0) && close(configured.coef[3].into(), -1.0 / 20.0));
    let default = ragged(&Recipe::named("dr_grpo").unwrap(), [3.0, 1.0]);
    assert!(close(default.loss.unwrap(), -7.0 / 2048.0), "{:?}", default.loss);
    // By name: verl without a constant uses the padded width; TRL uses its constant and counts all sequences,
    // here two of three.
    let verl = Recipe::named("verl_dr_grpo").unwrap();
    let own = ragged(&verl, [3.0, 1.0]);
    assert_eq!((&own.coef, own.loss), (&padded.coef, padded.loss));
    refused(ops::aggregate(&Device::cpu(), &batch, &[1.0; 4], &verl.weight(own.counts)), "…horizon…");
    let entropy = Recipe { entropy: Some(EntropyChoice::new(1.0)), ..verl };
    let credit = Credit::per_sequence(vec![3.0, 1.0]);
    let term = entropy.loss(&Device::cpu(), &rollouts, &credit).unwrap().entropy.unwrap();
    assert!(close(term.entropy, 3.0 / 6.0), "{term:?}");
    let empty = Rollouts { cu_seqlens: Some(&[0, 3, 4, 4]), cu_groups: Some(&[0, 3]), ..rollouts };
    let credit = Credit::per_sequence(vec![3.0, 1.0, 5.0]);
    let trl = run_with(&Recipe::named("trl_dr_grpo").unwrap(), &empty, &credit).unwrap();
    assert!(close(trl.loss.unwrap(), -7.0 / (3.0 * 1024.0)), "{:?}", trl.loss);
}

/// dl/dlogp of one token at ratio r under CISPO with these bounds, A = 2.
fn cispo(low: f32, high: f32, r: f32) -> f64 {
    let recipe = summed("cispo").rebuild("c").gate(GateChoice::Cispo { low, high }).build().unwrap();
    one(&recipe, [&[r.ln() - 2.0], &[-2.0], &[]], 2.0).coef[0].into()
}

#[test]
fn row_10_7_cispo_upper_bound() {
    // `epsilon_high = 5`: TRL's weight is at most 5, verl's and slime's at most 1 + 5. Inside, they agree.
    for (r, trl, verl) in [(7.0, 5.0, 6.0), (5.5, 5.0, 5.5), (4.0, 4.0, 4.0)] {
        assert!(close(cispo(0.0, 5.0, r), -2.0 * trl) && close(cispo(0.0, 1.0 + 5.0, r), -2.0 * verl), "{r}");
    }
    // 1 + 0.28 without a lower bound; absolute; 1 ± 0.2.
    let found =
        ["cispo", "trl_cispo", "verl_cispo", "slime_cispo"].map(|name| Recipe::named(name).unwrap().gate);
    let bounds = [(0.0, 1.28), (0.0, 5.0), (0.8, 1.2), (0.8, 1.2)];
    assert_eq!(found, bounds.map(|(low, high)| GateChoice::Cispo { low, high }));
}

#[test]
fn row_10_8_cispo_lower_bound() {
    // `epsilon_low = 0.2`: TRL has no lower bound, verl and slime raise the weight to 0.8. Inside they agree.
    for (r, trl, verl) in [(0.5, 0.5, 0.8), (0.9, 0.9, 0.9)] {
        assert!(close(cispo(0.0, 1.28, r), -2.0 * trl) && close(cispo(0.8, 1.28, r), -2.0 * verl), "{r}");
    }
}

#[test]
fn row_10_10_sapo_aggregation() {
    // f(1) = 4σ(0)/τ = 2 for A > 0, 2/1.05 for A < 0: l = (−2·3, −2·3, ·; +2/1.05·1).
    let (first, second) = (-6.0, 2.0 / 1.05);
    let of_sequences = [(first + second) / 2.0, -0.75, 0.5];
    let of_tokens = [(2.0 * first + second) / 3.0, -1.0, 1.0 / 3.0];
    for name in ["sapo", "verl_sapo", "trl_sapo", "areal_sapo"] {
        let out = ragged(&Recipe::named(name).unwrap(), [3.0, -1.0]);
        let found = [out.loss.unwrap(), out.coef[0].into(), out.coef[3].into()];
        let want = if name == "areal_sapo" { of_tokens } else { of_sequences };
        assert!(found.iter().zip(want).all(|(found, want)| close(*found, want)), "{name}: {found:?}");
    }
}

#[test]
fn row_10_11_log_ratio_clamp() {
    let token = |recipe: &Recipe, d: f32| {
        let out = one(recipe, [&[0.0], &[-d], &[]], -1.0);
        (out.loss.unwrap(), f64::from(out.coef[0]), out.metrics.unwrap().guarded_tokens)
    };
    // A < 0 without a dual clip: l = r. verl clamps d to 20 and loses the gradient; TRL does neither.
    let (verl, trl) = (summed("grpo"), summed("trl_grpo"));
    assert_eq!((verl.ratio.guard, trl.ratio.guard), (GuardChoice::Clamp, GuardChoice::None));
    let relative = |got: f64, d: f64| (got / d.exp() - 1.0).abs() < 1e-6;
    let (loss, coef, guarded) = token(&verl, 22.0);
    assert!(relative(loss, 20.0) && coef == 0.0 && guarded == 1, "{loss} {coef}");
    let (loss, coef, guarded) = token(&trl, 22.0);
    assert!(relative(loss, 22.0) && relative(coef, 22.0) && guarded == 0, "{loss} {coef}");
    // The bound itself is inside; up to it they agree.
    for d in [20.0, 19.0] {
        assert_eq!(token(&verl, d), token(&trl, d));
    }
}

#[test]
fn row_10_25_rejected_sequences_in_group_statistics() {
    // Sequence 1 is far off-policy, sequence 2 masked.
    let logp = [-0.5, -1.25, -0.75, -2.0, -0.25, -1.5, -0.5, -0.875];
    let mut sampler = logp;
    sampler[3] = -60.0;
    let rollouts = Rollouts {
        logp: Some(&logp),
        logp_old: Some(&logp),
        logp_rollout: Some(&sampler),
        loss_mask: Some(&[1, 1, 1, 1, 1, 0, 1, 1]),
        rewards: Some(&[1.0, 0.0, 1.0, 5.0]),
        ..Rollouts::new(&[0, 3, 5, 6, 8], &[0, 4])
    };
    let of = |recipe: &Recipe| recipe.advantages(&Device::cpu(), &rollouts).unwrap().advantage;
    let others = Columns::of(&[Column::baseline_weights, Column::token_rewards]);
    let mut compared = 0;
    for name in names() {
        let own = Recipe::named(name).unwrap();
        if own.correction.is_some() && own.reads().shared(others).is_empty() {
            assert_eq!(of(&own), of(&Recipe { correction: None, ..own.clone() }), "{name}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
    let by = |statistics: &str| {
        let key = format!("correction.group_statistics = \"{statistics}\"");
        of(&Recipe::from_toml(&format!("extends = \"verl_geo_rs\"\n{key}\n")).unwrap())
    };
    // verl: (A − 7/4)/s over all four rewards, s² = 59/12; without the second and the third, of 1 and 5.
    let (all, kept) = (by("all"), by("kept"));
    let s = (59.0_f64 / 12.0).sqrt();
    assert!(close(all[0].into(), -0.75 / s) && close(all[3].into(), 3.25 / s), "{all:?}");
    assert!(close(kept[0].into(), -0.5_f64.sqrt()) && close(kept[3].into(), 0.5_f64.sqrt()), "{kept:?}");
}

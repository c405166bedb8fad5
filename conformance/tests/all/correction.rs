//! Rollout correction: rows of docs/maths/disagreements.md, what rejection leaves, saturation, and errors.

use crate::prelude::*;
use lockstep::core::correction::{K1Band, Rejections, Rule, Statistic, WeightLevel};
use lockstep::ops::correction::{
    Correction, CorrectionParams, Denominator, mismatch_stats, rollout_correction,
};

pub(crate) fn cpu() -> Device {
    Device::cpu()
}

/// Log-probabilities whose differences are exactly `d`.
pub(crate) fn pair(d: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let old: Vec<f32> = d.iter().map(|d| if *d > 0.0 { 0.0 } else { *d }).collect();
    let rollout: Vec<f32> = d.iter().map(|d| if *d > 0.0 { -d } else { 0.0 }).collect();
    (old, rollout)
}

/// The correction of rows that form one group, with these log-ratios.
fn correct(offsets: &[u32], d: &[f32], params: &CorrectionParams) -> Correction {
    let ((old, rollout), groups) = (pair(d), [0, offsets.len() as u32 - 1]);
    of_policies(&Batch::new(offsets, &groups, None).unwrap(), &old, &rollout, params)
}

fn of_policies(batch: &Batch<'_>, old: &[f32], rollout: &[f32], params: &CorrectionParams) -> Correction {
    rollout_correction(&cpu(), batch, old, rollout, params).unwrap()
}

fn only(statistic: Statistic, low: Option<f32>, high: f32, band: K1Band) -> CorrectionParams {
    CorrectionParams::NONE.reject(Rejections::NONE.with(statistic, low, high, band).unwrap())
}

fn near(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{got} is not {want}");
}

/// These advantages with the weights and the mask of a correction.
fn corrected(correction: Correction, advantage: Vec<f32>) -> Credit {
    let after = correction.denominator == Denominator::After;
    let (loss_mask, weights) = (after.then_some(correction.kept_mask), Some(correction.weights));
    Credit { loss_mask, weights, ..Credit::per_sequence(advantage) }
}

pub(crate) const K: [f32; 4] = [0.1, -0.3, 0.2, -0.5];

#[test]
fn worked_8_4_levels_of_the_weight() {
    let plain = |level| CorrectionParams { level, rule: Rule::Plain, ..CorrectionParams::NONE };
    let all = |params| correct(&[0, 4], &K, &params).weights;
    for (k, w) in K.iter().zip(all(plain(WeightLevel::Token))) {
        near(w.into(), f64::from(*k).exp(), WORKED);
    }
    for (level, want) in
        [(WeightLevel::Sequence, 0.606531), (WeightLevel::Geometric, 0.882497), (WeightLevel::One, 1.0)]
    {
        all(plain(level)).iter().for_each(|w| near((*w).into(), want, WORKED));
    }
}

#[test]
fn row_10_9_k1_rejection_sign() {
    // ρ = 3 lies in [0.5, 4] but 1/ρ does not; for 1/3 it is the other way round.
    let d = [3.0f32.ln(), -(3.0f32.ln())];
    for statistic in [Statistic::TokenK1, Statistic::SeqSumK1, Statistic::SeqMeanK1] {
        let kept = |band| correct(&[0, 1, 2], &d, &only(statistic, Some(0.5), 4.0, band)).kept_mask;
        assert_eq!(kept(K1Band::Rho), [1, 0], "{}", statistic.name());
        assert_eq!(kept(K1Band::InverseRho), [0, 1], "{}", statistic.name());
        // A symmetric band cannot distinguish them; a single bound stands for such a band.
        for band in [K1Band::Rho, K1Band::InverseRho] {
            assert_eq!(correct(&[0, 1, 2], &d, &only(statistic, None, 4.0, band)).kept_mask, [1, 1]);
            assert_eq!(correct(&[0, 1, 2], &d, &only(statistic, None, 2.5, band)).kept_mask, [0, 0]);
        }
    }
}

/// Probabilities 0.5 and 0.25, 0.25 and 0.5, 0.5 and 0.5.
#[test]
fn rejection_by_differences_of_probabilities() {
    let batch = Batch::new(&[0, 3], &[0, 1], None).unwrap();
    let [half, quarter] = [0.5f32.ln(), 0.25f32.ln()];
    let kept = |statistic, low, high| {
        let params = only(statistic, low, high, K1Band::Rho);
        of_policies(&batch, &[half, quarter, half], &[quarter, half, half], &params).kept_mask
    };
    assert_eq!(kept(Statistic::TokenDiff, None, 0.2), [0, 0, 1]);
    assert_eq!(kept(Statistic::TokenDiff, Some(-0.3), 0.2), [0, 1, 1]);
    assert_eq!(kept(Statistic::TokenDiff, Some(0.1), 0.3), [1, 0, 0]);
    // Sum and mean are 0.
    for statistic in [Statistic::SeqSumDiff, Statistic::SeqMeanDiff] {
        assert_eq!(kept(statistic, None, 1e-6), [1; 3]);
        assert_eq!(kept(statistic, Some(1e-3), 1.0), [0; 3]);
        assert_eq!(kept(statistic, Some(-1.0), -1e-3), [0; 3]);
    }
}

/// ρ = 2 and 1/8: the largest is 2, whatever the smallest is.
#[test]
fn rejection_by_the_largest_ratio() {
    let d = [2.0f32.ln(), -(8.0f32.ln())];
    let kept = |low, high, band| {
        correct(&[0, 2], &d, &only(Statistic::SeqMaxK1, Some(low), high, band)).kept_mask == [1, 1]
    };
    assert!(kept(1.5, 2.5, K1Band::Rho) && !kept(0.1, 1.9, K1Band::Rho) && !kept(2.1, 9.0, K1Band::Rho));
    assert!(kept(0.0, 2.5, K1Band::Rho) && kept(1.5, f32::INFINITY, K1Band::Rho), "no such end");
    assert!(kept(0.4, 1.0, K1Band::InverseRho) && !kept(0.6, 1.0, K1Band::InverseRho));
}

#[test]
fn both_ends_of_a_band_are_inside() {
    let params = only(Statistic::TokenK2, None, 0.5, K1Band::Rho);
    assert_eq!(correct(&[0, 3], &[1.0, -1.0, 1.000_001], &params).kept_mask, [1, 1, 0]);
    let icepop = CorrectionParams::mask(WeightLevel::Token, 1.0, 1.0);
    assert_eq!(correct(&[0, 3], &[0.0, 1e-6, -1e-6], &icepop).weights, [1.0, 0.0, 0.0]);
}

#[test]
fn row_10_5_denominator_under_rejection() {
    // Two of four tokens are rejected. Token-mean over the rest doubles their share.
    let recipe = Recipe::builder("t").aggregation(AggregationMode::TokenMean).build().unwrap();
    let old = Some(&[-1.0; 4][..]);
    let rollouts = Rollouts { logp: old, logp_old: old, ..Rollouts::new(&[0, 2, 4], &[0, 2]) };
    let coefficients = |denominator| {
        let reject = only(Statistic::TokenK2, None, 1.0, K1Band::Rho);
        let params = CorrectionParams { denominator, ..reject };
        let out = correct(&[0, 2, 4], &[0.0, 3.0, 0.0, -3.0], &params);
        let counts = out.counts();
        let loss = recipe.loss(&cpu(), &rollouts, &corrected(out, vec![1.0, 1.0])).unwrap();
        assert_eq!(loss.counts, counts);
        loss.policy.coef
    };
    assert_eq!(coefficients(Denominator::Before), [-0.25, 0.0, -0.25, 0.0]);
    assert_eq!(coefficients(Denominator::After), [-0.5, 0.0, -0.5, 0.0]);
}

#[test]
fn a_sequence_that_loses_all_has_no_part_in_its_baseline() {
    // Sequence 0 is rejected whole; the two tokens of 1 one by one; 2 and 3 stay; 4 had no live token.
    let mask = [1, 1, 1, 1, 1, 1, 0];
    let batch = Batch::with_empty_rows(&[0, 2, 4, 5, 6, 7], &[0, 5], Some(&mask)).unwrap();
    let (old, rollout) = pair(&[0.6, 0.6, 1.5, -1.5, 0.1, 0.0, 9.0]);
    let rejections = Rejections::NONE
        .with(Statistic::SeqSumK1, None, 3.0, K1Band::Rho)
        .and_then(|r| r.with(Statistic::TokenK2, None, 1.0, K1Band::Rho))
        .unwrap();
    let params = CorrectionParams::truncate(WeightLevel::Token, 2.0).reject(rejections);
    let out = of_policies(&batch, &old, &rollout, &params);
    assert_eq!((&out.kept_mask[..], &out.kept[..]), (&[0, 0, 0, 0, 1, 1, 0][..], &[0, 0, 1, 1, 0][..]));
    let counts = [out.counts_before, out.counts_after].map(|counts| (counts.tokens, counts.nonempty));
    assert_eq!(counts, [(6, 4), (2, 2)]);
    near(out.stats.rejected_fraction, 4.0 / 6.0, BY_HAND);
    near(out.stats.rejected_sequences_fraction, 0.5, BY_HAND);

    for (denominator, name) in [(Denominator::Before, "before"), (Denominator::After, "after")] {
        let toml = format!(
            "advantage = {{ norm_by_std = false, singleton = 'zero' }}\n\
             correction = {{ level = 'token', denominator = '{name}', reject = [\
             {{ statistic = 'seq_sum_k1', high = 3.0 }}, {{ statistic = 'token_k2', high = 1.0 }}] }}\n"
        );
        let recipe = Recipe::from_toml(&toml).unwrap();
        let rollouts = Rollouts {
            loss_mask: Some(&mask),
            rewards: Some(&[9.0, 9.0, 1.0, 0.0, 9.0]),
            logp: Some(&old),
            logp_old: Some(&old),
            logp_rollout: Some(&rollout),
            ..Rollouts::new(&[0, 2, 4, 5, 6, 7], &[0, 5])
        };
        let (credit, loss) = recipe.step(&cpu(), &rollouts).unwrap();
        let want = [0.0, 0.0, 0.5, -0.5, 0.0];
        assert_eq!(credit.advantage, want, "the rejected rewards of 9 moved the baseline");
        // The recipe does what the op does.
        let by_op = corrected(Correction { denominator, ..out.clone() }, want.to_vec());
        assert_eq!((&credit.weights, &credit.loss_mask), (&by_op.weights, &by_op.loss_mask));
        let report = credit.correction.unwrap();
        assert_eq!((report.stats, report.counts_after), (out.stats, out.counts_after));
        // The loss is 0, not NaN, whichever mask the denominator uses.
        assert_eq!((&loss.row_loss[..2], loss.row_loss[4]), (&[0.0, 0.0][..], 0.0));
        assert_eq!((&loss.coef[..4], loss.coef[6]), (&[0.0; 4][..], 0.0));
    }
}

#[test]
fn everything_rejected_is_a_loss_of_0() {
    let params = only(Statistic::TokenK2, None, 1e-3, K1Band::Rho);
    let out = correct(&[0, 2], &[2.0, -2.0], &params);
    assert_eq!((&out.weights[..], &out.kept[..]), (&[0.0, 0.0][..], &[0][..]));
    let old = Some(&[-1.0, -1.0][..]);
    let rollouts = Rollouts { logp: old, logp_old: old, ..Rollouts::new(&[0, 2], &[0, 1]) };
    let credit = corrected(out, vec![1.0]);
    for mode in [AggregationMode::TokenMean, AggregationMode::SeqMeanTokenMean] {
        let recipe = Recipe::builder("t").aggregation(mode).build().unwrap();
        let loss = recipe.loss(&cpu(), &rollouts, &credit).unwrap();
        assert_eq!((loss.loss, &loss.coef[..]), (Some(0.0), &[0.0, 0.0][..]));
    }
}

#[test]
fn several_rejections_multiply() {
    let d = [0.1, 0.2, 1.4, -0.4, 0.9, 0.1, 0.0, 0.05, -0.1];
    let kept = |list: &[Statistic]| {
        let all = list.iter().try_fold(Rejections::NONE, |all, s| {
            all.with(*s, None, if s.is_k1() { 2.0 } else { 0.3 }, K1Band::Rho)
        });
        correct(&[0, 3, 6, 9], &d, &CorrectionParams::NONE.reject(all.unwrap())).kept_mask
    };
    for a in Statistic::ALL {
        for b in Statistic::ALL {
            let product: Vec<u8> = kept(&[a]).iter().zip(kept(&[b])).map(|(a, b)| a * b).collect();
            assert_eq!(kept(&[a, b]), product, "{} and {}", a.name(), b.name());
        }
    }
}

#[test]
fn batch_normalisation_makes_the_mean_1() {
    let mask = [1, 1, 0, 1, 1, 1, 0];
    let batch = Batch::with_empty_rows(&[0, 3, 6, 7], &[0, 3], Some(&mask)).unwrap();
    let (old, rollout) = pair(&[0.5, -0.2, 7.0, 0.9, 0.3, -0.8, 7.0]);
    let correct = |params: &CorrectionParams| of_policies(&batch, &old, &rollout, params);
    // Over the live tokens; over the two sequences with tokens, not over all three and not over tokens.
    for (level, terms) in [(WeightLevel::Token, &[0, 1, 3, 4, 5][..]), (WeightLevel::Sequence, &[0, 3])] {
        let params = CorrectionParams { normalize: true, ..CorrectionParams::truncate(level, 2.0) };
        let out = correct(&params);
        let raw = correct(&CorrectionParams { normalize: false, ..params });
        for (y, w) in out.weights.iter().zip(&raw.weights) {
            near((*y).into(), f64::from(*w) / out.stats.normalizer, WORKED);
        }
        let sum: f64 = terms.iter().map(|i| f64::from(out.weights[*i])).sum();
        near(sum / terms.len() as f64, 1.0, WORKED);
    }
    // All weights 0: left unchanged.
    let zero = CorrectionParams::mask(WeightLevel::Token, 100.0, 200.0);
    let out = correct(&CorrectionParams { normalize: true, ..zero });
    assert_eq!((&out.weights[..], out.stats.normalizer), (&[0.0; 7][..], 1.0));
}

#[test]
fn saturation_and_its_errors() {
    let batch = Batch::new(&[0, 2, 4], &[0, 2], None).unwrap();
    let (old, rollout) = ([-1e30, 0.0, -1e4, 0.0], [0.0, -1e30, 0.0, -1e4]);
    for level in [WeightLevel::Token, WeightLevel::Sequence, WeightLevel::Geometric] {
        for rule in [Rule::Truncate, Rule::Mask, Rule::Plain] {
            let params = CorrectionParams { level, rule, ..CorrectionParams::NONE };
            let out = of_policies(&batch, &old, &rollout, &params);
            assert!(out.weights.iter().all(|w| w.is_finite() && *w >= 0.0));
        }
    }
    let stats = mismatch_stats(&cpu(), &batch, &old, &rollout, 20.0).unwrap();
    assert!(stats.chi2_token.is_finite() && stats.chi2_seq.is_finite() && stats.ess > 0.0);
    assert_eq!(stats.extreme, [1.0; 4]);
    // Without a clamp a plain weight overflows and is refused by index; a truncated weight does not.
    let open = CorrectionParams { level: WeightLevel::Token, bound: f32::INFINITY, ..CorrectionParams::NONE };
    let error =
        |rollout: &[f32]| rollout_correction(&cpu(), &batch, &old, rollout, &open).unwrap_err().to_string();
    assert!(error(&rollout).starts_with("`weights`[1] is not finite"), "{}", error(&rollout));
    let nan = error(&[0.0, f32::NAN, 0.0, 0.0]);
    assert_eq!(nan, "`logp_rollout`[1] is NaN: expected a log-probability: finite and at most 0");
    let truncated = CorrectionParams { rule: Rule::Truncate, ..open };
    assert_eq!(of_policies(&batch, &old, &rollout, &truncated).weights, [0.0, 2.0, 0.0, 2.0]);
    for (statistic, low, high, message) in [
        (Statistic::SeqMaxK3, Some(0.1), 2.0, "only an upper bound"),
        (Statistic::TokenK1, Some(3.0), 2.0, "`rejection.low` is 3"),
        (Statistic::TokenDiff, Some(0.5), 0.2, "rejection.low"),
        (Statistic::TokenDiff, None, f32::NAN, "rejection.high"),
    ] {
        let error = Rejections::NONE.with(statistic, low, high, K1Band::Rho).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn mismatch_by_hand() {
    let batch = Batch::with_empty_rows(&[0, 2, 3, 4], &[0, 3], Some(&[1, 1, 1, 0])).unwrap();
    let (old, rollout) = pair(&[0.7, -0.1, -2.5, 3.0]);
    let stats = mismatch_stats(&cpu(), &batch, &old, &rollout, 20.0).unwrap();
    let d = [0.7f64, -0.1, -2.5];
    let mean = |f: &dyn Fn(f64) -> f64| d.iter().map(|d| f(*d)).sum::<f64>() / 3.0;
    assert_eq!(stats.tokens, 3);
    near(stats.kl_k1, -mean(&|d| d), WORKED);
    near(stats.kl_k3, mean(&|d| d.exp() - 1.0 - d), WORKED);
    near(stats.chi2_token, mean(&|d| (2.0 * d).exp()) - 1.0, WORKED);
    near(stats.chi2_seq, (1.2f64.exp() + (-5.0f64).exp()) / 2.0 - 1.0, WORKED);
    near(stats.ess, mean(&f64::exp).powi(2) / mean(&|d| (2.0 * d).exp()), WORKED);
    near(stats.ppl_ratio, ((-0.3f64).exp() + 2.5f64.exp()) / 2.0, WORKED);
    assert_eq!(stats.extreme, [2.0 / 3.0, 2.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
    near(stats.max_log_ratio, 0.7, WORKED);
    assert_eq!(stats.min_log_ratio, -2.5);
}

#[test]
fn a_long_sequence() {
    // A million tokens with ρ = e^0.001: their product exceeds the clamp, their geometric mean does not.
    let n = 1_000_000;
    let offsets = [0, n as u32];
    let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
    let (old, rollout) = (vec![-0.5; n], vec![-0.5 - 1.0 / 1024.0; n]);
    let weight = |level| {
        let params = CorrectionParams { level, ..CorrectionParams::NONE };
        f64::from(of_policies(&batch, &old, &rollout, &params).weights[n - 1])
    };
    near(weight(WeightLevel::Sequence) / 20f64.exp(), 1.0, WORKED);
    near(weight(WeightLevel::Geometric), (1.0f64 / 1024.0).exp(), WORKED);
}

#[test]
fn named_recipes_do_what_their_frameworks_do() {
    let d = [1.0, 0.5, -1.0, 0.002];
    let (old, rollout) = pair(&d);
    let rollouts = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        logp_old: Some(&old),
        logp_rollout: Some(&rollout),
        ..Rollouts::new(&[0, 2, 4], &[0, 2])
    };
    let run = |name: &str| {
        let mut recipe = Recipe::named(name).unwrap();
        assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe, "{name} as TOML");
        // Only one of the two may remain.
        recipe.advantage.singleton = SingletonChoice::Zero;
        recipe.advantages(&cpu(), &rollouts).unwrap()
    };
    let r = d.map(|d| f64::from(d).exp());
    let (first, second) = (r[0] * r[1], r[2] * r[3]);
    assert!(first > 3.0);
    for (name, want) in [
        ("verl_tis_token", [2.0, r[1], r[2], r[3]]),
        ("slime_tis", [2.0, r[1], r[2], r[3]]),
        ("verl_tis_sequence", [2.0, 2.0, second, second]),
        ("verl_mis_sequence", [0.0; 4]),
        ("icepop", [r[0], r[1], 0.0, r[3]]),
        // No lower bound: the second stays; the first is above 3.
        ("trl_vllm", [0.0, 0.0, second, second]),
        ("decoupled_ppo", r),
        ("nemo_seq_mask_tis", [0.0; 4]),
        ("geo_rs", [0.0; 4]),
    ] {
        let got = run(name).weights.unwrap();
        got.iter().zip(want).for_each(|(w, want)| near((*w).into(), want, 2.0 * WORKED));
    }
    let report = run("icepop").correction.unwrap();
    assert_eq!(report.stats.rejected_fraction, 0.0, "a band zeroes weights, it rejects nothing");
    assert_eq!(report.counts_before, report.counts_after);
    // Either the mask after rejection, or the original mask.
    assert_eq!((run("geo_rs").loss_mask, run("trl_vllm").loss_mask), (Some(vec![0; 4]), None));
}

#[test]
fn a_recipe_without_a_correction_has_no_weights() {
    let rollouts = Rollouts { rewards: Some(&[1.0, 0.0]), ..Rollouts::new(&[0, 1, 2], &[0, 2]) };
    let credit = Recipe::named("grpo").unwrap().advantages(&cpu(), &rollouts).unwrap();
    assert_eq!((credit.weights, credit.correction, credit.loss_mask), (None, None, None));
    let reject = "correction.reject = [{ statistic = 'token_k2', high = 1.0 }]";
    let own = Recipe::from_toml(reject).unwrap().correction.unwrap();
    assert_eq!(own.denominator, Denominator::After);
}

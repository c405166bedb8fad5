//! Rows of logits: finite differences, what must not be read, what is refused, and the entropy stage of a
//! recipe.

use crate::differences::slopes;
use crate::prelude::*;
use lockstep::core::logits::{LogitsGradient, LogitsStatistics};
use lockstep::core::num::{Bf16, F16, Storage};
use lockstep::ops::logits::{
    Logits, logits_gradient, logits_gradient_in_place, logits_statistics, otr_exact,
};
use lockstep_conformance::oracle::otr;
use lockstep_conformance::oracle::statistics::softmax;

pub(crate) const FORBIDDEN: f32 = f32::NEG_INFINITY;

pub(crate) fn device() -> Device {
    Device::cpu()
}

/// The label is 3.
fn row(vocab: usize, seed: u64) -> Vec<f32> {
    row_with(3, vocab, seed)
}

/// A row with forbidden tokens, but `possible`.
pub(crate) fn row_with(possible: usize, vocab: usize, seed: u64) -> Vec<f32> {
    let source = Source::new(seed);
    let z = |v: usize| match source.below(v, 9) {
        0 if v != possible => FORBIDDEN,
        1 => 4.0,
        _ => 2.0 * source.fork(1).signed(v),
    };
    (0..vocab).map(z).collect()
}

fn one<'a>(z: &'a [f32], label: &'static [u32]) -> Logits<'a> {
    Logits { logits: z, labels: label, loss_mask: None }
}

#[test]
fn gradient_of_logp_and_entropy_is_that_of_the_oracle() {
    for (vocab, t) in [(4usize, 1.0f32), (33, 0.7), (150, 2.5)] {
        let z = row(vocab, vocab as u64);
        let (c, h) = (-0.75f32, 0.5f32);
        let statistics = logits_statistics(&device(), &one(&z, &[3]), t, true).unwrap();
        let got = logits_gradient(&device(), &one(&z, &[3]), &statistics, &[c], Some(&[h])).unwrap();
        let loss = |z: &[f64]| {
            let s = softmax(z, t.into());
            f64::from(c) * s.logp[3] + f64::from(h) * s.entropy()
        };
        for (v, want) in slopes(&z, loss).into_iter().enumerate() {
            if z[v] == FORBIDDEN {
                assert_eq!(got[v].to_bits(), 0, "a forbidden token has gradient +0");
            }
            assert!((f64::from(got[v]) - want).abs() <= FINITE_DIFFERENCE, "{v}: {} against {want}", got[v]);
        }
        let total: f64 = got.iter().map(|g| f64::from(*g)).sum();
        assert!(total.abs() < 1e-6, "softmax does not see a constant: {total}");
    }
}

#[test]
fn otr_is_the_gradient_of_its_loss_and_weighted_sft_at_kappa_1() {
    let z = row(60, 5);
    for (kappa, beta) in [(1.3f32, 0.0f32), (1.3, -0.1), (1.0, 0.5)] {
        let got = otr_exact(&device(), &one(&z, &[3]), kappa, beta, None, true).unwrap();
        let at: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
        // Candidates are constant: only the policy moves.
        let candidates = softmax(&at, kappa.into());
        let loss = |z: &[f64]| otr::loss(&softmax(z, 1.0), &candidates, 3, beta.into());
        assert!((got.loss - loss(&at)).abs() < 1e-6);
        for (v, want) in slopes(&z, loss).into_iter().enumerate().filter(|(v, _)| z[*v] != FORBIDDEN) {
            assert!((f64::from(got.gradient[v]) - want).abs() <= FINITE_DIFFERENCE, "{v}");
        }
        if kappa == 1.0 {
            let statistics = logits_statistics(&device(), &one(&z, &[3]), 1.0, false).unwrap();
            let weighted = -(1.0 - beta) * statistics.logp[0].exp();
            let sft = logits_gradient(&device(), &one(&z, &[3]), &statistics, &[weighted], None).unwrap();
            for (a, b) in sft.iter().zip(&got.gradient) {
                assert!((a - b).abs() < 1e-7, "{a} {b}");
            }
        }
    }
}

#[test]
fn worked_1_4_entropy_of_known_rows() {
    let statistics = |z: &[f32]| logits_statistics(&device(), &one(z, &[0]), 1.0, true).unwrap();
    let near = |got: &[f32], want: f64, by: f64| assert!((f64::from(got[0]) - want).abs() < by, "{got:?}");
    let uniform = statistics(&[7.0; 1000]);
    near(&uniform.entropy, 1000f64.ln(), 1e-6);
    near(&uniform.collision, 1e-3, 1e-9);
    near(&uniform.lse, 7.0 + 1000f64.ln(), 1e-6);
    let certain = statistics(&[0.0, FORBIDDEN, FORBIDDEN]);
    let all = (certain.logp[0], certain.entropy[0], certain.collision[0], certain.score_norm[0]);
    assert_eq!(all, (0.0, 0.0, 1.0, 0.0), "one possible token");
    // Nearly certain: p = (1 − q, q). The ln of a sum rounded to binary32 would be 0, and 1 − 2p + Σp² only
    // rounding.
    near(&statistics(&[0.0, -20.030_119]).logp, -2e-9, 1e-15);
    let q = 1e-4 / 1.0001;
    near(&statistics(&[0.0, -9.210_340_5]).score_norm, 2.0 * q * q, 1e-13);
    // Two of three tokens: H = ln 2, score norm ½, whatever is forbidden.
    let two = statistics(&[1.0, 1.0, FORBIDDEN]);
    near(&two.entropy, 2f64.ln(), 1e-7);
    near(&two.score_norm, 0.5, 1e-7);
}

#[test]
fn top_token_is_the_first_of_the_largest() {
    let top = |z: &[f32]| logits_statistics(&device(), &one(z, &[3]), 1.0, false).unwrap().top[0];
    for (vocab, at) in [(4usize, 0usize), (2048, 2047), (2049, 2048), (5000, 2048), (5000, 4999)] {
        let mut z = vec![-1.0; vocab];
        (z[at], z[vocab - 1]) = (2.0, 2.0);
        assert_eq!(top(&z) as usize, at, "of {vocab}");
    }
    assert_eq!(top(&[-0.0, 0.0, -1.0, 0.0]), 0, "zeros are equal");
}

#[test]
fn masked_rows_are_not_looked_at() {
    let z = [row(40, 1), vec![f32::NAN; 40], row(40, 2)].concat();
    let rows = Logits { logits: &z, labels: &[3, 77, 3], loss_mask: Some(&[1, 0, 9]) };
    let all = logits_statistics(&device(), &rows, 1.0, true).unwrap();
    assert_eq!((all.logp[1], all.entropy[1], all.score_norm[1], all.top[1]), (0.0, 0.0, 0.0, 0));
    let dz = logits_gradient(&device(), &rows, &all, &[1.0, f32::NAN, 1.0], Some(&[0.5; 3])).unwrap();
    assert!(dz[40..80].iter().all(|g| g.to_bits() == 0) && dz[80..].iter().any(|g| *g != 0.0));
    let otr = otr_exact(&device(), &rows, 1.3, 0.0, None, true).unwrap();
    assert_eq!((otr.row_loss[1], otr.gradient[50]), (0.0, 0.0));
    let halves = f64::from(otr.row_loss[0]) / 2.0 + f64::from(otr.row_loss[2]) / 2.0;
    assert!((otr.loss - halves).abs() < 1e-12, "the mean is over two positions");
    let none = Logits { loss_mask: Some(&[0, 0, 0]), ..rows };
    assert_eq!(otr_exact(&device(), &none, 1.3, 0.0, None, false).unwrap().loss, 0.0);
}

#[test]
fn what_is_refused() {
    let run = |z: &[f32], labels: &[u32], t: f32, says: &str| {
        let rows = Logits { logits: z, labels, loss_mask: None };
        refused(logits_statistics(&device(), &rows, t, false), says);
    };
    let z = [row(20, 1), row(20, 2)].concat();
    let label = "expected a finite number, because it is the label's logit";
    for (i, x, says) in [
        (33, f32::NAN, "`logits`[33] is NaN: expected a finite number, or -inf for a forbidden token"),
        (0, f32::INFINITY, "`logits`[0] is inf…"),
        (23, FORBIDDEN, &format!("…`logits`[23] is -inf: {label}…")),
    ] {
        let mut z = z.clone();
        z[i] = x;
        run(&z, &[3, 3], 1.0, says);
    }
    let none = "`logits`[0] is -inf: expected a row with at least one finite entry…";
    run(&[FORBIDDEN; 20], &[3, 3], 1.0, none);
    run(&z, &[3, 20], 1.0, "`labels`[1] is 20: expected a token below…");
    run(&z[..39], &[3, 3], 1.0, "`logits` has 39 entries: expected 38…");
    run(&z, &[], 1.0, "`labels` is empty…");
    [0.0, -1.0, f32::NAN, f32::INFINITY].into_iter().for_each(|t| run(&z, &[3, 3], t, "`temperature` is…"));
    run(&[3e38, -3e38], &[1], 1.0, "`logp`[0] is not finite…");
    let rows = Logits { logits: &z, labels: &[3, 3], loss_mask: None };
    let plain = logits_statistics(&device(), &rows, 1.0, false).unwrap();
    for (coef, of_entropy, says) in [
        (&[1.0, 1.0][..], Some(&[0.0, 0.0][..]), "…compute them with moments…"),
        (&[1.0, f32::NAN], None, "`coef`[1] is NaN…"),
        (&[1.0], None, "`coef` has 1 entries: expected 2…"),
    ] {
        refused(logits_gradient(&device(), &rows, &plain, coef, of_entropy), says);
    }
    refused(otr_exact(&device(), &rows, 1.3, 1.5, None, false), "`beta` is 1.5…");
}

#[test]
fn saturated_rows_are_finite_and_exact() {
    // ±1e4: the loser's probability is 0, not NaN; its log-probability still counts.
    let z = [1e4, -1e4, 1e4];
    let rows = one(&z, &[1]);
    let out = logits_statistics(&device(), &rows, 1.0, true).unwrap();
    assert_eq!(out.logp[0], -2e4 - 2f32.ln());
    assert!((out.score_norm[0] - 1.5).abs() < 1e-6 && (out.entropy[0] - 2f32.ln()).abs() < 1e-7);
    let dz = logits_gradient(&device(), &rows, &out, &[1.0], Some(&[1.0])).unwrap();
    assert_eq!(dz, [-0.5, 1.0, -0.5], "at equal p the entropy has no slope");
    let huge = logits_statistics(&device(), &one(&[3e38, -3e38, 0.0, 3e38], &[0]), 1e-3, true).unwrap();
    assert!((huge.entropy[0] - 2f32.ln()).abs() < 1e-7, "a difference that overflows is a probability of 0");
}

/// Rows that a trainer would have, stored as S.
fn stored<S: Storage>(rows: usize, vocab: usize) -> (Vec<S>, Vec<u32>) {
    let logits = (0..rows).flat_map(|r| row(vocab, r as u64)).map(S::narrow).collect();
    (logits, vec![3; rows])
}

/// Statistics and gradient of logits stored as S are those of the same logits in binary32, rounded once.
fn is_binary32_rounded_once<S: Storage + PartialEq + std::fmt::Debug>()
where
    for<'a> LogitsStatistics<'a, S>: Compiled,
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    // The last batch is longer than what `logits_gradient_in_place` copies at a time.
    for (n, vocab) in [(3, 4), (5, 127), (5, 128), (5, 129), (4, 5003), (50, 60_001)] {
        let (mut z, labels) = stored::<S>(n, vocab);
        let wide: Vec<f32> = z.iter().map(|z| z.widen()).collect();
        let mask: Vec<u8> = (0..n).map(|r| u8::from(r != 1)).collect();
        let coef: Vec<f32> = (0..n).map(|r| 0.25 * r as f32 - 0.6).collect();
        let rows = Logits { logits: &z[..], labels: &labels, loss_mask: Some(&mask) };
        let in_binary32 = Logits { logits: &wide[..], labels: &labels, loss_mask: Some(&mask) };
        let out = logits_statistics(&device(), &rows, 0.9, true).unwrap();
        let same = logits_statistics::<f32>(&device(), &in_binary32, 0.9, true).unwrap();
        assert_eq!(out, same, "{n} × {vocab}");
        let got = logits_gradient(&device(), &rows, &out, &coef, Some(&coef)).unwrap();
        let want = logits_gradient::<f32>(&device(), &in_binary32, &out, &coef, Some(&coef)).unwrap();
        assert!(got.iter().filter(|x| x.widen() != 0.0).count() > n * vocab / 4, "{n} × {vocab}");
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(*got, S::narrow(*want), "entry {i} of {n} × {vocab}: {want:e}");
        }
        let mask = Some(&mask[..]);
        logits_gradient_in_place(&device(), &mut z, &labels, mask, &out, &coef, Some(&coef)).unwrap();
        assert_eq!(z, got, "{n} × {vocab}, in place");
    }
}

#[test]
fn half_precision_is_binary32_rounded_once() {
    is_binary32_rounded_once::<Bf16>();
    is_binary32_rounded_once::<F16>();
    is_binary32_rounded_once::<f32>();
}

#[test]
fn a_gradient_that_half_precision_cannot_hold_is_an_error() {
    fn run<S: Storage>(coef: f32) -> Result<(), Error>
    where
        for<'a> LogitsStatistics<'a, S>: Compiled,
        for<'a> LogitsGradient<'a, S>: Compiled,
    {
        let (mut z, labels) = stored::<S>(3, 40);
        let rows = Logits { logits: &z[..], labels: &labels, loss_mask: None };
        let out = logits_statistics(&device(), &rows, 1.0, false).unwrap();
        let coef = [0.5, 0.5, coef];
        let apart = logits_gradient(&device(), &rows, &out, &coef, None).map(drop);
        let in_place = logits_gradient_in_place(&device(), &mut z, &labels, None, &out, &coef, None);
        assert_eq!(apart.as_ref().err().map(Error::to_string), in_place.err().map(|e| e.to_string()));
        apart
    }
    run::<F16>(6e4).unwrap();
    refused(run::<F16>(1e5), "`gradient of the row of logits`[2] is not finite…");
    assert!(run::<Bf16>(1e5).is_ok() && run::<f32>(3.4e38).is_ok());
    refused(run::<Bf16>(f32::INFINITY), "`coef`[2] is inf…");
    let bits = [0x3f80, 0x4000];
    assert_eq!(Bf16::of_bits(&bits).iter().map(|x| x.widen()).collect::<Vec<_>>(), [1.0, 2.0]);
    let mut bits = [0x3c00, 0xc000];
    F16::of_bits_mut(&mut bits)[0] = F16::narrow(-4.0);
    assert_eq!(bits, [0xc400, 0xc000]);
}

#[test]
fn entropy_term_is_composed_of_aggregation_and_gradient() {
    let recipe = Recipe::from_toml("[entropy]\ncoef = 0.01\n").unwrap();
    assert_eq!(recipe, Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap());
    let logp = Some(&[-1.0f32; 4][..]);
    let rollouts = Rollouts { logp, logp_old: logp, ..Rollouts::new(&[0, 1, 4], &[0, 2]) };
    let credit = Credit::per_sequence(vec![1.0, -1.0]);
    let z: Vec<f32> = (0..4).flat_map(|t| row(12, t)).collect();
    let rows = Logits { logits: &z, labels: &[3; 4], loss_mask: None };
    let loss = |z: &[f32]| {
        let rows = Logits { logits: z, ..rows };
        let out = logits_statistics(&device(), &rows, 1.0, true).unwrap();
        let of = Rollouts { entropy: Some(&out.entropy), ..rollouts };
        (recipe.loss(&device(), &of, &credit).unwrap(), out)
    };
    let (whole, out) = loss(&z);
    let term = whole.entropy.as_ref().unwrap();
    // seq-mean-token-mean: half for the first token, a sixth for each of the others.
    let want: f64 = out.entropy.iter().zip([2.0, 6.0, 6.0, 6.0]).map(|(h, n)| f64::from(*h) / n).sum();
    assert!((term.entropy - want).abs() < 1e-7 && (term.loss + 0.01 * want).abs() < 1e-9);
    let dz = logits_gradient(&device(), &rows, &out, &[0.0; 4], Some(&term.coef)).unwrap();
    // A step down the gradient raises the entropy by its squared norm.
    let squared: f64 = dz.iter().map(|g| f64::from(*g).powi(2)).sum();
    let moved: Vec<f32> = z.iter().zip(&dz).map(|(z, g)| z - 100.0 * g).collect();
    let fell = whole.loss.unwrap() - loss(&moved).0.loss.unwrap();
    assert!((fell / (100.0 * squared) - 1.0).abs() < 0.2, "fell by {fell}, not {}", 100.0 * squared);
    // It is part of the loss and of nothing else.
    let without = Recipe::named("grpo").unwrap().loss(&device(), &rollouts, &credit).unwrap();
    assert!((whole.loss.unwrap() - without.loss.unwrap() - term.loss).abs() < 1e-12);
    assert!(without.entropy.is_none() && without.coef == whole.coef);
    refused(recipe.loss(&device(), &rollouts, &credit), "…missing columns: entropy (for entropy)");
}

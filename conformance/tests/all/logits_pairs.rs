//! Drawn tokens, the one-token rollout on them, and the divergence of two rows of logits: worked values,
//! finite differences, expectations, and what is refused.

use crate::differences::slopes;
use crate::logits::{FORBIDDEN, device, row_with};
use crate::prelude::*;
use lockstep::core::logits::kl::Direction;
use lockstep::ops::logits::{
    Logits, TwoRows, draw_tokens, logits_gradient, logits_kl, logits_statistics, otr_exact, otr_sampled,
};
use lockstep_conformance::oracle::statistics::softmax;
use lockstep_conformance::oracle::{logits_kl as oracle_kl, otr_sampled as oracle_otr};

const BOTH: [Direction; 2] = [Direction::Policy, Direction::Reference];

/// A row with forbidden tokens, never the first.
fn row(vocab: usize, seed: u64) -> Vec<f32> {
    row_with(0, vocab, seed)
}

fn wide(z: &[f32]) -> Vec<f64> {
    z.iter().map(|z| f64::from(*z)).collect()
}

#[test]
fn divergence_and_gradient_are_those_of_the_oracle() {
    for (vocab, t) in [(3usize, 1.0f32), (33, 0.7), (150, 2.5)] {
        let (z, mut q) = (row(vocab, 1), row(vocab, 2));
        // Both forbid the same tokens.
        (0..vocab).for_each(|v| q[v] = if z[v] == FORBIDDEN { FORBIDDEN } else { q[v].max(-9.0) });
        for direction in BOTH {
            let rows = TwoRows { logits: &z, reference: &q, vocab, loss_mask: None };
            let got = logits_kl(&device(), &rows, direction, t, Some(&[-0.75])).unwrap();
            let loss = |z: &[f64]| {
                let (p, q) = (softmax(z, t.into()), softmax(&wide(&q), t.into()));
                match direction {
                    Direction::Policy => oracle_kl::divergence(&p, &q),
                    Direction::Reference => oracle_kl::divergence(&q, &p),
                }
            };
            assert!((f64::from(got.value[0]) - loss(&wide(&z))).abs() < 1e-6);
            for (v, want) in slopes(&z, loss).into_iter().enumerate() {
                let difference = (f64::from(got.gradient[v]) + 0.75 * want).abs();
                assert!(difference <= FINITE_DIFFERENCE, "{direction:?} {v}: {} {want}", got.gradient[v]);
            }
        }
    }
}

#[test]
fn divergence_of_known_rows() {
    // p = (½, ½), q = (¾, ¼): KL(p‖q) = ½ ln(4/3), KL(q‖p) = ln 2 − H(q).
    let rows = TwoRows { logits: &[0.0, 0.0], reference: &[3f32.ln(), 0.0], vocab: 2, loss_mask: None };
    let of = |direction| logits_kl(&device(), &rows, direction, 1.0, Some(&[1.0])).unwrap();
    let (there, back) = (of(BOTH[0]), of(BOTH[1]));
    assert!((f64::from(there.value[0]) - 0.5 * (4f64 / 3.0).ln()).abs() < 1e-7);
    let want = 0.75 * 1.5f64.ln() + 0.25 * 0.5f64.ln();
    assert!((f64::from(back.value[0]) - want).abs() < 1e-7);
    assert_eq!(back.gradient, [-0.25, 0.25], "p − q");
    // ½ (ln ½ − ln ¾ − KL) with KL = ½ ln(4/3): ∓ ¼ ln 3.
    assert!((f64::from(there.gradient[0]) + 0.25 * 3f64.ln()).abs() < 1e-7, "{:?}", there.gradient);
    // A temperature applies to both sides.
    let warm = TwoRows { logits: &[0.0, 0.0], reference: &[2.0 * 3f32.ln(), 0.0], ..rows };
    let got = logits_kl(&device(), &warm, BOTH[0], 2.0, None).unwrap();
    assert!((got.value[0] - there.value[0]).abs() < 1e-7 && got.gradient.is_empty());
}

#[test]
fn divergence_of_nearly_equal_rows_keeps_its_digits() {
    let z: Vec<f32> = (0..64).map(|v| (v as f32 * 0.37).sin()).collect();
    for direction in BOTH {
        let same = TwoRows { logits: &z, reference: &z, vocab: 64, loss_mask: None };
        let got = logits_kl(&device(), &same, direction, 1.0, Some(&[1.0])).unwrap();
        assert!(got.value[0] == 0.0 && got.gradient.iter().all(|g| g.to_bits() == 0), "exactly nothing");
        let mut q = z.clone();
        q[5] += 1e-4;
        let near = TwoRows { reference: &q, ..same };
        let got = f64::from(logits_kl(&device(), &near, direction, 1.0, None).unwrap().value[0]);
        let (p, q) = (softmax(&wide(&z), 1.0), softmax(&wide(&q), 1.0));
        // Second order: ½ p (1 − p) δ². A sum of binary32 logarithms would retain no digit of it.
        let want = oracle_kl::divergence(&p, &q);
        assert!((got / want - 1.0).abs() < 1e-3 && want < 1e-9, "{got:e} {want:e}");
    }
}

#[test]
fn forbidden_tokens_of_divergences() {
    let wide =
        TwoRows { logits: &[0.0, 1.0, FORBIDDEN], reference: &[0.0, 1.0, 5.0], vocab: 3, loss_mask: None };
    let swapped = TwoRows { logits: wide.reference, reference: wide.logits, ..wide };
    let there = logits_kl(&device(), &wide, BOTH[0], 1.0, Some(&[1.0])).unwrap();
    assert!(there.value[0] > 0.0 && there.gradient[2].to_bits() == 0);
    assert!(logits_kl(&device(), &swapped, BOTH[1], 1.0, Some(&[1.0])).is_ok());
    // Masked rows are not read.
    let z = [0.0, 1.0, f32::NAN, f32::INFINITY];
    let rows = TwoRows { logits: &z, reference: &z, vocab: 2, loss_mask: Some(&[1, 0]) };
    let got = logits_kl(&device(), &rows, BOTH[0], 1.0, Some(&[1.0, f32::NAN])).unwrap();
    assert!(got.value == [0.0, 0.0] && got.gradient == [0.0; 4]);
    let ok = TwoRows { logits: &[0.0; 4], reference: &[0.0; 4], vocab: 2, loss_mask: None };
    let none = TwoRows { logits: &[FORBIDDEN; 2], reference: &[0.0; 2], ..ok };
    let infinite = "`logits`[2] is -inf: expected a finite number, because the other side…";
    let table: [(_, _, Option<&[f32]>, _); 10] = [
        (wide, BOTH[1], None, infinite),
        (swapped, BOTH[0], None, "`reference`[2] is -inf…"),
        (TwoRows { loss_mask: None, ..rows }, BOTH[0], None, "`logits`[2] is NaN…"),
        (ok, BOTH[0], Some(&[1.0, f32::INFINITY]), "`coef`[1] is inf…"),
        (ok, BOTH[0], Some(&[1.0]), "`coef` has 1 entries: expected 2…"),
        (TwoRows { reference: &[0.0; 3], ..ok }, BOTH[0], None, "`reference` has 3 entries…"),
        (TwoRows { vocab: 0, ..ok }, BOTH[0], None, "`vocab` is 0…"),
        (TwoRows { vocab: 3, ..ok }, BOTH[0], None, "…`logits` has 4 entries…"),
        (TwoRows { logits: &[], reference: &[], ..ok }, BOTH[0], None, "`logits` is empty…"),
        (none, BOTH[0], None, "…a row with at least one finite entry…"),
    ];
    for (rows, direction, coef, says) in table {
        refused(logits_kl(&device(), &rows, direction, 1.0, coef), says);
    }
}

#[test]
fn divergence_saturates() {
    // The reference gives e^-20000: ln q counts, q is 0.
    let rows = TwoRows { logits: &[1e4, -1e4], reference: &[-1e4, 1e4], vocab: 2, loss_mask: None };
    for direction in BOTH {
        let got = logits_kl(&device(), &rows, direction, 1.0, Some(&[1.0])).unwrap();
        assert_eq!(got.value, [2e4], "{direction:?}");
        assert!(got.gradient.iter().all(|g| g.is_finite()));
    }
    let far = TwoRows { logits: &[0.0, -1e30], reference: &[-1e30, 0.0], ..rows };
    assert_eq!(logits_kl(&device(), &far, BOTH[0], 1.0, None).unwrap().value, [1e30]);
}

#[test]
fn sampled_rollout_is_the_gradient_of_its_loss() {
    let z = row(60, 5);
    let rows = Logits { logits: &z, labels: &[0], loss_mask: None };
    let drawn = draw_tokens(&device(), &rows, 1.3, 40, 9).unwrap();
    let at: Vec<usize> = drawn.iter().map(|a| *a as usize).collect();
    for beta in [0.0f32, -0.1, 0.5, 1.0] {
        let got = otr_sampled(&device(), &rows, &drawn, beta, None, true).unwrap();
        let loss = |z: &[f64]| oracle_otr::loss(&softmax(z, 1.0), 0, &at, beta.into());
        assert!((got.loss - loss(&wide(&z))).abs() < 1e-6);
        for (v, want) in slopes(&z, loss).into_iter().enumerate() {
            assert!((f64::from(got.gradient[v]) - want).abs() <= FINITE_DIFFERENCE, "{v}");
        }
    }
}

/// docs/maths/correction.md: candidates, rewards, no importance weight. Two of four candidates are the label:
/// −(1/4)(2 ln π(x) + β Σ ln π(others)).
#[test]
fn worked_4_9_sampled_rollout() {
    let rows = Logits { logits: &[0.0, 0.0, 0.0, 0.0], labels: &[2], loss_mask: None };
    let got = otr_sampled(&device(), &rows, &[3, 2, 0, 2], -0.5, None, true).unwrap();
    assert!((got.loss - 0.25 * (2.0 - 0.5 * 2.0) * 4f64.ln()).abs() < 1e-6);
    // Σ R = 2 − 2·½ = 1; −(1/4)(n R − ¼ Σ R).
    assert_eq!(got.gradient, [0.1875, 0.0625, -0.4375, 0.1875]);
}

/// Averaged over seeds, the sampled mode equals the exact one in loss and gradient.
#[test]
fn the_expectation_of_the_sampled_mode_is_the_exact_one() {
    let z = [1.5f32, -0.5, 0.25, FORBIDDEN, 0.0, -2.0];
    let rows = Logits { logits: &z, labels: &[2], loss_mask: None };
    let (kappa, beta, draws, seeds) = (1.3, -0.1, 8, 4000u64);
    let exact = otr_exact(&device(), &rows, kappa, beta, None, true).unwrap();
    let (mut loss, mut gradient) = (0.0, [0.0; 6]);
    for seed in 0..seeds {
        let drawn = draw_tokens(&device(), &rows, kappa, draws, seed).unwrap();
        let out = otr_sampled(&device(), &rows, &drawn, beta, None, true).unwrap();
        loss += out.loss / seeds as f64;
        gradient.iter_mut().zip(&out.gradient).for_each(|(sum, g)| *sum += f64::from(*g) / seeds as f64);
    }
    // A draw is 0 or 1 of 8, with a standard deviation of at most half: 1/8·½·√8/√4000, times five.
    let bound = 5.0 * 0.5 * (1.0 / 8f64).sqrt() / (seeds as f64).sqrt();
    assert!((loss - exact.loss).abs() < 3.0 * bound, "{loss} {}", exact.loss);
    for (v, (got, want)) in gradient.iter().zip(&exact.gradient).enumerate() {
        assert!((got - f64::from(*want)).abs() < bound, "{v}: {got} {want}");
    }
}

#[test]
fn draws_follow_the_distribution_stratum_by_stratum() {
    let z = row(500, 3);
    let rows = Logits { logits: &z, labels: &[0], loss_mask: None };
    let p = softmax(&wide(&z), 1.3).p;
    for seed in 0..20 {
        let drawn = draw_tokens(&device(), &rows, 1.3, 256, seed).unwrap();
        assert!(drawn.len() == 256 && drawn.is_sorted());
        for (v, p) in p.iter().enumerate() {
            let n = drawn.iter().filter(|a| **a as usize == v).count() as f64;
            // A piece of the line touches at most two strata that it does not fill.
            assert!((n - 256.0 * p).abs() < 2.0, "{v}: {n} of {}", 256.0 * p);
            assert!(z[v] != FORBIDDEN || n == 0.0);
        }
    }
    let a = draw_tokens(&device(), &rows, 1.3, 256, 1).unwrap();
    assert!(a == draw_tokens(&device(), &rows, 1.3, 256, 1).unwrap());
    assert!(a != draw_tokens(&device(), &rows, 1.3, 256, 2).unwrap());
    // One possible token; a vocabulary of one.
    let certain = Logits { logits: &[FORBIDDEN, -1e30, FORBIDDEN], labels: &[1], loss_mask: None };
    assert_eq!(draw_tokens(&device(), &certain, 1.0, 3, 0).unwrap(), [1, 1, 1]);
    let lone = Logits { logits: &[7.0], labels: &[0], loss_mask: None };
    assert_eq!(draw_tokens(&device(), &lone, 1.0, 1024, 0).unwrap(), [0; 1024]);
}

#[test]
fn sampled_mode_at_kappa_one_and_beta_one_has_no_mean_gradient() {
    // β = 1: every candidate has reward 1, and a row drawn from itself gives zero gradient on average.
    let z = [0.5f32, -1.0, 2.0];
    let rows = Logits { logits: &z, labels: &[1], loss_mask: None };
    let drawn = draw_tokens(&device(), &rows, 1.0, 1024, 4).unwrap();
    let out = otr_sampled(&device(), &rows, &drawn, 1.0, None, true).unwrap();
    assert!(out.gradient.iter().all(|g| g.abs() < 2.0 / 1024.0), "{:?}", out.gradient);
    // Only the label drawn: supervised learning.
    let only = otr_sampled(&device(), &rows, &[1; 16], 0.0, None, true).unwrap();
    let statistics = logits_statistics(&device(), &rows, 1.0, false).unwrap();
    let sft = logits_gradient(&device(), &rows, &statistics, &[-1.0], None).unwrap();
    assert!(only.gradient.iter().zip(&sft).all(|(a, b)| (a - b).abs() < 1e-7));
}

#[test]
fn what_is_refused() {
    let z = [0.0f32, 1.0, FORBIDDEN, 0.5, 0.0, 1.0];
    let rows = Logits { logits: &z, labels: &[0, 0], loss_mask: None };
    for (candidates, beta, says) in [
        (&[0u32, 1, 0, 3][..], 0.0, "`candidates`[3] is 3: expected a token below…"),
        (&[0, 2, 0, 1], 0.0, "`candidates`[1] is 2: expected a token whose logit is not -inf…"),
        (&[0, 1, 0], 0.0, "`candidates` has 3 entries: expected 2…"),
        (&[], 0.0, "`draws` is 0…"),
        (&[0, 1], 1.5, "`beta` is 1.5…"),
    ] {
        refused(otr_sampled(&device(), &rows, candidates, beta, None, true), says);
    }
    let nan = Logits { logits: &[0.0, f32::NAN], labels: &[0], loss_mask: None };
    for (rows, t, draws, says) in [
        (rows, 0.0, 4, "`temperature` is 0…"),
        (rows, 1.0, 0, "`draws` is 0…"),
        (rows, 1.0, 1025, "`draws` is 1025…"),
        (nan, 1.0, 4, "`logits`[1] is NaN…"),
    ] {
        refused(draw_tokens(&device(), &rows, t, draws, 0), says);
    }
    // Masked rows are not read.
    let masked = Logits { logits: &[0.0, 1.0, f32::NAN, 0.0], labels: &[0, 9], loss_mask: Some(&[1, 0]) };
    assert_eq!(draw_tokens(&device(), &masked, 1.0, 2, 0).unwrap()[2..], [0, 0]);
    let out = otr_sampled(&device(), &masked, &[0, 1, 77, 99], 0.0, None, true).unwrap();
    assert!(out.row_loss[1] == 0.0 && out.gradient[2..] == [0.0, 0.0]);
}

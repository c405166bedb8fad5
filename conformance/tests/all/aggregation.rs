//! Aggregation: the five modes by hand, empty rows counted or not, presets of peers, long sums.

use crate::prelude::*;
use crate::wanted::{wanted, with_returns};
use lockstep::recipe::{Aggregation, CountedSequences, Horizon, LengthGuard};
use lockstep_conformance::oracle::aggregate::exact_sum;
use lockstep_conformance::precision::MILLION_TERM_SUM;

/// Rows (1, 2, 3), (4), () and (5, masked, 7): Σ 22, L (3, 1, 0, 2), M 6, N 4 of which 3 are not empty.
const OFFSETS: [u32; 5] = [0, 3, 4, 4, 7];
const VALUES: [f32; 7] = [1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN, 7.0];
const MASK: [u8; 7] = [1, 1, 1, 1, 1, 0, 1];

fn aggregate(mode: AggregationMode, sequences: CountedSequences, length: LengthGuard, c: Option<f64>) -> f64 {
    let device = Device::cpu();
    let batch = Batch::with_empty_rows(&OFFSETS, &[0, 4], Some(&MASK)).unwrap();
    let mut recipe = Recipe::default();
    recipe.aggregation =
        Aggregation { mode, sequences, length, horizon: c.map(Horizon::Tokens), ..recipe.aggregation };
    let counts = batch.counts(&device).unwrap();
    assert_eq!(counts, Counts { tokens: 6, nonempty: 3, sequences: 4 });
    let out = ops::aggregate(&device, &batch, &VALUES, &recipe.weight(counts)).unwrap();
    assert_eq!((out.row_sum, out.row_tokens), (vec![6.0, 4.0, 0.0, 12.0], vec![3, 1, 0, 2]));
    out.value
}

#[test]
fn five_modes_on_hand_numbers() {
    use AggregationMode::{SeqMeanTokenMean, SeqMeanTokenSum, SeqMeanTokenSumNorm, TokenMean, TokenSum};
    use CountedSequences::{All, Nonempty};
    use LengthGuard::{AddEps, AtLeastOne};
    let table = [
        (TokenMean, Nonempty, AddEps, None, 22.0 / 6.0),
        (TokenMean, All, AddEps, None, 22.0 / 6.0),
        (TokenSum, Nonempty, AddEps, None, 22.0),
        (SeqMeanTokenSum, Nonempty, AddEps, None, 22.0 / 3.0),
        (SeqMeanTokenSum, All, AddEps, None, 22.0 / 4.0),
        (SeqMeanTokenMean, Nonempty, AddEps, None, (2.0 + 4.0 + 6.0) / 3.0),
        (SeqMeanTokenMean, All, AtLeastOne, None, (2.0 + 4.0 + 6.0) / 4.0),
        (SeqMeanTokenSumNorm, Nonempty, AddEps, Some(10.0), 22.0 / 30.0),
        (SeqMeanTokenSumNorm, All, AddEps, Some(10.0), 22.0 / 40.0),
    ];
    for (mode, sequences, length, c, want) in table {
        let got = aggregate(mode, sequences, length, c);
        assert!((got - want).abs() <= WORKED, "{mode:?} {sequences:?}: {got}, by hand {want}");
    }
    let exact = aggregate(SeqMeanTokenMean, Nonempty, AtLeastOne, None);
    let eps = aggregate(SeqMeanTokenMean, Nonempty, AddEps, None);
    let by_hand = (6.0 / (3.0 + 1e-8) + 4.0 / (1.0 + 1e-8) + 12.0 / (2.0 + 1e-8)) / 3.0;
    assert!((exact - 4.0).abs() <= BY_HAND, "{exact}");
    assert!((eps - by_hand).abs() <= BY_HAND && eps < exact, "verl's 1e-8 on the length shows: {eps}");
}

#[test]
fn an_all_masked_batch_has_loss_zero() {
    let nan = [f32::NAN; 3];
    let rollouts = Rollouts {
        loss_mask: Some(&[0, 0, 0]),
        logp: Some(&nan),
        logp_old: Some(&nan),
        ..Rollouts::new(&[0, 2, 3], &[0, 2])
    };
    let (rollouts, credit) = (wanted(rollouts, [&nan, &nan]), with_returns(&[1.0, -1.0], 3));
    for name in names() {
        let out = Recipe::named(name).unwrap().loss(&Device::cpu(), &rollouts, &credit).unwrap();
        assert_eq!((out.loss, &out.coef[..]), (Some(0.0), &[0.0; 3][..]), "{name}");
        assert!(out.value.is_none_or(|value| value.loss == 0.0 && value.gradient == [0.0; 3]), "{name}");
        assert!(out.entropy.is_none_or(|term| term.loss == 0.0 && term.coef == [0.0; 3]), "{name}");
        assert_eq!(out.policy.metrics.unwrap().tokens, 0);
    }
}

#[test]
fn verl_and_trl_differ_in_eps_and_the_default_refuses_a_group_of_one() {
    let device = Device::cpu();
    let pair = Rollouts { rewards: Some(&[1.0, 0.0]), ..Rollouts::new(&[0, 1, 2], &[0, 2]) };
    for (name, eps) in [("verl", 1e-6), ("trl", 1e-4)] {
        let found = Recipe::named(name).unwrap().advantages(&device, &pair).unwrap().advantage[0];
        assert!((f64::from(found) - 0.5 / (0.5f64.sqrt() + eps)).abs() <= WORKED, "{name}: {found}");
    }
    let single = Rollouts { rewards: Some(&[0.75]), ..Rollouts::new(&[0, 1], &[0, 1]) };
    refused(Recipe::named("grpo").unwrap().advantages(&device, &single), "`cu_groups`[0]…");
}

#[test]
fn a_million_terms() {
    const N: usize = 1_000_000;
    let source = Source::new(11);
    let kinds: [(&str, &dyn Fn(usize) -> f32); 5] = [
        ("one tenth", &|_| 0.1),
        ("alternating, large against small", &|i| if i % 2 == 0 { 1e6 } else { -999_999.9 }),
        ("binary exponents over 60", &|i| source.spread(i)),
        ("one large, the rest lost in plain binary32", &|i| if i == 0 { 16_777_216.0 } else { 1.0 }),
        ("a telescope that ends at nothing", &|i| if i < N / 2 { 3.7 } else { -3.7 }),
    ];
    let weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };
    let offsets = [0, N as u32];
    let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
    for (name, kind) in kinds {
        let values: Vec<f32> = (0..N).map(kind).collect();
        let got = ops::aggregate(&Device::cpu(), &batch, &values, &weight).unwrap().row_sum[0];
        let want = exact_sum(values.iter().map(|x| f64::from(*x)));
        let magnitude: f64 = values.iter().map(|x| f64::from(x.abs())).sum();
        let error = (got - want).abs() / magnitude;
        assert!(error <= MILLION_TERM_SUM, "{name}: {got} against {want}, {error:.1e} of the magnitudes");
    }
}

#[test]
fn partial_sums_that_do_not_fill_their_rows_are_refused() {
    let fold = |partials: &[f64], rows| ops::fold_rows(&Device::cpu(), partials, rows);
    assert_eq!(fold(&[1.0, 2.0, 3.0, 4.0], 2).unwrap(), [3.0, 7.0]);
    for (partials, rows) in [(&[1.0, 2.0, 3.0][..], 2), (&[1.0], 0)] {
        refused(fold(partials, rows), "…`partials`…a multiple of `rows`…");
    }
}

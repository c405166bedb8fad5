//! Trees and routers at extremes that `extremes_ops` cannot tile, because a row there is a sorted group or
//! one router's experts.
//!
//! The oracle of the nodes compares every pair of members token by token. Groups of 4096 are compared instead
//! with the trie of token counts, which is as naive but linear in the tokens.

use crate::extremes_ops::{Tally, compare};
use crate::prelude::*;
use lockstep::ops::tree::{Outcomes, TempoParams, tempo};
use lockstep_conformance::ops::balance::{self, Balance};
use lockstep_conformance::ops::gating::{self, Gating};
use lockstep_conformance::oracle::tree_advantage::corrections;
use lockstep_core::routing::{Router, RouterKind};

/// V after − V before for every token, with a magnitude.
type Corrections = Vec<Vec<(f64, f64)>>;

/// Token advantages of a group on the plain and on the fastest level, which agree, checked against the values
/// expected from the corrections.
fn group(responses: &[Vec<u32>], rewards: &[f32], found: Corrections) -> Vec<f32> {
    let offsets = offsets_of(responses.iter().map(|response| response.len() as u32));
    let (tokens, groups) = (responses.concat(), [0, responses.len() as u32]);
    let batch = Batch::new(&offsets, &groups, None).unwrap();
    let [got, fast] = [levels::reference(), Device::cpu()].map(|device| {
        let outcomes = Outcomes::new(rewards);
        tempo(&device, &batch, tokens[..].into(), &outcomes, &TempoParams::DEFAULT).unwrap().advantage
    });
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&got), bits(&fast), "one result on every level");

    let n = rewards.len() as f64;
    let mean = rewards.iter().map(|r| f64::from(*r)).sum::<f64>() / n;
    let squares: f64 = rewards.iter().map(|r| (f64::from(*r) - mean).powi(2)).sum();
    let constant = rewards.iter().all(|r| *r == rewards[0]);
    let std = if constant { 0.0 } else { (squares / (n - 1.0)).sqrt() };
    let mut at = 0;
    for (k, tokens) in found.into_iter().enumerate() {
        let own = if constant { 0.0 } else { f64::from(rewards[k]) - mean };
        for (correction, magnitude) in tokens {
            let (divisor, size) = (std + 1e-6, own.abs() + magnitude);
            let want = (own + correction) / divisor;
            // GRPO's part and the deviation are binary32 before the sum, and the sum is rounded afterwards;
            // mean and values are binary64 sums of at most 4096 rewards: 2⁻⁴⁰ of themselves.
            let rounded = (own.abs() + correction.abs()) / divisor + want.abs();
            let allowed = rounded / 16_777_216.0 + (size + mean.abs()) / divisor / 1.0e12;
            assert!((f64::from(got[at]) - want).abs() <= allowed, "{k}, {at}: {} against {want}", got[at]);
            at += 1;
        }
    }
    got
}

#[test]
fn trees_of_4096_short_responses() {
    // 16³ leaves below every node; then half of them twice, some ending where others continue.
    let full: Vec<Vec<u32>> = (0..4096u32).map(|i| vec![i % 16, i / 16 % 16, i / 256]).collect();
    let mixed: Vec<Vec<u32>> = (0..4096u32)
        .map(|i| [1, 2, 3][..1 + i as usize % 3].iter().map(|k| (i / 5) % (k * 3 + 1)).collect())
        .collect();
    let source = Source::new(8);
    for responses in [full, mixed] {
        let binary: Vec<f32> = (0..4096).map(|i| source.below(i, 2) as f32).collect();
        let near: Vec<f32> = (0..4096).map(|i| if i % 3 == 0 { 1.000_000_1 } else { 1.0 }).collect();
        let wide: Vec<f32> = (0..4096).map(|i| [1e6, -1e6, 1e-6, 0.5][source.below(i, 4)]).collect();
        for rewards in [binary, near, wide, vec![0.1; 4096]] {
            let outcomes: Vec<f64> = rewards.iter().map(|r| f64::from(*r)).collect();
            let got = group(&responses, &rewards, corrections(&responses, &outcomes, &[1.0; 4096], None));
            assert!(got.iter().all(|a| a.is_finite()));
            let equal = rewards.iter().all(|r| *r == rewards[0]);
            assert_eq!(got.iter().all(|a| *a == 0.0), equal, "equal rewards teach nothing");
        }
    }
}

#[test]
fn trees_of_one_response() {
    for length in [1, 1_000_000] {
        let got = group(&[vec![3; length]], &[1e30], vec![vec![(0.0, 0.0); length]]);
        assert!(got.len() == length && got.iter().all(|a| a.to_bits() == 0), "a group of one");
    }
}

#[test]
fn trees_of_responses_of_a_million_tokens() {
    // They diverge at the first token, in the middle and at the last, and one ends where the others continue.
    let base: Vec<u32> = (0..1_000_000u32).map(|t| t % 50_000).collect();
    let with = |at: usize| {
        let mut response = base.clone();
        response[at] = 77_777;
        response
    };
    let responses = [base.clone(), with(0), with(500_000), with(999_999), base[..999_999].to_vec()];
    let mut found: Corrections = responses.iter().map(|r| vec![(0.0, 0.0); r.len()]).collect();
    let mut part =
        |k: usize, at: usize, before: f64, after: f64| found[k][at] = (after - before, after + before);
    // V: 0.45 over all, 0.5625 over all but the second, 2/3 over those that also pass the middle, where the
    // shorter one is still among them.
    let (all, without, last) = (0.45, 0.5625, 2.0 / 3.0);
    [0, 2, 3, 4].into_iter().for_each(|k| part(k, 0, all, without));
    part(1, 0, all, 0.0);
    [0, 3, 4].into_iter().for_each(|k| part(k, 500_000, without, last));
    part(2, 500_000, without, 0.25);
    part(0, 999_999, last, 1.0);
    part(3, 999_999, last, 0.0);
    group(&responses, &[1.0, 0.0, 0.25, 0.0, 1.0], found);
}

/// Compares every row of a case, and of one with these scores among its own, with the oracle: scores that are
/// numbers raise no alarm.
fn rows_right(mut case: Case, seed: u64, far: &[Option<f32>]) {
    for k in 0..2 {
        let mut tally = Tally::default();
        compare(&case, &launch::run(&levels::reference(), &case).unwrap(), &mut tally)
            .unwrap_or_else(|e| panic!("{} {k}: {e}", case.label));
        assert_eq!(tally.right, case.data.rows(), "{} {k}", case.label);
        for (i, score) in case.data.element[0].iter_mut().enumerate() {
            *score = far[Source::new(seed).below(i, far.len())].unwrap_or(*score);
        }
    }
}

/// One expert, the maximum number of experts, many rows; with and without replay; scores of ±1e30 beside
/// ordinary ones.
#[test]
fn routers_at_the_extremes() {
    let new = Router::new;
    let routers = [
        (new(RouterKind::SoftmaxChosen, 1, 1), 4096),
        (new(RouterKind::Sigmoid, 1, 1), 4096),
        (new(RouterKind::SoftmaxAll, 512, 8), 64),
        (new(RouterKind::SoftmaxChosen, 512, 1), 64),
        (new(RouterKind::SigmoidNormalized, 512, 8), 64),
        (Router::DEEPSEEK_V3, 1),
        (Router::QWEN3, 2048),
    ];
    for (k, (router, rows)) in routers.into_iter().enumerate() {
        for (backward, replay) in [(false, false), (false, true), (true, false), (true, true)] {
            let params = Gating { backward, router, replay, wide: router.experts > 255, bias: false };
            let case = gating::case(params, rows, Source::new(k as u64));
            rows_right(case, 99, &[Some(1e30), Some(-1e30), Some(1e4), Some(-1e4), None]);
        }
    }
}

#[test]
fn balance_at_the_extremes() {
    for (rows, experts) in [(4096, 1), (1, 512), (2048, 128)] {
        let case = balance::case(Balance { weight: 0.01 }, rows, experts, Source::new(5));
        rows_right(case, 98, &[Some(1e30), Some(-1e30), Some(0.0)]);
    }
}

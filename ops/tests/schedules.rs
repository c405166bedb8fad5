//! Schedules through the public calls: the worked vectors of docs/maths/vectors.md, the rows of
//! docs/maths/disagreements.md that concern them, properties on random inputs.

use lockstep_ops::Error;
use lockstep_ops::core::Error as Argument;
use lockstep_ops::schedule::arrol::Arrol;
use lockstep_ops::schedule::dars::{Dars, Deviation, Treatment};
use lockstep_ops::schedule::gdro_prompt::{PromptGdro, Weight};
use lockstep_ops::schedule::gdro_rollout::{Nearest, RolloutGdro, UtilitySign};
use lockstep_ops::schedule::random::{Purpose, Stream};
use lockstep_ops::schedule::rounding::Bounds;
use lockstep_ops::schedule::staleness::Areal;
use lockstep_ops::schedule::*;

const GDRO: RolloutGdro<'_> = RolloutGdro {
    least: 1,
    most: 4,
    among: &[],
    rate: 1.0,
    exploration: 0.0,
    price_rate: 0.0,
    target: 2.0,
    utility_sign: UtilitySign::Paper,
    nearest: Nearest::Smaller,
};

/// A random stream for inputs, separate from those that schedules draw from.
fn inputs(case: u32) -> Stream {
    Stream::new(20_261_121, Purpose(1000), case, 0)
}

fn uniform(stream: &mut Stream, n: usize) -> Vec<f64> {
    (0..n).map(|_| stream.uniform()).collect()
}

#[test]
fn worked_8_7_dars_table() {
    let table = [
        (0.0, [24, 56, 9, 23]),
        (0.125, [11, 24, 5, 14]),
        (0.25, [3, 8, 2, 6]),
        (0.375, [1, 3, 1, 3]),
        (0.5, [0; 4]),
        (0.875, [0; 4]),
    ];
    for (accuracy, row) in table {
        let mut column = row.into_iter();
        for deviation in [Deviation::Without, Deviation::With] {
            for treatment in [Treatment::Equal, Treatment::HardnessWeighted] {
                let dars = Dars { rollouts: 8, most: treatment.default_most(), deviation, treatment };
                assert_eq!(dars.extra(accuracy), Ok(column.next().unwrap()), "{accuracy} {dars:?}");
            }
        }
    }
}

#[test]
fn worked_8_7_square_root_law() {
    let v = [0.25, 0.09, 0.01];
    let (n, price) = square_root_law(&[0.5, 0.3, 0.2], &v, 4.0).unwrap();
    for b in 0..3 {
        assert!((n[b] - [5.555556, 3.333333, 1.111111][b]).abs() < 1e-6);
        assert!((v[b] / (n[b] * n[b]) - 0.0081).abs() < 1e-6);
    }
    assert!((price - 0.0081).abs() < 1e-6);
}

#[test]
fn worked_8_7_areal_capacity() {
    let areal = Areal { max_concurrent: 64, max_staleness: 4, batch: 32 };
    assert_eq!(areal.capacity(7, 10, 300), 54);
}

#[test]
fn row_10_16_prompt_gdro_weight() {
    let scores = [Some(3.0), Some(0.0)];
    let omega = prompt_gdro_weights(&PromptGdro::default(), &scores, &[1, 1]).unwrap();
    let code = PromptGdro { weight: Weight::NormalisedQ, ..PromptGdro::default() };
    let q = prompt_gdro_weights(&code, &scores, &[1, 1]).unwrap();
    assert!(omega[0] > 1.0 && omega[1] == 1.0, "unnormalised: a bin at 0 is left alone");
    assert!(q[0] < 1.0 && (q[0] + q[1] - 1.0).abs() < 1e-15, "normalised: every weight shrinks");
}

#[test]
fn row_10_17_rollout_gdro_sign() {
    for (utility_sign, sign) in [(UtilitySign::Paper, -1.0), (UtilitySign::Code, 1.0)] {
        let mut scores = [0.0; 4];
        RolloutGdro { utility_sign, ..GDRO }.update(&mut scores, &[5], &[2], &[0.75], 0.0).unwrap();
        assert_eq!(scores, [0.0, sign * 0.75, 0.0, 0.0]);
    }
}

#[test]
fn the_better_partition_is_never_worse_than_greedy_or_differencing() {
    for case in 0..200 {
        let mut s = inputs(case);
        let ranks = 2 + (case % 5) as usize;
        let length: Vec<u32> = (0..ranks * 4).map(|_| s.below(4096) as u32).collect();
        for equal in [false, true] {
            let most = |how| balance(&length, ranks, equal, how).unwrap().load.into_iter().max();
            let better = most(Balance::Better);
            assert_eq!(better, most(Balance::Greedy).min(most(Balance::KarmarkarKarp)));
        }
    }
}

#[test]
fn a_permuted_batch_has_the_same_partition() {
    // The lengths vary so widely that no two sums are equal, so that no tie is decided by the index.
    let mut s = inputs(1);
    let length: Vec<u32> = (0..40).map(|_| s.below(1 << 31) as u32).collect();
    let reversed: Vec<u32> = length.iter().rev().copied().collect();
    let (a, b) = (
        balance(&length, 5, true, Balance::default()).unwrap(),
        balance(&reversed, 5, true, Balance::default()).unwrap(),
    );
    assert_eq!(a.load, b.load);
    assert!(a.rank.iter().eq(b.rank.iter().rev()));
}

#[test]
fn the_rollout_budget_is_met_whenever_it_can_be() {
    let gdro =
        RolloutGdro { least: 2, most: 6, rate: 0.5, exploration: 0.1, price_rate: 0.1, target: 4.0, ..GDRO };
    for case in 0..50 {
        let mut s = inputs(case);
        let scores = uniform(&mut s, 10 * 5);
        let mut count: Vec<u32> = (0..10).map(|_| s.below(9) as u32).collect();
        count[0] = 1;
        let prompts: u64 = count.iter().map(|n| u64::from(*n)).sum();
        // A bin of one prompt changes the sum by one, so every budget near the middle can be met.
        for budget in [4 * prompts, 4 * prompts + 1] {
            let out = rollout_gdro_choose(&gdro, &scores, &count, budget).unwrap();
            let total: u64 = out.per_prompt.iter().zip(&count).map(|(n, c)| u64::from(n * c)).sum();
            assert_eq!((total, out.total), (budget, budget), "{count:?}");
            assert!(out.per_prompt.iter().all(|n| (2..=6).contains(n)));
        }
    }
}

#[test]
fn rounding_stays_within_bounds_and_leaves_less_than_one_prompts_worth() {
    for case in 0..200 {
        let mut s = inputs(case);
        let n: Vec<f64> = uniform(&mut s, 8).into_iter().map(|u| 10.0 * u).collect();
        let count: Vec<u32> = (0..8).map(|_| s.below(6) as u32).collect();
        let prompts: u64 = count.iter().map(|c| u64::from(*c)).sum();
        let bounds = Bounds { least: 1, most: 9, budget: 4 * prompts };
        let (rounded, total) = largest_remainder(&n, &count, bounds).unwrap();
        assert!(rounded.iter().all(|n| (1..=9).contains(n)));
        assert_eq!(total, rounded.iter().zip(&count).map(|(n, c)| u64::from(n * c)).sum::<u64>());
        assert!(total <= bounds.budget);
        let left = bounds.budget - total;
        assert!((0..8).all(|b| count[b] == 0 || rounded[b] == 9 || u64::from(count[b]) > left));
    }
}

#[test]
fn sampled_pruning_estimates_the_groups_sum_without_bias() {
    let rule = Arrol { keep: 4, ..Arrol::default() };
    let success = [0.05, 0.2, 0.35, 0.5, 0.6, 0.8, 0.9, 1.0];
    let value = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0];
    let draws = 4000;
    let (mut sum, mut square) = (0.0, 0.0);
    for step in 0..draws {
        let out = arrol_sampled(&rule, &success, 11, step, 0).unwrap();
        let estimate: f64 = out.weight.iter().zip(value).map(|(w, v)| w * v).sum();
        sum += estimate;
        square += estimate * estimate;
    }
    let (n, exact) = (f64::from(draws), value.iter().sum::<f64>());
    let error = ((square / n - (sum / n) * (sum / n)) / n).sqrt();
    assert!((sum / n - exact).abs() < 5.0 * error, "{} ± {error} for {exact}", sum / n);
}

#[test]
fn thompson_draws_find_the_prompts_worth_sampling() {
    // 100 prompts with pass rates from 0.005 to 0.995; after 60 steps of 10 prompts, most samples have gone
    // to the middle.
    let vade = Vade { utility: Utility::Variance, global_decay: 1.0, local_decay: 1.0 };
    let mut posteriors = vec![Posterior::default(); 100];
    let rate = |id: u32| (f64::from(id) + 0.5) / 100.0;
    let mut middle = 0;
    for step in 0..60 {
        let chosen = vade_select(&vade, &posteriors, 10, 5, step).unwrap().prompts;
        let correct: Vec<u32> = chosen
            .iter()
            .map(|id| {
                let mut s = Stream::new(6, Purpose(1001), step, *id);
                (0..8).map(|_| u32::from(s.uniform() < rate(*id))).sum()
            })
            .collect();
        vade.update(&mut posteriors, &chosen, &correct, &[8; 10]).unwrap();
        middle += chosen.iter().filter(|id| (25..75).contains(*id)).count();
    }
    // Uniform selection gives half, 300; the first visits of the hundred prompts cannot know better.
    assert!(middle > 400, "{middle} of 600");
}

#[test]
fn a_dots_draw_has_no_prompt_twice() {
    for step in 0..50 {
        let predicted = uniform(&mut inputs(step), 64);
        let mut drawn = dots_select(&predicted, 32, 0.5, 0.1, 9, step).unwrap();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 32);
    }
}

#[test]
fn impossible_sizes_are_refused_before_anything_is_allocated() {
    let named = |e: Error| match e {
        Error::Argument(Argument::Value { argument, .. } | Argument::Length { argument, .. }) => argument,
        other => panic!("{other}"),
    };
    assert_eq!(named(balance(&[1, 2], usize::MAX, false, Balance::default()).unwrap_err()), "ranks");
    assert_eq!(named(balance(&[], 1, true, Balance::Greedy).unwrap_err()), "ranks");
    let buffer = fifo::Fifo::new(u32::MAX).unwrap();
    assert_eq!(named(replay_slots(&buffer, u32::MAX, 0, 0).unwrap_err()), "slots");
    let gdro = RolloutGdro { least: 0, most: u32::MAX, target: 4.0, utility_sign: UtilitySign::Code, ..GDRO };
    assert_eq!(named(rollout_gdro_choose(&gdro, &[], &[1], 4).unwrap_err()), "most");
    let wide = RolloutGdro { most: 65_536, ..gdro };
    assert_eq!(named(rollout_gdro_choose(&wide, &[], &[u32::MAX; 2], 4).unwrap_err()), "count");
    let bounds = Bounds { least: 0, most: u32::MAX, budget: u64::MAX };
    assert_eq!(named(largest_remainder(&[1.0], &[1], bounds).unwrap_err()), "most");
}

#[test]
fn empty_inputs_give_empty_results() {
    assert_eq!(vade_select(&Vade::default(), &[], 4, 0, 0).unwrap(), VadeSelection::default());
    assert!(dots_select(&[], 4, 0.5, 1e-3, 0, 0).unwrap().is_empty());
    assert_eq!(arrol_two_ended(&Arrol::default(), &[]).unwrap(), Pruned::default());
    assert_eq!(arrol_sampled(&Arrol::default(), &[], 0, 0, 0).unwrap(), Sampled::default());
    assert!(rorecomp_split(&[], &[], 0.5).unwrap().is_empty());
    assert!(april_order(&[]).unwrap().is_empty());
    assert!(swarm_groups(&[0], &[], 4, 0, 0).unwrap().is_empty());
    assert!(dynamic_sampling(&[0], &[], 4).unwrap().is_empty());
    assert!(latr_fit(&[], 4).unwrap().is_empty());
    assert!(!latr_prunes(&Latr::default(), &[], &[], None).unwrap());
}

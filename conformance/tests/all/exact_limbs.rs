//! Totals as limbs: however an engine's integer sum over ranks proceeds, the bits are those of `merge`.

use super::exact_batch::{Rows, whole};
use crate::prelude::*;
use lockstep::core::aggregate::ExactMoments;
use lockstep::core::aggregate::exact::{ExactSum, SUM_BYTES};
use lockstep::ops::exact::{Limbs, PolicyTotals};
use lockstep::plan::{Calls, Capacity};

fn dapo() -> Recipe {
    Recipe::named("dapo").unwrap()
}

fn counts(rows: &Rows) -> Counts {
    rows.batch().counts(&Device::cpu()).unwrap()
}

/// An all-reduce of the limbs over ranks, in its own order.
pub(super) fn all_reduced<T: Limbs>(parts: &[T], seed: u64) -> T {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|rank| Source::new(seed).bits(*rank));
    let (mut limbs, mut maxima) = (vec![0; T::LIMBS], [f64::NEG_INFINITY; 2]);
    for rank in order {
        let (own, high) = parts[rank].to_limbs();
        assert_eq!(own.len(), T::LIMBS);
        limbs.iter_mut().zip(own).for_each(|(limb, own)| *limb += own);
        maxima = [0, 1].map(|k| maxima[k].max(high[k]));
    }
    T::from_limbs(&limbs, maxima).unwrap()
}

#[test]
fn a_rank_without_rows() {
    let whole = whole();
    let totals = whole.loss(&dapo(), counts(&whole), Outputs::ALL).totals();
    assert_eq!(all_reduced(&[PolicyTotals::default(), totals.clone()], 0).to_bytes(), totals.to_bytes());
    assert_eq!(all_reduced(&[ExactMoments::NONE; 3], 0), ExactMoments::NONE);
}

#[test]
fn what_one_rank_did_not_measure_nobody_has() {
    let whole = whole();
    let loss = Outputs { loss: true, ..Outputs::COEF };
    for parts in [[Outputs::ALL, loss], [loss, Outputs::ALL], [Outputs::COEF, Outputs::ALL]] {
        let parts = parts.map(|outputs| whole.loss(&dapo(), counts(&whole), outputs).policy.totals());
        let mut merged = parts[0].clone();
        merged.merge(&parts[1]);
        assert!(merged.metrics().is_none());
        assert_eq!(all_reduced(&parts, 1), merged);
    }
}

/// Values of any exponent, some of them not finite.
fn part(rank: usize) -> ExactSum {
    let source = Source::new(rank as u64);
    let value = |i: usize| match source.below(i, 4000) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        _ => f64::from_bits(source.fork(1).bits(i) & !(1 << 62)),
    };
    (0..20).map(value).collect()
}

#[test]
fn a_thousand_ranks() {
    for first in [0, 1000, 2000] {
        let parts: Vec<ExactSum> = (first..first + 1000).map(part).collect();
        let mut merged = ExactSum::ZERO;
        parts.iter().for_each(|part| merged.merge(part));
        assert_eq!(all_reduced(&parts, 5).to_bytes(), merged.to_bytes(), "ranks from {first}");
    }
    // Both finite sums and sums with NaN or infinities occur.
    let finite = (0..1000).filter(|rank| part(*rank).is_finite()).count();
    assert!(finite > 0 && finite < 1000, "{finite}");
}

/// A sum whose limbs have the largest values.
fn fullest(last: i64) -> ExactSum {
    let mut bytes = ExactSum::ZERO.to_bytes();
    bytes[8..].fill(0xff);
    // No bit below the smallest subnormal.
    bytes[8..12].copy_from_slice(&0xffff_c000_u32.to_le_bytes());
    bytes[SUM_BYTES - 8..].copy_from_slice(&last.to_le_bytes());
    ExactSum::from_bytes(&bytes).unwrap()
}

#[test]
fn carries_of_as_many_ranks_as_there_may_be() {
    for last in [0, -1, 1, -2, 2] {
        let mut doubled = fullest(last);
        let (limbs, maxima) = doubled.to_limbs();
        for doublings in 1..=31 {
            let twin = doubled;
            doubled.merge(&twin);
            let ranks = 1_i64 << doublings;
            let limbs: Vec<i64> = limbs.iter().map(|limb| limb * ranks).collect();
            let sum = ExactSum::from_limbs(&limbs, maxima).unwrap();
            assert_eq!(sum.to_bytes(), doubled.to_bytes(), "{ranks} ranks, {last}");
        }
        let ranks = (1_i64 << 31) + 1;
        let limbs: Vec<i64> = limbs.iter().map(|limb| limb.wrapping_mul(ranks)).collect();
        refused(ExactSum::from_limbs(&limbs, maxima), "`limbs`[1]…2^31 ranks…");
    }
}

#[test]
fn what_is_no_sum_of_limbs_is_refused() {
    let counts = Counts { tokens: 9, nonempty: 2, sequences: 2 };
    let (good, maxima) = whole().loss(&dapo(), counts, Outputs::ALL).totals().to_limbs();
    let wrong = |at: usize, limb: i64, maxima: [f64; 2], says: &str| {
        let mut limbs = good.clone();
        limbs[at] = limb;
        refused(PolicyTotals::from_limbs(&limbs, maxima), says);
    };
    for at in [0, 1, 2, 3, 4, 5, 50, 73, 74, 75, 76, PolicyTotals::LIMBS - 5, PolicyTotals::LIMBS - 1] {
        wrong(at, -1, maxima, &format!("`limbs`[{at}] is …"));
    }
    // The last limb of a sum is signed: values that no sum reaches are refused.
    wrong(5 + 67, i64::MAX - 1, maxima, "`bytes of an exact sum`…");
    // An average instead of a sum: bits that no binary64 number has.
    wrong(5, 1, maxima, "`bytes of an exact sum`…");
    wrong(0, 1, [f64::NAN, 0.0], "`maxima`[0] is …");
    wrong(0, 1, [0.0, 0.1], "`maxima`[1] is …");
    for length in [0, PolicyTotals::LIMBS - 1, PolicyTotals::LIMBS + 1] {
        refused(PolicyTotals::from_limbs(&vec![0; length], maxima), &format!("…limbs…{length}…"));
    }
    let (none, _) = ExactMoments::NONE.to_limbs();
    assert!(ExactMoments::from_limbs(&none, [f64::NAN, 0.0]).is_err());
    assert!(ExactMoments::from_limbs(&none, [1.0, 1.0]).is_err(), "extremes of no values");
    let counts = Counts { tokens: 3, nonempty: 1, sequences: 2 };
    refused(PolicyTotals::of_rows(counts, Some(&[0.5]), None), "…row_loss…");
    refused(PolicyTotals::of_rows(counts, None, Some((&[0.0; 26], &[0.0; 3]))), "…row_maxima…");
}

/// A plan's results contain the rows that the totals are made of.
#[test]
fn totals_out_of_a_plan() {
    let whole = whole();
    let capacity = Capacity {
        tokens: whole.logp.len(),
        sequences: whole.advantage.len(),
        groups: whole.groups.len() - 1,
    };
    let (rollouts, device) = (whole.rollouts(), Device::cpu());
    let credit = Credit::per_sequence(whole.advantage.clone());
    for name in ["dapo", "gspo", "grpo", "gmpo"] {
        let recipe = Recipe::named(name).unwrap();
        let plan = recipe.plan_exactly(capacity, Calls::Loss, Outputs::ALL).unwrap();
        let (_, loss) = plan.run(&device, &rollouts, Some(&credit)).unwrap().unwrap();
        let want = recipe.loss(&device, &rollouts, &credit).unwrap();
        assert_eq!(loss.totals().to_bytes(), want.totals().to_bytes(), "{name}");
        assert!(loss.totals().metrics().is_some());
    }
}

//! Exact mode of a whole batch: shards over any number of ranks, in any order, give its bits.

use super::exact_limbs::all_reduced;
use crate::prelude::*;
use lockstep::core::aggregate::exact_sum::{self, ExactDigits};
use lockstep::core::aggregate::{ExactMoments, ExactSum};
use lockstep::core::op::Launch;
use lockstep::core::ragged::Mask;
use lockstep::ops::exact::{
    PolicyTotals, exact_sequence_moments, exact_sum, exact_token_moments, exact_token_sum,
};
use lockstep::ops::fold_rows;
use lockstep::ops::whiten::{Weighting, whiten, whiten_by};
use lockstep::recipe::Reduction;

/// The sequences of one rank, with their per-token data.
#[derive(Clone, Default)]
pub(super) struct Rows {
    pub(super) offsets: Vec<u32>,
    pub(super) groups: Vec<u32>,
    pub(super) mask: Vec<u8>,
    pub(super) logp: Vec<f32>,
    pub(super) old: Vec<f32>,
    pub(super) advantage: Vec<f32>,
}

impl Rows {
    fn empty() -> Rows {
        Rows { offsets: vec![0], groups: vec![0], ..Rows::default() }
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch::with_empty_rows(&self.offsets, &self.groups, Some(&self.mask)).unwrap()
    }

    /// The rows `rows`, in that order.
    fn select(&self, rows: impl Iterator<Item = usize>) -> Rows {
        let mut part = Rows::empty();
        for row in rows {
            let span = self.offsets[row] as usize..self.offsets[row + 1] as usize;
            part.mask.extend(&self.mask[span.clone()]);
            part.logp.extend(&self.logp[span.clone()]);
            part.old.extend(&self.old[span]);
            part.advantage.push(self.advantage[row]);
            part.offsets.push(part.logp.len() as u32);
            part.groups.push(part.advantage.len() as u32);
        }
        part
    }

    pub(super) fn rollouts(&self) -> Rollouts<'_> {
        Rollouts {
            loss_mask: Some(&self.mask),
            logp: Some(&self.logp),
            logp_old: Some(&self.old),
            ..Rollouts::new(&self.offsets, &self.groups)
        }
    }

    pub(super) fn loss(&self, recipe: &Recipe, counts: Counts, outputs: Outputs) -> Loss {
        let counts = [counts.tokens, counts.nonempty, counts.sequences];
        let rollouts = Rollouts { counts: Some(&counts), ..self.rollouts() };
        let (credit, mut out) = (Credit::per_sequence(self.advantage.clone()), Loss::default());
        recipe.loss_into(&Device::cpu(), &rollouts, &credit, outputs, &mut out).unwrap();
        out
    }
}

/// 60 sequences, some empty or masked, whose losses differ by many orders of magnitude.
pub(super) fn whole() -> Rows {
    let source = Source::new(6);
    let mut rows = Rows::empty();
    for row in 0..60 {
        let (source, length) = (source.fork(row), source.below(row as usize, 40));
        for t in 0..length {
            let logp = -0.001 - 3.0 * source.unit(t);
            rows.logp.push(logp);
            rows.old.push((logp + 0.4 * source.fork(1).signed(t)).min(0.0));
            rows.mask.push(u8::from(row % 9 != 0 && source.fork(2).below(t, 4) > 0));
        }
        rows.advantage.push(source.fork(3).spread(0));
        rows.offsets.push(rows.logp.len() as u32);
        rows.groups.push(row as u32 + 1);
    }
    rows
}

/// The rows dealt to `ranks` ranks at random.
pub(super) fn shards(whole: &Rows, ranks: usize, seed: u64) -> Vec<Rows> {
    let source = Source::new(seed);
    let own = |rank: usize| move |row: &usize| source.below(*row, ranks) == rank;
    let rows = || (0..whole.advantage.len()).rev();
    (0..ranks).map(|rank| whole.select(rows().filter(own(rank)))).collect()
}

#[test]
fn policy_loss_of_any_sharding_has_the_same_bits() {
    let whole = whole();
    let counts = whole.batch().counts(&Device::cpu()).unwrap();
    for name in ["dapo", "sapo", "grpo", "gspo"] {
        let tree = Recipe::named(name).unwrap();
        let recipe = tree.clone().rebuild(name).reduction(Reduction::Exact).build().unwrap();
        let out = whole.loss(&recipe, counts, Outputs::ALL);
        let totals = out.totals();
        assert_eq!((totals.loss(), totals.metrics(), totals.counts()), (out.loss, out.metrics, counts));
        // The tree rounds at every addition: close, but here not equal.
        let rounded = whole.loss(&tree, counts, Outputs::ALL);
        let magnitude: f64 = out.row_loss.iter().map(|x| x.abs()).sum();
        assert!((out.loss.unwrap() - rounded.loss.unwrap()).abs() <= 1e-12 * magnitude);
        assert_eq!(rounded.totals(), totals, "the rows' partial sums are the same");

        for ranks in [1, 2, 3, 7] {
            for seed in 0..4 {
                let totals_of = |rows: &Rows| rows.loss(&recipe, counts, Outputs::ALL).totals();
                let mut parts: Vec<PolicyTotals> =
                    shards(&whole, ranks, seed).iter().map(totals_of).collect();
                // Parts arrive in any order.
                parts.sort_by_key(|part| Source::new(seed).bits(part.counts().tokens as usize));
                let mut merged = PolicyTotals::default();
                for part in &parts {
                    let bytes = part.to_bytes();
                    assert_eq!(bytes.len(), PolicyTotals::BYTES);
                    merged.merge(&PolicyTotals::from_bytes(&bytes).unwrap());
                }
                let reduced = all_reduced(&parts, seed).to_bytes();
                let (found, want) = ([merged.to_bytes(), reduced], totals.to_bytes());
                assert!(found.iter().all(|bytes| *bytes == want), "{name}, {ranks} ranks, seed {seed}");
                assert_eq!(merged.loss().map(f64::to_bits), out.loss.map(f64::to_bits));
                assert_eq!(merged.metrics(), out.metrics);
            }
        }
    }
}

/// Why the exact reduction exists: with trees, shards disagree.
#[test]
fn trees_of_shards_have_other_bits() {
    let (whole, recipe) = (whole(), Recipe::named("dapo").unwrap());
    let counts = whole.batch().counts(&Device::cpu()).unwrap();
    let sharded = |ranks| -> f64 {
        shards(&whole, ranks, 0)
            .iter()
            .map(|rows| rows.loss(&recipe, counts, Outputs::ALL).loss.unwrap())
            .sum()
    };
    let losses: Vec<u64> = [1, 2, 3, 7].map(sharded).iter().map(|loss| loss.to_bits()).collect();
    assert!(losses.iter().any(|loss| *loss != losses[0]), "{losses:?}");
}

#[test]
fn totals_of_outputs_that_were_not_asked_for() {
    let (whole, recipe) = (whole(), Recipe::named("dapo").unwrap());
    let counts = whole.batch().counts(&Device::cpu()).unwrap();
    let of = |outputs| {
        let mut out = whole.loss(&recipe, counts, outputs).policy;
        out.reduce_exactly();
        (out.totals(), out.loss.is_some(), out.metrics.is_some())
    };
    let (coef, loss) = (Outputs::COEF, Outputs { loss: true, ..Outputs::COEF });
    assert_eq!((of(coef).1, of(coef).2, of(coef).0.loss(), of(coef).0.metrics()), (false, false, None, None));
    assert_eq!((of(loss).1, of(loss).2, of(loss).0.metrics()), (true, false, None));
    let mut merged = of(Outputs::ALL).0;
    merged.merge(&of(loss).0);
    assert!(merged.loss().is_some() && merged.metrics().is_none(), "one shard had no metrics");
    assert_eq!(PolicyTotals::from_bytes(&merged.to_bytes()).unwrap().to_bytes(), merged.to_bytes());
    let good = PolicyTotals::default().to_bytes();
    for (at, byte) in [(1, 0), (4, 9), (6, 4), (32, 1), (40, 0), (PolicyTotals::BYTES - 1, 0x70)] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert!(PolicyTotals::from_bytes(&bytes).is_err(), "byte {at}");
    }
    refused(PolicyTotals::from_bytes(&good[1..]), "…policy totals…");
}

#[test]
fn reduction_is_a_choice_of_the_recipe() {
    let recipe = Recipe::from_toml("metrics.reduction = 'exact'").unwrap();
    assert_eq!(recipe.metrics.reduction, Reduction::Exact);
    assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe);
    assert_eq!(Recipe::named("grpo").unwrap().metrics.reduction, Reduction::Tree);
    refused(Recipe::from_toml("metrics.reduction = 'best'"), "…`tree` or `exact`…");
}

#[test]
fn digits_of_a_device_are_the_accumulator() {
    let source = Source::new(11);
    let device = Device::cpu();
    for length in [0, 1, 4096, 10_000] {
        let value = |i| f64::from(source.spread(i)) * f64::from(source.fork(1).spread(i));
        let values: Vec<f64> = (0..length).map(value).collect();
        let (sum, count) = exact_sum(&device, &values).unwrap();
        assert_eq!((sum, count), (values.iter().copied().collect(), length as u64));

        // Blocks are first added on the device, in the tree of `fold_rows`: digits are integers.
        let mut digits = vec![0.0; exact_sum::digits::<f64>(length)];
        let (input, digits_out) = (In::new(&values[..]), Out::new(&mut digits));
        let kernel = ExactDigits { values: input, mask: Mask::all(), square: false, digits: digits_out };
        device.run(&kernel).unwrap();
        if length > 0 {
            let folded = fold_rows(&device, &digits, exact_sum::blocks(length)).unwrap();
            assert_eq!(ExactSum::from_digits::<f64>(&folded).unwrap(), (sum, count));
        }
    }
    let rows = whole();
    let live = || (0..rows.logp.len()).filter(|i| rows.mask[*i] != 0).map(|i| f64::from(rows.logp[i]));
    let tokens = live().count() as u64;
    let sum = |square| exact_token_sum(&device, &rows.batch(), &rows.logp, square).unwrap();
    assert_eq!(sum(false), (live().collect(), tokens));
    assert_eq!(sum(true), (live().map(|x| x * x).collect(), tokens));
}

#[test]
fn a_square_of_binary64_is_refused() {
    for (length, square, says) in [(92, true, "…square…"), (91, false, "…expected 92…")] {
        let mut digits = vec![0.0; length];
        let (values, digits) = (In::new(&[1.0f64]), Out::new(&mut digits));
        refused(ExactDigits { values, mask: Mask::all(), square, digits }.check(), says);
    }
}

#[test]
fn whitening_by_the_moments_of_all_ranks() {
    let (whole, device) = (whole(), Device::cpu());
    let merged = |parts: &[ExactMoments]| {
        let mut all = ExactMoments::NONE;
        parts.iter().rev().for_each(|part| all.merge(part));
        assert_eq!(all_reduced(parts, 3).to_bytes(), all.to_bytes());
        all
    };
    for params in [WhitenParams::VERL, WhitenParams::NEMO, WhitenParams::TRL] {
        let moments = |rows: &Rows| {
            let per_sequence =
                exact_sequence_moments(&device, &rows.batch(), &rows.advantage, params.weighting).unwrap();
            [exact_token_moments(&rows.batch(), &rows.logp).unwrap(), per_sequence]
        };
        for ranks in [1, 2, 3, 7] {
            let shards = shards(&whole, ranks, 3);
            let parts: Vec<[ExactMoments; 2]> = shards.iter().map(moments).collect();
            let all = [0, 1].map(|k| merged(&parts.iter().map(|part| part[k]).collect::<Vec<_>>()));
            assert_eq!(all, moments(&whole), "{ranks} ranks");
        }
        let [tokens, sequences] = moments(&whole);
        let per_token = (Advantage::PerToken(&whole.logp), tokens);
        for (values, moments) in [per_token, (Advantage::PerSequence(&whole.advantage), sequences)] {
            let by = whiten_by(&device, &whole.batch(), values, &params, &moments).unwrap();
            let tree = whiten(&device, &whole.batch(), values, &params).unwrap();
            let apart = by.iter().zip(&tree).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart <= 1e-6 && by.iter().any(|x| *x != 0.0), "{apart}");
        }
    }
    let nan = [f32::NAN, 1.0].into_iter().collect();
    let values = Advantage::PerSequence(&whole.advantage);
    refused(whiten_by(&device, &whole.batch(), values, &WhitenParams::VERL, &nan), "`moments`[1]…");
}

#[test]
fn bad_values_are_named() {
    let (whole, device) = (whole(), Device::cpu());
    let batch = whole.batch();
    let index = whole.mask.iter().position(|byte| *byte != 0).unwrap();
    let (mut logp, mut advantage) = (whole.logp.clone(), whole.advantage.clone());
    logp[index] = f32::NAN;
    advantage[3] = f32::INFINITY;
    refused(exact_token_moments(&batch, &logp), &format!("`values`[{index}] is NaN…"));
    let of = |values: &[f32]| exact_sequence_moments(&device, &batch, values, Weighting::Sequences);
    refused(of(&advantage), "`values`[3] is inf…");
    advantage[3] = f32::NAN;
    assert_eq!(of(&advantage).unwrap().count(), 59, "NaN is no value");
    assert!(exact_token_moments(&batch, &logp[1..]).is_err() && of(&advantage[1..]).is_err());
    assert!(exact_token_sum(&device, &batch, &logp[1..], false).is_err());
}

//! A vocabulary that is spread over ranks: one set of bits for every division, what that differs by from the
//! ops on whole rows, and what is refused.

use crate::logits::{device, row_with};
use crate::prelude::*;
use lockstep::core::logits::vocab_parallel::unpacked;
use lockstep::core::logits::{LogitsGradient, LogitsStatistics, VocabParallelSums, VocabParallelTop};
use lockstep::core::num::{Bf16, F16, Storage};
use lockstep::ops::logits::vocab_parallel::{
    Shard, vocab_parallel_gradient, vocab_parallel_statistics, vocab_parallel_sums, vocab_parallel_top,
};
use lockstep::ops::logits::{Logits, Statistics, logits_gradient, logits_statistics};

/// Rows of logits of a whole vocabulary, with labels, mask and coefficients.
pub(crate) struct Batch<S> {
    pub(crate) vocab: usize,
    pub(crate) logits: Vec<S>,
    pub(crate) labels: Vec<u32>,
    pub(crate) mask: Vec<u8>,
    pub(crate) coef: Vec<f32>,
    pub(crate) coef_entropy: Vec<f32>,
    pub(crate) temperature: f32,
}

impl<S: Storage> Batch<S> {
    fn new(rows: usize, vocab: usize) -> Batch<S> {
        let labels: Vec<u32> = (0..rows).map(|r| (r * 7919 % vocab) as u32).collect();
        let of_row = |r: usize| row_with(labels[r] as usize, vocab, r as u64);
        Batch {
            vocab,
            logits: (0..rows).flat_map(of_row).map(S::narrow).collect(),
            mask: (0..rows).map(|r| u8::from(r != 1)).collect(),
            coef: (0..rows).map(|r| 0.25 * r as f32 - 0.6).collect(),
            coef_entropy: (0..rows).map(|r| 0.6 - 0.25 * r as f32).collect(),
            temperature: 0.9,
            labels,
        }
    }

    /// The entries `from..to` of every row, −∞ beyond the vocabulary.
    fn part(&self, from: usize, to: usize) -> Vec<S> {
        let entry = |z: &[S], v: usize| z.get(v).copied().unwrap_or(S::narrow(f32::NEG_INFINITY));
        self.logits.chunks(self.vocab).flat_map(|z| (from..to).map(move |v| entry(z, v))).collect()
    }

    fn rows<'a>(&'a self, logits: &'a [S]) -> Logits<'a, S> {
        Logits { logits, labels: &self.labels, loss_mask: Some(&self.mask) }
    }
}

/// What ranks with the entries `cuts[k]..cuts[k + 1]` compute, all-reduced from the last to the first if
/// `backwards`; and the gradient, put together.
pub(crate) fn in_shards<S: Storage>(
    device: &Device,
    batch: &Batch<S>,
    cuts: &[usize],
    moments: bool,
    backwards: bool,
) -> Result<(Statistics, Vec<S>), Error>
where
    for<'a> VocabParallelTop<'a, S>: Compiled,
    for<'a> VocabParallelSums<'a, S>: Compiled,
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    let parts: Vec<(usize, Vec<S>)> = cuts.windows(2).map(|w| (w[0], batch.part(w[0], w[1]))).collect();
    let shards: Vec<Shard<'_, S>> = parts
        .iter()
        .map(|(start, logits)| Shard { rows: batch.rows(logits), vocab_start: *start as u32 })
        .collect();
    let ordered: Vec<&Shard<'_, S>> =
        if backwards { shards.iter().rev().collect() } else { shards.iter().collect() };
    let mut top = vec![i64::MIN; batch.labels.len()];
    for shard in &ordered {
        let own = vocab_parallel_top(device, shard)?;
        top.iter_mut().zip(own).for_each(|(top, own)| *top = own.max(*top));
    }
    let mut sums = vec![0.0; batch.labels.len() * if moments { 8 } else { 4 }];
    for shard in &ordered {
        let own = vocab_parallel_sums(device, shard, &top, batch.temperature, moments)?;
        sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    let out = vocab_parallel_statistics(device, &top, &sums, Some(&batch.mask), batch.temperature)?;
    let mut gradient = batch.logits.clone();
    for (shard, (start, logits)) in shards.iter().zip(&parts) {
        let of_entropy = moments.then_some(&batch.coef_entropy[..]);
        let own = vocab_parallel_gradient(device, shard, &out, &batch.coef, of_entropy)?;
        let width = logits.len() / batch.labels.len();
        for (r, own) in own.chunks(width).enumerate() {
            for (v, x) in own.iter().enumerate() {
                match batch.vocab.checked_sub(start + v + 1) {
                    Some(_) => gradient[r * batch.vocab + start + v] = *x,
                    None => assert_eq!(x.widen().to_bits(), 0, "padding has gradient +0"),
                }
            }
        }
    }
    Ok((out, gradient))
}

/// Divisions of a vocabulary, also with padding.
fn divisions(vocab: usize) -> Vec<Vec<usize>> {
    let even = |ranks: usize| (0..=ranks).map(|k| k * vocab.div_ceil(ranks)).collect();
    let mut all: Vec<Vec<usize>> = vec![vec![0, vocab], even(2), even(3), even(4), even(8)];
    all.extend([vec![0, 1, vocab], vec![0, vocab - 1, vocab, vocab + 5]]);
    all
}

fn any_division_has_the_same_bits<S: Storage + PartialEq + std::fmt::Debug>()
where
    for<'a> VocabParallelTop<'a, S>: Compiled,
    for<'a> VocabParallelSums<'a, S>: Compiled,
    for<'a> LogitsStatistics<'a, S>: Compiled,
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    for (rows, vocab) in [(3, 16), (5, 129), (4, 2051), (3, 50_001)] {
        for moments in [true, false] {
            let batch = Batch::<S>::new(rows, vocab);
            let (out, gradient) = in_shards(&device(), &batch, &[0, vocab], moments, false).unwrap();
            for (cuts, backwards) in divisions(vocab).iter().flat_map(|cuts| [(cuts, false), (cuts, true)]) {
                let (of_shards, other) = in_shards(&device(), &batch, cuts, moments, backwards).unwrap();
                assert_eq!(of_shards, out, "{rows} × {vocab} in {cuts:?}");
                assert_eq!(other, gradient, "{rows} × {vocab} in {cuts:?}");
            }
            // The sums of whole rows round; these do not.
            let whole = logits_statistics(&device(), &batch.rows(&batch.logits), 0.9, moments).unwrap();
            assert_eq!(out.top, whole.top);
            for (name, got, want) in [
                ("logp", &out.logp, &whole.logp),
                ("lse", &out.lse, &whole.lse),
                ("entropy", &out.entropy, &whole.entropy),
                ("collision", &out.collision, &whole.collision),
                ("score_norm", &out.score_norm, &whole.score_norm),
            ] {
                assert_eq!(got.len(), want.len());
                for (got, want) in got.iter().zip(want) {
                    assert!((got - want).abs() <= 2e-7 * want.abs(), "{name}: {got} against {want}");
                }
            }
            let of_entropy = moments.then_some(&batch.coef_entropy[..]);
            let rows = batch.rows(&batch.logits);
            let want = logits_gradient(&device(), &rows, &whole, &batch.coef, of_entropy).unwrap();
            // A gradient close to a boundary of rounding may fall to its other side.
            let step = f32::EPSILON * if size_of::<S>() == 2 { 65_536.0 } else { 8.0 };
            for (got, want) in gradient.iter().zip(&want).map(|(a, b)| (a.widen(), b.widen())) {
                assert!((got - want).abs() <= step * want.abs() + 1e-7, "{got} against {want}");
            }
        }
    }
}

#[test]
fn any_division_of_the_vocabulary_has_the_same_bits() {
    any_division_has_the_same_bits::<f32>();
    any_division_has_the_same_bits::<Bf16>();
    any_division_has_the_same_bits::<F16>();
}

#[test]
fn a_sum_of_many_small_terms_is_exact() {
    // Every term is about half a step of the coarse grid.
    let (vocab, y) = (1 << 18, -20.0);
    let mut z = vec![y; vocab];
    z[77] = 0.0;
    let shard = Shard { rows: Logits { logits: &z[..], labels: &[77], loss_mask: None }, vocab_start: 0 };
    let top = vocab_parallel_top(&device(), &shard).unwrap();
    assert_eq!(unpacked(top[0]), (0.0, 77));
    let sums = vocab_parallel_sums(&device(), &shard, &top, 1.0, false).unwrap();
    let term = f64::from(lockstep::core::num::exp::<lockstep::core::num::Soft>(y));
    let want = 1.0 + (vocab - 1) as f64 * term;
    let both = sums[2] + sums[3];
    assert!((both - want).abs() <= vocab as f64 * 2f64.powi(-58), "{both} {want}");
    assert!((sums[2] - want).abs() > 1e-6, "without the second sum it would be {}", sums[2]);
    assert_eq!(&sums[..2], [0.0, 1.0]);
}

#[test]
fn of_equal_tokens_in_two_shards_the_first_wins() {
    let batch = Batch { vocab: 6, logits: vec![0.0f32, 2.0, 1.0, 2.0, 2.0, -0.0], ..Batch::new(1, 6) };
    for cuts in [vec![0, 6], vec![0, 2, 6], vec![0, 1, 3, 6]] {
        assert_eq!(in_shards(&device(), &batch, &cuts, false, false).unwrap().0.top, [1], "{cuts:?}");
    }
}

#[test]
fn what_is_refused() {
    let good = || Batch::<f32>::new(3, 40);
    let with = |i: usize, x: f32| {
        let mut batch = good();
        batch.logits[i] = x;
        batch
    };
    let label = 80 + good().labels[2] as usize;
    let (labels, coef) = (vec![40, 50, 2], vec![0.0, f32::NAN, f32::NAN]);
    for (batch, says) in [
        (with(81, f32::NAN), "`logits`[2] is NaN: expected a row with at least one finite entry and no NaN…"),
        (with(119, f32::INFINITY), "`logits`[2] is inf: expected a row with…or +inf"),
        (with(label, f32::NEG_INFINITY), "`logit of the label`[2] is -inf: expected a finite number"),
        // Row 1 is masked.
        (Batch { labels, ..good() }, "`shards that have the label`[0] is 0: expected exactly 1"),
        (Batch { coef, ..good() }, "`coef`[2] is NaN: expected a finite number"),
    ] {
        refused(in_shards(&device(), &batch, &[0, 20, 40], true, false), says);
    }

    let whole = with(0, 9.0);
    let (a, b) = (whole.part(0, 20), whole.part(20, 40));
    let shards = [(&a, 0), (&b, 20)].map(|(z, vocab_start)| Shard { rows: whole.rows(z), vocab_start });
    let tops = shards.map(|shard| vocab_parallel_top(&device(), &shard).unwrap());
    let top: Vec<i64> = tops[0].iter().zip(&tops[1]).map(|(a, b)| *a.max(b)).collect();
    let unreduced = "`top`[0] is 4: expected the maximum over all shards, but this shard has a larger logit";
    for (top, temperature, says) in [
        (&tops[1][..], 1.0, unreduced),
        (&top[..2], 1.0, "…`top`…one per row of logits…"),
        (&top, 0.0, "`temperature`…"),
    ] {
        refused(vocab_parallel_sums(&device(), &shards[0], top, temperature, false), says);
    }
    let short = vocab_parallel_statistics(&device(), &top, &[0.0; 13], None, 1.0);
    refused(short, "…`sums`…four or eight per row…");
    let far = Shard { vocab_start: (1 << 24) - 19, ..shards[0] };
    refused(vocab_parallel_top(&device(), &far), "`vocab_start`…");
}

//! Importance-weighted KL, the value loss, and rows of logits over a vocabulary of 151 936; for the latter a
//! "token" in the rates is a logit.

use crate::Inputs;
use crate::ops::{Bench, bits};
use lockstep::core::logits::kl::Direction;
use lockstep::core::logits::{LogitsGradient, LogitsStatistics, VocabParallelSums, VocabParallelTop};
use lockstep::core::num::{Bf16, F16, Storage};
use lockstep::ops::kl_importance::{ThreePolicies, kl_importance};
use lockstep::ops::logits::vocab_parallel::{
    Shard, vocab_parallel_statistics, vocab_parallel_sums, vocab_parallel_top,
};
use lockstep::ops::logits::{
    Logits, TwoRows, draw_tokens, logits_gradient, logits_kl, logits_statistics, otr_exact, otr_sampled,
};
use lockstep::ops::value_loss::{ValueInput, value_loss};
use lockstep::{Batch, Compiled};
use lockstep_core::aggregate::{PerRow, Weight};
use lockstep_core::kl::Kl;
use lockstep_core::ratio::Guard;
use std::rc::Rc;

/// By format: statistics, statistics with gradient, statistics from shards.
const NAMES: [[&str; 3]; 3] = [
    [
        "",
        "logits_statistics, logits_gradient",
        "vocab_parallel_top, vocab_parallel_sums, vocab_parallel_statistics",
    ],
    [
        "logits_statistics_bf16/moments",
        "logits_statistics_bf16, logits_gradient_bf16",
        "vocab_parallel_top_bf16, vocab_parallel_sums_bf16",
    ],
    [
        "logits_statistics_f16/moments",
        "logits_statistics_f16, logits_gradient_f16",
        "vocab_parallel_top_f16, vocab_parallel_sums_f16",
    ],
];

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    let weight = Weight { per_row: PerRow::One, denominator: batch.tokens() as f64, scale: 1.0 };
    let values = Bench::new("value_loss", 21.0, move |device| {
        let input = ValueInput {
            values: &inputs.logp,
            values_old: Some(&inputs.logp_old),
            returns: &inputs.logp_ref,
            huber_delta: None,
        };
        Ok(bits(&value_loss(device, &batch, &input, 0.2, &weight)?.gradient))
    });
    let kl = Bench::new("kl_importance", 21.0, move |device| {
        let Inputs { logp, logp_old, logp_ref, .. } = inputs;
        let policies = ThreePolicies { logp, logp_old, logp_ref };
        let guard = Guard::clamp(Guard::LOG_RATIO_CLAMP);
        Ok(bits(&kl_importance(device, &batch, &policies, &Kl::LOW_VAR_KL, guard, true)?.gradient))
    });
    let (tokens, vocab) = inputs.logit_rows();
    let (z, labels) = (&inputs.logp[..tokens * vocab], vec![17u32.min(vocab as u32 - 1); tokens]);
    let share = (tokens * vocab) as f64 / inputs.tokens() as f64;
    let mut list = vec![kl, values];
    for (name, moments) in [("logits_statistics/logp", false), ("logits_statistics/moments", true)] {
        let labels = labels.clone();
        list.push(Bench::new(name, 4.0 * share, move |device| {
            let rows = Logits { logits: z, labels: &labels, loss_mask: None };
            Ok(bits(&logits_statistics(device, &rows, 1.0, moments)?.logp))
        }));
    }
    let [single, bf16, f16] = NAMES;
    in_format::<f32>(&mut list, z, &labels, share, single);
    in_format::<Bf16>(&mut list, z, &labels, share, bf16);
    in_format::<F16>(&mut list, z, &labels, share, f16);
    let (of_otr, of_draws, of_sampled) = (labels.clone(), labels.clone(), labels);
    list.push(Bench::new("otr_exact", 8.0 * share, move |device| {
        let rows = Logits { logits: z, labels: &of_otr, loss_mask: None };
        Ok(bits(&otr_exact(device, &rows, 1.3, -0.1, None, true)?.gradient))
    }));
    list.push(Bench::new("draw_tokens", 4.0 * share, move |device| {
        let rows = Logits { logits: z, labels: &of_draws, loss_mask: None };
        let tokens = draw_tokens(device, &rows, 1.3, 256, 7)?;
        Ok(tokens.iter().fold(0, |h: u64, token| h.wrapping_mul(31).wrapping_add((*token).into())))
    }));
    list.push(Bench::new("otr_sampled", 8.0 * share, move |device| {
        let rows = Logits { logits: z, labels: &of_sampled, loss_mask: None };
        let candidates: Vec<u32> = (0..tokens * 256).map(|j| (j % 256 * vocab / 256) as u32).collect();
        Ok(bits(&otr_sampled(device, &rows, &candidates, -0.1, None, true)?.gradient))
    }));
    let reference = &inputs.logp_ref[..tokens * vocab];
    list.push(Bench::new("logits_kl", 12.0 * share, move |device| {
        let rows = TwoRows { logits: z, reference, vocab, loss_mask: None };
        let coef = vec![1.0; tokens];
        Ok(bits(&logits_kl(device, &rows, Direction::Policy, 1.0, Some(&coef))?.gradient))
    }));
    list
}

/// Statistics, unless their name is empty, statistics with gradient, and statistics from two halves of the
/// vocabulary, of logits that are stored as S.
fn in_format<S: Storage>(
    list: &mut Vec<Bench<'_>>,
    logits: &[f32],
    labels: &[u32],
    share: f64,
    [alone, both, in_shards]: [&'static str; 3],
) where
    for<'k> LogitsStatistics<'k, S>: Compiled,
    for<'k> LogitsGradient<'k, S>: Compiled,
    for<'k> VocabParallelTop<'k, S>: Compiled,
    for<'k> VocabParallelSums<'k, S>: Compiled,
{
    let bytes = size_of::<S>() as f64 * share;
    let stored: Rc<[S]> = logits.iter().map(|z| S::narrow(*z)).collect();
    let labels: Rc<[u32]> = labels.into();
    if !alone.is_empty() {
        let (stored, labels) = (stored.clone(), labels.clone());
        list.push(Bench::new(alone, bytes, move |device| {
            let rows = Logits { logits: &stored[..], labels: &labels, loss_mask: None };
            Ok(bits(&logits_statistics(device, &rows, 1.0, true)?.logp))
        }));
    }
    let vocab = logits.len() / labels.len();
    let half = |k: usize| -> Vec<S> {
        let rows = stored.chunks(vocab);
        rows.flat_map(|row| if k == 0 { &row[..vocab / 2] } else { &row[vocab / 2..] }).copied().collect()
    };
    let (halves, of_shards) = ([half(0), half(1)], labels.clone());
    list.push(Bench::new(in_shards, bytes, move |device| {
        let shards = [0, 1].map(|k| Shard {
            rows: Logits { logits: &halves[k][..], labels: &of_shards, loss_mask: None },
            vocab_start: (k * (vocab / 2)) as u32,
        });
        let (mut top, mut sums) = (vec![i64::MIN; of_shards.len()], vec![0.0; 8 * of_shards.len()]);
        for shard in &shards {
            let own = vocab_parallel_top(device, shard)?;
            top.iter_mut().zip(own).for_each(|(top, own)| *top = own.max(*top));
        }
        for shard in &shards {
            let own = vocab_parallel_sums(device, shard, &top, 1.0, true)?;
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        Ok(bits(&vocab_parallel_statistics(device, &top, &sums, None, 1.0)?.logp))
    }));
    list.push(Bench::new(both, 3.0 * bytes, move |device| {
        let rows = Logits { logits: &stored[..], labels: &labels, loss_mask: None };
        let statistics = logits_statistics(device, &rows, 1.0, true)?;
        let coef = vec![-0.5; labels.len()];
        let gradient = logits_gradient(device, &rows, &statistics, &coef, Some(&coef))?;
        Ok(bits(&gradient.iter().step_by(997).map(|x| x.widen()).collect::<Vec<_>>()))
    }));
}

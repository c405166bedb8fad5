//! Rows of logits.

use super::launch::Launch;
use crate::prelude::*;
use crate::vocab_parallel::{Batch, in_shards};
use lockstep::core::logits::{LogitsGradient, LogitsStatistics, VocabParallelSums, VocabParallelTop};
use lockstep::core::num::{Bf16, F16, Storage, Suffix};
use lockstep::ops::logits::{Logits, Statistics, TwoRows};
use lockstep_conformance::ops::logits::{Logits as LogitsTest, Which};
use lockstep_conformance::ops::logits_kl::LogitsKl;
use lockstep_conformance::ops::sampling::{Sampling, Which as Drawn, candidates};
use lockstep_conformance::ops::vocab_parallel::{Part, VocabParallel};

pub(crate) fn check_logits(expected: &Launch<'_>, params: &LogitsTest) {
    let (device, case) = (expected.device, expected.case);
    match params.format {
        Suffix::None => check_logits_as::<f32>(expected, params),
        Suffix::Bf16 => check_logits_as::<Bf16>(expected, params),
        Suffix::F16 => check_logits_as::<F16>(expected, params),
    }
    // The API's coefficients are those of a mean.
    if let Which::Otr { beta, gradient } = params.which {
        let (labels, live) = of_rows(case);
        let loss_mask = params.masked.then_some(&live[..]);
        let rows = Logits { logits: &case.data.element[0], labels: &labels, loss_mask };
        let out = ops::otr_exact(device, &rows, params.temperature, beta, None, gradient).unwrap();
        expected.same("loss", &out.row_loss);
    }
}

fn of_rows(case: &Case) -> (Vec<u32>, Vec<u8>) {
    let row = &case.data.row;
    (row[0].iter().map(|a| *a as u32).collect(), row[1].iter().map(|x| *x as u8).collect())
}

fn check_logits_as<S: Storage>(expected: &Launch<'_>, params: &LogitsTest)
where
    for<'a> LogitsStatistics<'a, S>: Compiled,
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    let (device, case) = (expected.device, expected.case);
    let (labels, live) = of_rows(case);
    let loss_mask = params.masked.then_some(&live[..]);
    let mut logits: Vec<S> = case.data.element[0].iter().map(|z| S::narrow(*z)).collect();
    let rows = Logits { logits: &logits, labels: &labels, loss_mask };
    let (t, row) = (params.temperature, &case.data.row);
    match params.which {
        Which::Statistics { moments } => {
            let out = ops::logits_statistics(device, &rows, t, moments).unwrap();
            same_statistics(expected, &out, moments);
        }
        Which::Gradient { entropy } => {
            let statistics = ops::logits_statistics(device, &rows, t, entropy).unwrap();
            let of_entropy = entropy.then_some(&row[3][..]);
            let out = ops::logits_gradient(device, &rows, &statistics, &row[2], of_entropy).unwrap();
            let numbers = |out: &[S]| -> Vec<f32> { out.iter().map(|x| x.widen()).collect() };
            expected.same("gradient", &numbers(&out));
            let (coef, place) = (&row[2], &mut logits);
            ops::logits_gradient_in_place(device, place, &labels, loss_mask, &statistics, coef, of_entropy)
                .unwrap();
            expected.same("gradient", &numbers(&logits));
        }
        Which::Otr { .. } => {}
    }
}

pub(crate) fn check_vocab_parallel(expected: &Launch<'_>, params: &VocabParallel) {
    match params.format {
        Suffix::None => check_vocab_parallel_as::<f32>(expected, params),
        Suffix::Bf16 => check_vocab_parallel_as::<Bf16>(expected, params),
        Suffix::F16 => check_vocab_parallel_as::<F16>(expected, params),
    }
}

fn check_vocab_parallel_as<S: Storage>(expected: &Launch<'_>, params: &VocabParallel)
where
    for<'a> VocabParallelTop<'a, S>: Compiled,
    for<'a> VocabParallelSums<'a, S>: Compiled,
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    let moments = match params.part {
        Part::Statistics { moments: wanted } | Part::Gradient { entropy: wanted } => wanted,
        // The results of the calls are the kernels' own.
        Part::Top | Part::Sums { .. } => return,
    };
    let (device, case) = (expected.device, expected.case);
    let ((labels, live), rows) = (of_rows(case), case.data.rows());
    let vocab = case.data.elements() / rows;
    let batch = Batch {
        vocab,
        logits: case.data.element[0].iter().map(|z| S::narrow(*z)).collect(),
        labels,
        mask: if params.masked { live } else { vec![1; rows] },
        coef: case.data.row[2].clone(),
        coef_entropy: case.data.row[3].clone(),
        temperature: params.temperature,
    };
    let count = params.shards.min(vocab);
    let cuts: Vec<usize> = (0..=count).map(|k| k * vocab / count).collect();
    let (out, gradient) = in_shards(device, &batch, &cuts, moments, false).unwrap();
    if let Part::Gradient { .. } = params.part {
        return expected.same("gradient", &gradient.iter().map(|x| x.widen()).collect::<Vec<_>>());
    }
    same_statistics(expected, &out, moments);
}

fn same_statistics(expected: &Launch<'_>, out: &Statistics, moments: bool) {
    expected.same("logp", &out.logp);
    expected.same("lse", &out.lse);
    if moments {
        expected.same("entropy", &out.entropy);
        expected.same("collision", &out.collision);
        expected.same("score_norm", &out.score_norm);
    }
}

pub(crate) fn check_logits_kl(expected: &Launch<'_>, params: &LogitsKl) {
    let (device, case) = (expected.device, expected.case);
    let (_, live) = of_rows(case);
    let rows = TwoRows {
        logits: &case.data.element[0],
        reference: &case.data.element[1],
        vocab: case.data.elements() / case.data.rows(),
        loss_mask: params.masked.then_some(&live[..]),
    };
    let coef = params.gradient.then_some(&case.data.row[2][..]);
    let out = ops::logits_kl(device, &rows, params.direction, params.temperature, coef).unwrap();
    expected.same("kl", &out.value);
    if params.gradient {
        expected.same("gradient", &out.gradient);
    }
}

pub(crate) fn check_sampling(expected: &Launch<'_>, params: &Sampling) {
    let (device, case) = (expected.device, expected.case);
    let (labels, live) = of_rows(case);
    let loss_mask = params.masked.then_some(&live[..]);
    let rows = Logits { logits: &case.data.element[0], labels: &labels, loss_mask };
    match params.which {
        Drawn::Tokens { temperature, seed, first: 0 } => {
            let tokens = ops::draw_tokens(device, &rows, temperature, params.draws, seed).unwrap();
            let vocab = case.data.elements() / case.data.rows();
            let mut counts = vec![0.0f32; case.data.elements()];
            let place = |(k, a): (usize, &u32)| k / params.draws * vocab + *a as usize;
            tokens.iter().enumerate().for_each(|drawn| counts[place(drawn)] += 1.0);
            expected.same("counts", &counts);
        }
        Drawn::Tokens { .. } => {}
        Drawn::Otr { beta, gradient } => {
            // The API sorts.
            let of_row =
                |r| candidates(&case.data.element[0][case.data.span(r)], params.draws).into_iter().rev();
            let drawn: Vec<u32> = (0..case.data.rows()).flat_map(of_row).collect();
            let out = ops::otr_sampled(device, &rows, &drawn, beta, None, gradient).unwrap();
            expected.same("loss", &out.row_loss);
        }
    }
}

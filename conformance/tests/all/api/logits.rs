//! Rows of logits.

use super::launch::Launch;
use lockstep::Device;
use lockstep::ops::logits::{Logits, TwoRows};
use lockstep::ops::{self};
use lockstep_conformance::cases::Case;
use lockstep_conformance::ops::logits::{Logits as LogitsTest, Which};
use lockstep_conformance::ops::logits_kl::LogitsKl;
use lockstep_conformance::ops::sampling::{Sampling, Which as Drawn, candidates};

pub(crate) fn check_logits(device: &Device, case: &Case, params: &LogitsTest, expected: &Launch) {
    let row = &case.data.row;
    let labels: Vec<u32> = row[0].iter().map(|a| *a as u32).collect();
    let live: Vec<u8> = row[1].iter().map(|x| *x as u8).collect();
    let loss_mask = params.masked.then_some(&live[..]);
    let rows = Logits { logits: &case.data.element[0], labels: &labels, loss_mask };
    let t = params.temperature;
    match params.which {
        Which::Statistics { moments } => {
            let out = ops::logits_statistics(device, &rows, t, moments).unwrap();
            expected.same("logp", &out.logp);
            expected.same("lse", &out.lse);
            if moments {
                expected.same("entropy", &out.entropy);
                expected.same("collision", &out.collision);
                expected.same("score_norm", &out.score_norm);
            }
        }
        Which::Gradient { entropy } => {
            let statistics = ops::logits_statistics(device, &rows, t, entropy).unwrap();
            let of_entropy = entropy.then_some(&row[3][..]);
            let out = ops::logits_gradient(device, &rows, &statistics, &row[2], of_entropy).unwrap();
            expected.same("gradient", &out);
        }
        // The API's coefficients are those of a mean.
        Which::Otr { beta, gradient } => {
            let out = ops::otr_exact(device, &rows, t, beta, None, gradient).unwrap();
            expected.same("loss", &out.row_loss);
        }
    }
}

pub(crate) fn check_logits_kl(device: &Device, case: &Case, params: &LogitsKl, expected: &Launch) {
    let live: Vec<u8> = case.data.row[1].iter().map(|x| *x as u8).collect();
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

pub(crate) fn check_sampling(device: &Device, case: &Case, params: &Sampling, expected: &Launch) {
    let labels: Vec<u32> = case.data.row[0].iter().map(|a| *a as u32).collect();
    let live: Vec<u8> = case.data.row[1].iter().map(|x| *x as u8).collect();
    let rows = Logits {
        logits: &case.data.element[0],
        labels: &labels,
        loss_mask: params.masked.then_some(&live[..]),
    };
    match params.which {
        Drawn::Tokens { temperature, seed, first: 0 } => {
            let tokens = ops::draw_tokens(device, &rows, temperature, params.draws, seed).unwrap();
            let vocab = case.data.elements() / case.data.rows();
            let mut counts = vec![0.0f32; case.data.elements()];
            tokens
                .iter()
                .enumerate()
                .for_each(|(k, a)| counts[k / params.draws * vocab + *a as usize] += 1.0);
            expected.same("counts", &counts);
        }
        Drawn::Tokens { .. } => {}
        Drawn::Otr { beta, gradient } => {
            let drawn: Vec<u32> = (0..case.data.rows())
                // The API sorts.
                .flat_map(|r| {
                    candidates(&case.data.element[0][case.data.span(r)], params.draws).into_iter().rev()
                })
                .collect();
            let out = ops::otr_sampled(device, &rows, &drawn, beta, None, gradient).unwrap();
            expected.same("loss", &out.row_loss);
        }
    }
}

//! Rows of logits.

use super::launch::Launch;
use lockstep::Device;
use lockstep::ops::{self, logits::Logits};
use lockstep_conformance::cases::Case;
use lockstep_conformance::ops::logits::{Logits as LogitsTest, Which};

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

//! GMPO, gates with a second policy, sequence weights, selections.

use crate::Inputs;
use crate::ops::{Bench, bits, policy};
use lockstep::ops::policy_loss::{GmpoParams, gmpo};
use lockstep::ops::select::{Candidates, Pick, select};
use lockstep::ops::{covariance, sequence_weight};
use lockstep::{Advantage, Batch, Counts, Device, Outputs, PolicyInput, PolicyOutput};
use lockstep_core::gate::{Divergence, MiniRl, Remix, TrustRegion};
use lockstep_core::policy_loss::SequenceRule;
use lockstep_core::policy_loss::gmpo::Mean;
use lockstep_core::ratio::Guard;

const SELECTION: &str = "selection_key, digit_counts, narrow_digits, select_top";

pub(crate) fn benches<'a>(inputs: &'a Inputs, both: (Batch<'a>, Counts)) -> Vec<Bench<'a>> {
    let (batch, counts) = both;
    let mini = MiniRl { clip_ratio_low: 0.2, clip_ratio_high: 0.27, clip_ratio_c: 5.0 };
    let remix = Remix { clip_ratio_low: 0.2, clip_ratio_high: 0.2 };
    let divergence = Divergence::TotalVariation;
    let trust = TrustRegion { divergence, clip_ratio_low: 0.15, clip_ratio_high: 0.15, clip_ratio_c: 3.0 };
    let second = Some(&inputs.logp_ref[..]);
    let params = GmpoParams {
        mean: Mean::Geometric,
        clip_log_low: 0.4,
        clip_log_high: 0.4,
        guard: Guard::clamp(20.0),
        denominator: counts.sequences as f64,
        band: [0.8, 1.2],
    };
    let advantage = Advantage::PerSequence(&inputs.advantage);
    let gmpo = |name, outputs| {
        let mut out = PolicyOutput::default();
        let run = move |device: &Device| {
            let input =
                PolicyInput { outputs, ..PolicyInput::new(&inputs.logp, &inputs.logp_old, advantage) };
            gmpo(device, &batch, &input, &params, &mut out)?;
            Ok(bits(&out.coef) ^ out.loss.unwrap_or(0.0).to_bits())
        };
        Bench::new(name, 13.0, run)
    };
    vec![
        policy("policy_loss_mini_rl/coef", inputs, both, mini, second, Outputs::COEF, 17.0),
        policy("policy_loss_trust_region/coef", inputs, both, trust, second, Outputs::COEF, 17.0),
        policy("policy_loss_remix/coef", inputs, both, remix, second, Outputs::COEF, 17.0),
        gmpo("policy_loss_gmpo/coef", Outputs::COEF),
        gmpo("policy_loss_gmpo/all", Outputs { loss: true, metrics: true, ..Outputs::COEF }),
        Bench::new("sequence_weight", 13.0, move |device| {
            let logps = [&inputs.logp[..], &inputs.logp_old];
            let rule = SequenceRule::VESPO;
            Ok(bits(&sequence_weight(device, &batch, logps, &inputs.advantage, None, &rule)?))
        }),
        Bench::new("covariance", 9.0, move |device| {
            Ok(bits(&covariance(device, &batch, &inputs.logp, advantage)?))
        }),
        // The keys once, eleven passes over them, one selection.
        Bench::new(SELECTION, 9.0 + 11.0 * 4.0 + 9.0, move |device| {
            let chosen = select(device, &batch, &Candidates::largest(&inputs.logp), 1000)?;
            Ok(bits(&chosen.choose(device, &batch, Pick::All(1.0), Pick::All(0.0))?.0))
        }),
    ]
}

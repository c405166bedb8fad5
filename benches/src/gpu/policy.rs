//! The policy losses.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::aggregate::{PerRow, Weight, WeightFrom};
use lockstep_core::gate::{
    Cispo, Divergence, DppoKl, DppoTv, Gate, MiniRl, PpoClip, Reinforce, Remix, Sapo, TrustRegion,
};
use lockstep_core::policy_loss::gmpo::Mean;
use lockstep_core::policy_loss::{
    LossOut, MetricsOut, PolicyLoss, PolicyLossGmpo, SequenceRule, SequenceWeight,
};
use lockstep_core::ratio::{Guard, Level};
use lockstep_gpu::{Driver, Error};

const PPO: PpoClip = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 3.0 };
const TV: DppoTv = DppoTv { clip_ratio_low: 0.15, clip_ratio_high: 0.15, clip_ratio_c: 3.0 };
const KL: DppoKl = DppoKl { clip_ratio_low: 0.05, clip_ratio_high: 0.05, clip_ratio_c: 3.0 };
const MINI_RL: MiniRl = MiniRl { clip_ratio_low: 0.2, clip_ratio_high: 0.27, clip_ratio_c: 5.0 };
const TRUST: TrustRegion = TrustRegion {
    divergence: Divergence::TotalVariation,
    clip_ratio_low: 0.15,
    clip_ratio_high: 0.15,
    clip_ratio_c: 3.0,
};
const REMIX: Remix = Remix { clip_ratio_low: 0.2, clip_ratio_high: 0.2 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Coef,
    Loss,
    All,
}

pub(super) fn benches<D: Driver>() -> Vec<GpuBench<D>> {
    use Wants::{All, Coef, Loss};
    // logp, logp_old and mask are read, coef is written. With everything, the token loss is written too.
    let (coef, everything) = (13.0, 17.0);
    vec![
        GpuBench::new("policy_loss_ppo/coef", coef, |batch| run(batch, PPO, Coef)),
        GpuBench::new("policy_loss_ppo/loss", coef, |batch| run(batch, PPO, Loss)),
        GpuBench::new("policy_loss_ppo/all", everything, |batch| run(batch, PPO, All)),
        GpuBench::new("policy_loss_sapo/coef", coef, |batch| run(batch, Sapo::new(1.0, 1.05), Coef)),
        GpuBench::new("policy_loss_sapo/loss", coef, |batch| run(batch, Sapo::new(1.0, 1.05), Loss)),
        GpuBench::new("policy_loss_sapo/all", everything, |batch| run(batch, Sapo::new(1.0, 1.05), All)),
        GpuBench::new("policy_loss_cispo/coef", coef, |batch| {
            run(batch, Cispo { low: 0.0, high: 1.28 }, Coef)
        }),
        GpuBench::new("policy_loss_reinforce/coef", coef, |batch| run(batch, Reinforce, Coef)),
        GpuBench::new("policy_loss_dppo_tv/coef", coef, |batch| run(batch, TV, Coef)),
        GpuBench::new("policy_loss_dppo_kl/coef", coef, |batch| run(batch, KL, Coef)),
        // A second policy.
        GpuBench::new("policy_loss_mini_rl/coef", coef + 4.0, |batch| run(batch, MINI_RL, Coef)),
        GpuBench::new("policy_loss_trust_region/coef", coef + 4.0, |batch| run(batch, TRUST, Coef)),
        GpuBench::new("policy_loss_remix/coef", coef + 4.0, |batch| run(batch, REMIX, Coef)),
        GpuBench::new("policy_loss_gmpo/coef", coef, |batch| gmpo(batch, false)),
        GpuBench::new("policy_loss_gmpo/all", coef, |batch| gmpo(batch, true)),
        GpuBench::new("sequence_weight", coef, sequence_weight),
    ]
}

fn run<D: Driver, G: Gate>(batch: &mut OnGpu<D>, gate: G, wants: Wants) -> Result<(), Error> {
    let [coef, token_loss] = &mut batch.element;
    let all = wants == Wants::All;
    let kernel = PolicyLoss {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_old: batch.logp_old.view(),
        logp_second: G::SECOND.then(|| batch.logp_ref.view()),
        advantage: batch.advantage.view(),
        advantage_per_token: false,
        weights: None,
        level: Level::Token,
        guard: Guard::clamp(20.0),
        gate,
        kl: None,
        weight: Weight {
            per_row: PerRow::Length { eps: 1e-8 },
            denominator: batch.sequences as f64,
            scale: 1.0,
        },
        weight_from: WeightFrom::ABSENT,
        coef: coef.view_mut(),
        loss: (wants != Wants::Coef).then(|| LossOut {
            token_loss: all.then(|| token_loss.view_mut()),
            row_loss: batch.row64.view_mut(),
        }),
        row_tokens: batch.counts.view_mut(),
        row_alarm: batch.flags.view_mut(),
        metrics: all.then(|| MetricsOut {
            row_sums: batch.sums.view_mut(),
            row_maxima: batch.row32.view_mut(),
            band: [0.8, 1.2],
        }),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn gmpo<D: Driver>(batch: &mut OnGpu<D>, metrics: bool) -> Result<(), Error> {
    let kernel = PolicyLossGmpo {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_old: batch.logp_old.view(),
        advantage: batch.advantage.view(),
        advantage_per_token: false,
        weights: None,
        guard: Guard::clamp(20.0),
        mean: Mean::Geometric,
        clip_log_low: 0.4,
        clip_log_high: 0.4,
        denominator: batch.sequences as f64,
        denominator_from: None,
        coef: batch.element[0].view_mut(),
        row_loss: metrics.then(|| batch.row64.view_mut()),
        row_tokens: batch.counts.view_mut(),
        row_alarm: batch.flags.view_mut(),
        metrics: metrics.then(|| MetricsOut {
            row_sums: batch.sums.view_mut(),
            row_maxima: batch.row32.view_mut(),
            band: [0.8, 1.2],
        }),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn sequence_weight<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = SequenceWeight {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_behave: batch.logp_old.view(),
        advantage: batch.advantage.view(),
        weights: None,
        rule: SequenceRule::VESPO,
        out: batch.element[0].view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

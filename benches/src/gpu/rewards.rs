//! Reward shaping, advantage shaping and group filters.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::advantage::{EntropyBonus, Order, RoleBaseline, Sharpen, Sharpening};
use lockstep_core::ragged::Mask;
use lockstep_core::reward::{
    Criterion, FilterGroups, MaskSequences, NoveltyBands, ShapeRewards, Shaping, VarianceIncrease,
};
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("shape_rewards", 12.0 * per_token, shape_rewards),
        GpuBench::new("filter_groups", 5.0 * per_token, filter_groups),
        GpuBench::new("mask_sequences", 2.0, mask_sequences),
        // Per sequence: eight similarities and the class; reward and novelty.
        GpuBench::new("novelty_bands", 44.0 * per_token, novelty_bands),
        GpuBench::new("variance_increase", 8.0 * per_token, variance_increase),
        GpuBench::new("sharpen", 20.0 * per_token, sharpen),
        GpuBench::new("role_baseline", 8.0 * per_token, role_baseline),
        GpuBench::new("entropy_bonus", 9.0, |batch| entropy_bonus(batch, false)),
        GpuBench::new("entropy_bonus/full", 9.0, |batch| entropy_bonus(batch, true)),
    ]
}

fn shape_rewards<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = ShapeRewards {
        cu_groups: offsets(&batch.cu_groups),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        shaping: Shaping::Overlong { max_length: 1200, buffer: 400, factor: 1.0, saturate: true },
        threshold: 0.5,
        lengths: Some(batch.lengths.view()),
        flags: None,
        reference: None,
        shaped: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn filter_groups<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = FilterGroups {
        cu_groups: offsets(&batch.cu_groups),
        metric: batch.rewards.view(),
        valid: Mask::all(),
        criterion: Criterion::Varied,
        keep: batch.row_kept.view_mut(),
        kept: batch.counts.view_mut(),
        statistic: batch.row32.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn mask_sequences<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = MaskSequences {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        keep: batch.row_kept.view(),
        masked: batch.kept.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn novelty_bands<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [shaped, novelty] = &mut batch.element;
    let kernel = NoveltyBands {
        cu_groups: offsets(&batch.cu_groups),
        pair_start: batch.pair_start.view(),
        similarity: batch.similarity.view(),
        classes: batch.classes.view(),
        valid: Mask::all(),
        mean_weight: 0.5,
        majority: 0.5,
        minority: -1.0,
        width: 0.5,
        invalid: -1.0,
        shaped: shaped.view_mut(),
        novelty: novelty.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn variance_increase<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = VarianceIncrease {
        cu_groups: offsets(&batch.cu_groups),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        logp: None,
        low: f64::NEG_INFINITY,
        high: f64::INFINITY,
        margin: 0.25,
        merge_ties: false,
        shaped: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn sharpen<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = Sharpen {
        cu_groups: offsets(&batch.cu_groups),
        advantage: batch.advantage.view(),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        threshold: 0.5,
        logp: batch.sequence_logp.view(),
        logp_ref: None,
        tokens: None,
        sharpening: Sharpening::Novelty { lambda: 2.5, kappa: 0.5 },
        sharpened: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn role_baseline<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = RoleBaseline {
        cu_roles: offsets(&batch.cu_groups),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        decay: 0.95,
        order: Order::SubtractThenUpdate,
        state: batch.sequence_logp.view(),
        advantage: batch.element[0].view_mut(),
        state_out: batch.row64.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn entropy_bonus<D: Driver>(batch: &mut OnGpu<D>, full: bool) -> Result<(), Error> {
    let kernel = EntropyBonus {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        advantage: batch.advantage.view(),
        per_token: false,
        source: if full { batch.probability.view() } else { batch.logp.view() },
        full,
        alpha: 0.4,
        kappa: 2.0,
        shaped: batch.element[0].view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

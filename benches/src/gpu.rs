//! Every op of the table on a GPU: one batch in device memory, launches without copies, timed by the device's own events.

use crate::Inputs;
use lockstep_core::advantage::whiten::Divisor;
use lockstep_core::advantage::{
    Baseline, Combine, DiscountedReturn, GroupAdvantage, PassAtK, Scale, Singleton, Whiten,
};
use lockstep_core::aggregate::moments::{FoldMoments, MOMENTS, RowMoments};
use lockstep_core::aggregate::{Aggregate, FoldRows, PerRow, RowScan, Weight};
use lockstep_core::check::{self, CheckOffsets, CheckValues, Domain};
use lockstep_core::gate::{Cispo, DppoKl, DppoTv, Gate, PpoClip, Reinforce, Sapo};
use lockstep_core::kl::{Estimator, Kl, KlDivergence};
use lockstep_core::op::DisjointRows;
use lockstep_core::policy_loss::{LossOut, MetricsOut, PolicyLoss, sum};
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::ratio::{Guard, Level, TokenRatio, token};
use lockstep_core::team::Direction;
use lockstep_gpu::{Buffer, Driver, Error, Gpu, Stream};
use std::time::Duration;

/// A batch on a device, with room for every op's outputs.
pub struct OnGpu<D: Driver> {
    gpu: Gpu<D>,
    stream: Stream<D>,
    tokens: usize,
    sequences: usize,
    cu_seqlens: Buffer<u32, D>,
    cu_groups: Buffer<u32, D>,
    loss_mask: Buffer<u8, D>,
    logp: Buffer<f32, D>,
    logp_old: Buffer<f32, D>,
    rewards: Buffer<f32, D>,
    advantage: Buffer<f32, D>,
    element: [Buffer<f32, D>; 2],
    sums: Buffer<f64, D>,
    row64: Buffer<f64, D>,
    row32: Buffer<f32, D>,
    counts: Buffer<u32, D>,
    flags: Buffer<u32, D>,
}

/// What is timed.
#[derive(Clone, Copy, Debug)]
pub struct GpuBench {
    /// The op, and what is asked of it: `policy_loss_sapo/coef`.
    pub name: &'static str,
    /// Bytes moved per token, each array once.
    pub bytes: f64,
    which: Which,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Copy,
    Policy(AnyGate, Wants),
    Ratio,
    Kl,
    Aggregate,
    Scan,
    Advantage,
    RowMoments,
    FoldMoments,
    Whiten,
    Returns,
    PassAtK,
    Combine,
    Fold,
    Offsets,
    Values,
}

#[derive(Clone, Copy, Debug)]
enum AnyGate {
    Ppo,
    Sapo,
    Cispo,
    Reinforce,
    DppoTv,
    DppoKl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Coef,
    Loss,
    All,
}

/// The copy that everything is measured by, and every op.
pub fn all_on_gpu(inputs: &Inputs) -> Vec<GpuBench> {
    let per_token = inputs.rewards.len() as f64 / inputs.tokens() as f64;
    let bench = |name, bytes, which| GpuBench { name, bytes, which };
    let policy = |name, gate, wants| {
        bench(name, if wants == Wants::All { 17.0 } else { 13.0 }, Which::Policy(gate, wants))
    };
    vec![
        bench("copy", 8.0, Which::Copy),
        policy("policy_loss_ppo/coef", AnyGate::Ppo, Wants::Coef),
        policy("policy_loss_ppo/loss", AnyGate::Ppo, Wants::Loss),
        policy("policy_loss_ppo/all", AnyGate::Ppo, Wants::All),
        policy("policy_loss_sapo/coef", AnyGate::Sapo, Wants::Coef),
        policy("policy_loss_sapo/loss", AnyGate::Sapo, Wants::Loss),
        policy("policy_loss_sapo/all", AnyGate::Sapo, Wants::All),
        policy("policy_loss_cispo/coef", AnyGate::Cispo, Wants::Coef),
        policy("policy_loss_reinforce/coef", AnyGate::Reinforce, Wants::Coef),
        policy("policy_loss_dppo_tv/coef", AnyGate::DppoTv, Wants::Coef),
        policy("policy_loss_dppo_kl/coef", AnyGate::DppoKl, Wants::Coef),
        bench("token_ratio", 17.0, Which::Ratio),
        bench("kl", 17.0, Which::Kl),
        bench("aggregate", 5.0, Which::Aggregate),
        bench("row_scan", 9.0, Which::Scan),
        bench("group_advantage", 8.0 * per_token, Which::Advantage),
        bench("row_moments", 5.0, Which::RowMoments),
        bench("fold_moments", 48.0 * per_token, Which::FoldMoments),
        bench("whiten", 9.0, Which::Whiten),
        bench("discounted_return", 9.0, Which::Returns),
        bench("pass_at_k", 8.0 * per_token, Which::PassAtK),
        bench("combine", 12.0 * per_token, Which::Combine),
        bench("fold_rows", 8.0 * per_token, Which::Fold),
        bench("check_offsets", 4.0 * per_token, Which::Offsets),
        bench("check_values", 5.0, Which::Values),
    ]
}

impl<D: Driver> OnGpu<D> {
    /// Uploads a batch.
    pub fn new(gpu: Gpu<D>, inputs: &Inputs) -> Result<Self, Error> {
        let gpu = gpu.with_pointer_checks(false);
        let stream = gpu.stream()?;
        let (tokens, sequences) = (inputs.tokens(), inputs.rewards.len());
        Ok(OnGpu {
            tokens,
            sequences,
            cu_seqlens: gpu.upload(&stream, &inputs.cu_seqlens)?,
            cu_groups: gpu.upload(&stream, &inputs.cu_groups)?,
            loss_mask: gpu.upload(&stream, &inputs.loss_mask)?,
            logp: gpu.upload(&stream, &inputs.logp)?,
            logp_old: gpu.upload(&stream, &inputs.logp_old)?,
            rewards: gpu.upload(&stream, &inputs.rewards)?,
            advantage: gpu.upload(&stream, &inputs.advantage)?,
            element: [gpu.alloc(tokens)?, gpu.alloc(tokens)?],
            sums: gpu.alloc(sequences * sum::SUMS)?,
            row64: gpu.alloc(sequences)?,
            row32: gpu.alloc(2 * sequences)?,
            counts: gpu.alloc(sequences)?,
            flags: gpu.alloc(sequences.max(check::rows(tokens)))?,
            gpu,
            stream,
        })
    }

    /// Time on the device of `times` launches in a row, after one that is not counted.
    pub fn time(&mut self, bench: &GpuBench, times: u64) -> Result<Duration, Error> {
        let (start, end) = (self.gpu.event()?, self.gpu.event()?);
        self.launch(bench)?;
        self.stream.record(&start)?;
        for _ in 0..times {
            self.launch(bench)?;
        }
        self.stream.record(&end)?;
        end.synchronize()?;
        end.since(&start)
    }

    fn launch(&mut self, bench: &GpuBench) -> Result<(), Error> {
        match bench.which {
            Which::Copy => {
                let [to, from] = &mut self.element;
                to.write_from(&self.stream, from)
            }
            Which::Policy(gate, wants) => match gate {
                AnyGate::Ppo => {
                    let gate = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 3.0 };
                    self.policy(gate, wants)
                }
                AnyGate::Sapo => self.policy(Sapo::new(1.0, 1.05), wants),
                AnyGate::Cispo => self.policy(Cispo { low: 0.0, high: 1.28 }, wants),
                AnyGate::Reinforce => self.policy(Reinforce, wants),
                AnyGate::DppoTv => {
                    let gate = DppoTv { clip_ratio_low: 0.15, clip_ratio_high: 0.15, clip_ratio_c: 3.0 };
                    self.policy(gate, wants)
                }
                AnyGate::DppoKl => {
                    let gate = DppoKl { clip_ratio_low: 0.05, clip_ratio_high: 0.05, clip_ratio_c: 3.0 };
                    self.policy(gate, wants)
                }
            },
            Which::Ratio => {
                let [ratio, log_ratio] = &mut self.element;
                let kernel = TokenRatio {
                    cu_seqlens: offsets(&self.cu_seqlens),
                    loss_mask: Mask::view(Some(self.loss_mask.view())),
                    logp: self.logp.view(),
                    logp_old: self.logp_old.view(),
                    guard: Guard::clamp(20.0),
                    band: [0.8, 1.2],
                    ratio: Some(ratio.view_mut()),
                    log_ratio: Some(log_ratio.view_mut()),
                    row_sums: self.sums.view_mut(),
                    row_maxima: self.row32.view_mut(),
                    row_alarm: self.flags.view_mut(),
                };
                const { assert!(token::sum::SUMS <= sum::SUMS) };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Kl => {
                let [value, gradient] = &mut self.element;
                let kernel = KlDivergence {
                    cu_seqlens: offsets(&self.cu_seqlens),
                    loss_mask: Mask::view(Some(self.loss_mask.view())),
                    logp: self.logp.view(),
                    logp_ref: self.logp_old.view(),
                    kl: Kl::guarded(Estimator::K3),
                    value: Some(value.view_mut()),
                    gradient: Some(gradient.view_mut()),
                    row_sum: self.row64.view_mut(),
                    row_alarm: self.flags.view_mut(),
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Aggregate => {
                let kernel = Aggregate {
                    cu_seqlens: offsets(&self.cu_seqlens),
                    loss_mask: Mask::view(Some(self.loss_mask.view())),
                    values: Some(self.logp.view()),
                    row_sum: self.row64.view_mut(),
                    row_tokens: self.counts.view_mut(),
                    row_alarm: self.flags.view_mut(),
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Scan => {
                let kernel = RowScan {
                    cu_seqlens: offsets(&self.cu_seqlens),
                    loss_mask: Mask::view(Some(self.loss_mask.view())),
                    values: self.logp.view(),
                    direction: Direction::Suffix,
                    scanned: self.element[0].view_mut(),
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Advantage => {
                let [advantage, mean] = &mut self.element;
                let kernel = GroupAdvantage {
                    cu_groups: offsets(&self.cu_groups),
                    rewards: self.rewards.view(),
                    valid: Mask::all(),
                    baseline: Baseline::Mean,
                    scale: Scale::Std { ddof: 1, eps: 1e-6 },
                    singleton: Singleton::Zero,
                    limit: f64::INFINITY,
                    weights: None,
                    lengths: None,
                    given: None,
                    moments: None,
                    advantage: advantage.view_mut(),
                    mean: mean.view_mut(),
                    std: self.row32.view_mut(),
                    counted: self.counts.view_mut(),
                    status: self.flags.view_mut(),
                    pivot: None,
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::RowMoments => {
                let kernel = RowMoments {
                    offsets: offsets(&self.cu_seqlens),
                    mask: Mask::view(Some(self.loss_mask.view())),
                    values: self.logp.view(),
                    per_row: false,
                    nan_is_missing: false,
                    row_moments: self.sums.view_mut(),
                    row_alarm: self.flags.view_mut(),
                };
                const { assert!(MOMENTS <= sum::SUMS) };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::FoldMoments => {
                let (row_moments, moments) = (self.sums.view(), self.row64.view_mut());
                enqueue(&self.gpu, &self.stream, &FoldMoments { row_moments, rows: self.sequences, moments })
            }
            Which::Whiten => {
                let kernel = Whiten {
                    offsets: offsets(&self.cu_seqlens),
                    mask: Mask::view(Some(self.loss_mask.view())),
                    values: self.logp.view(),
                    nan_is_missing: false,
                    moments: self.sums.view(),
                    centre: true,
                    divisor: Divisor::Inside,
                    ddof: 1,
                    eps: 1e-8,
                    whitened: self.element[0].view_mut(),
                    row_alarm: self.flags.view_mut(),
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Returns => {
                let kernel = DiscountedReturn {
                    cu_seqlens: offsets(&self.cu_seqlens),
                    loss_mask: Mask::view(Some(self.loss_mask.view())),
                    rewards: self.logp.view(),
                    gamma: 0.99,
                    returns: self.element[0].view_mut(),
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::PassAtK => {
                let [advantage, pass_at_k] = &mut self.element;
                let kernel = PassAtK {
                    cu_groups: offsets(&self.cu_groups),
                    rewards: self.rewards.view(),
                    valid: Mask::all(),
                    k: 4,
                    threshold: 0.5,
                    advantage: advantage.view_mut(),
                    pass_at_k: pass_at_k.view_mut(),
                    counted: self.counts.view_mut(),
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Combine => {
                // Two rewards for each sequence; tokens are many more.
                let combined = self.element[0].view_mut();
                // SAFETY: the first elements of arrays that have more.
                #[allow(unsafe_code)]
                let (components, weights, combined) = unsafe {
                    let (components, weights) = (self.logp.as_ptr(), self.logp_old.as_ptr());
                    (
                        In::from_raw(components, 2 * self.sequences),
                        In::from_raw(weights, 2),
                        Out::from_raw(combined.as_ptr(), self.sequences),
                    )
                };
                let kernel = Combine { cu_groups: offsets(&self.cu_groups), components, weights, combined };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Fold => {
                let (partials, totals) = (self.sums.view(), self.row64.view_mut());
                // One statistic: as many totals as the view is long.
                // SAFETY: the first element of a buffer that has one for each sequence.
                #[allow(unsafe_code)]
                let totals = unsafe { Out::from_raw(totals.as_ptr(), 1) };
                let kernel = FoldRows { partials, rows: self.sequences, totals };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
            Which::Offsets => {
                let (offsets, first_fault) = (self.cu_seqlens.view(), self.flags.view_mut());
                enqueue(
                    &self.gpu,
                    &self.stream,
                    &CheckOffsets { offsets, elements: self.tokens, first_fault },
                )
            }
            Which::Values => {
                let kernel = CheckValues {
                    values: self.logp.view(),
                    mask: Mask::view(Some(self.loss_mask.view())),
                    domain: Domain::LogProbability,
                    first_fault: self.flags.view_mut(),
                };
                enqueue(&self.gpu, &self.stream, &kernel)
            }
        }
    }

    fn policy<G: Gate>(&mut self, gate: G, wants: Wants) -> Result<(), Error> {
        let [coef, token_loss] = &mut self.element;
        let all = wants == Wants::All;
        let kernel = PolicyLoss {
            cu_seqlens: offsets(&self.cu_seqlens),
            loss_mask: Mask::view(Some(self.loss_mask.view())),
            logp: self.logp.view(),
            logp_old: self.logp_old.view(),
            logp_second: None,
            advantage: self.advantage.view(),
            advantage_per_token: false,
            weights: None,
            level: Level::Token,
            guard: Guard::clamp(20.0),
            gate,
            kl: None,
            weight: Weight {
                per_row: PerRow::Length { eps: 1e-8 },
                denominator: self.sequences as f64,
                scale: 1.0,
            },
            coef: coef.view_mut(),
            loss: (wants != Wants::Coef).then(|| LossOut {
                token_loss: all.then(|| token_loss.view_mut()),
                row_loss: self.row64.view_mut(),
            }),
            row_tokens: self.counts.view_mut(),
            row_alarm: self.flags.view_mut(),
            metrics: all.then(|| MetricsOut {
                row_sums: self.sums.view_mut(),
                row_maxima: self.row32.view_mut(),
                band: [0.8, 1.2],
            }),
        };
        enqueue(&self.gpu, &self.stream, &kernel)
    }
}

#[allow(unsafe_code)]
fn offsets<D: Driver>(buffer: &Buffer<u32, D>) -> Offsets<'_> {
    // SAFETY: uploaded from offsets that a `Batch` accepted.
    unsafe { Offsets::unchecked(buffer.view()) }
}

#[allow(unsafe_code)]
fn enqueue<D: Driver, K: DisjointRows>(gpu: &Gpu<D>, stream: &Stream<D>, kernel: &K) -> Result<(), Error> {
    // SAFETY: every view is of a buffer of this GPU that lives as long as the stream, of the length that the op needs; one
    // stream orders reads and writes.
    unsafe { gpu.launch(stream, kernel) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::op::OPS;
    use lockstep_gpu::Platform;
    use lockstep_gpu::testing::{HostDriver, Settings};

    #[test]
    fn every_op_of_the_table_is_timed() {
        let benches = all_on_gpu(&Inputs::new(1 << 10, 100));
        for op in OPS {
            let of_op = |bench: &GpuBench| bench.name.split('/').next() == Some(op.name);
            assert!(benches.iter().any(of_op), "{} is not timed on a GPU", op.name);
        }
    }

    #[test]
    fn every_launch_is_accepted_by_a_device() {
        let platform = Platform::new(HostDriver::new(Settings::warps(1)));
        let inputs = Inputs::new(1 << 12, 100);
        let mut batch = OnGpu::new(platform.open(0).unwrap(), &inputs).unwrap();
        for bench in all_on_gpu(&inputs) {
            batch.time(&bench, 2).unwrap_or_else(|error| panic!("{}: {error}", bench.name));
        }
    }
}

//! Every op of the table on a GPU: one batch in device memory, launches without copies, timed by the device's
//! own events.
//!
//! An op's benchmark is a function from [`OnGpu`] to a launch, and a line in its file's `benches`; its inputs
//! and outputs are fields of the batch.

mod advantage;
mod check;
mod correction;
mod exact;
mod logits;
mod over_time;
mod policy;
mod rewards;
mod routing;
mod select;
mod sums;
mod tokens;
mod tree;

use crate::Inputs;
use lockstep_core::aggregate::exact_sum;
use lockstep_core::aggregate::weight::PARTS;
use lockstep_core::check as checks;
use lockstep_core::correction::mismatch;
use lockstep_core::op::DisjointRows;
use lockstep_core::policy_loss::sum;
use lockstep_core::ragged::{Mask, Offsets};
use lockstep_core::select::DIGITS;
use lockstep_gpu::{Buffer, Driver, Error, Gpu, Plain, Stream};
use std::time::Duration;

/// The largest number of sums per row of any op in the table.
const SUMS: usize = if mismatch::sum::SUMS > sum::SUMS { mismatch::sum::SUMS } else { sum::SUMS };

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
    logp_ref: Buffer<f32, D>,
    // Probability of the sampled token; being at least 0, it also serves as weight, value or entropy.
    probability: Buffer<f32, D>,
    versions: Buffer<i32, D>,
    rewards: Buffer<f32, D>,
    advantage: Buffer<f32, D>,
    lengths: Buffer<u32, D>,
    sequence_logp: Buffer<f64, D>,
    classes: Buffer<u32, D>,
    pair_start: Buffer<u64, D>,
    similarity: Buffer<f32, D>,
    logits: logits::PerRow<D>,
    tree: tree::Tree<D>,
    routed: routing::Routed<D>,
    wanted: Buffer<u32, D>,
    keys: Buffer<u32, D>,
    digit_counts: Buffer<u32, D>,
    kept: Buffer<u8, D>,
    row_kept: Buffer<u8, D>,
    row_start: Buffer<i32, D>,
    element: [Buffer<f32, D>; 2],
    sums: Buffer<f64, D>,
    row64: Buffer<f64, D>,
    digits: Buffer<f64, D>,
    row32: Buffer<f32, D>,
    counts: Buffer<u32, D>,
    row_tokens: Buffer<u32, D>,
    flags: Buffer<u32, D>,
    parts: [Buffer<u64, D>; 3],
    totals: sums::Totals<D>,
}

/// A benchmark.
pub struct GpuBench<D: Driver> {
    /// The op and the requested outputs: `policy_loss_sapo/coef`.
    pub name: &'static str,
    /// Bytes moved per token, counting each array once.
    pub bytes: f64,
    launch: Launch<D>,
}

/// One launch over the batch.
type Launch<D> = fn(&mut OnGpu<D>) -> Result<(), Error>;

impl<D: Driver> GpuBench<D> {
    fn new(name: &'static str, bytes: f64, launch: Launch<D>) -> Self {
        GpuBench { name, bytes, launch }
    }
}

/// The copy that everything is compared with, and every op.
pub fn all_on_gpu<D: Driver>(inputs: &Inputs) -> Vec<GpuBench<D>> {
    let per_token = inputs.rewards.len() as f64 / inputs.tokens() as f64;
    let copy = GpuBench::new("copy", 8.0, |batch| {
        let [to, from] = &mut batch.element;
        to.write_from(&batch.stream, from)
    });
    let mut list = vec![copy];
    list.extend(policy::benches());
    list.extend(correction::benches());
    list.extend(select::benches(per_token));
    list.extend(tokens::benches());
    list.extend(logits::benches(inputs));
    list.extend(over_time::benches());
    list.extend(advantage::benches(per_token));
    list.extend(rewards::benches(per_token));
    list.extend(tree::benches(per_token));
    list.extend(routing::benches(inputs));
    list.extend(sums::benches(per_token));
    list.extend(exact::benches(per_token));
    list.extend(check::benches(per_token));
    list
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
            logp_ref: gpu.upload(&stream, &inputs.logp_ref)?,
            probability: from_iter(&gpu, &stream, inputs.logp.iter().map(|logp| logp.exp()))?,
            versions: from_iter(&gpu, &stream, (0..tokens).map(|i| (i % 9) as i32))?,
            rewards: gpu.upload(&stream, &inputs.rewards)?,
            advantage: gpu.upload(&stream, &inputs.advantage)?,
            lengths: from_iter(&gpu, &stream, (0..sequences as u32).map(|s| s * 37 % 1300))?,
            sequence_logp: from_iter(&gpu, &stream, inputs.advantage.iter().map(|x| f64::from(x - 2.0)))?,
            classes: from_iter(&gpu, &stream, (0..sequences as u32).map(|s| u32::from(s % 3 != 0)))?,
            // Groups of eight.
            pair_start: from_iter(&gpu, &stream, (0..sequences as u64 / 8).map(|g| g * 64))?,
            similarity: from_iter(&gpu, &stream, (0..sequences * 8).map(|k| (k * 31 % 64) as f32 / 64.0))?,
            logits: logits::PerRow::new(&gpu, &stream, inputs)?,
            tree: tree::Tree::new(&gpu, &stream, inputs)?,
            routed: routing::Routed::new(&gpu, &stream, inputs)?,
            wanted: gpu.upload(&stream, &[0, tokens as u32 / 10])?,
            keys: gpu.alloc(tokens)?,
            digit_counts: gpu.alloc(DIGITS * sequences)?,
            kept: gpu.alloc(tokens)?,
            row_kept: gpu.alloc(sequences)?,
            row_start: gpu.alloc(sequences)?,
            element: [gpu.alloc(tokens)?, gpu.alloc(tokens)?],
            sums: gpu.alloc(sequences * SUMS)?,
            row64: gpu.alloc(sequences)?,
            digits: gpu.alloc(exact_sum::digits::<f64>(sequences).max(exact_sum::digits::<f32>(tokens)))?,
            // Four extremes of a row (rollout_correction).
            row32: gpu.alloc(4 * sequences)?,
            counts: gpu.alloc(sequences)?,
            row_tokens: gpu.alloc(sequences)?,
            flags: gpu.alloc(sequences.max(checks::rows(tokens)))?,
            parts: [gpu.alloc(PARTS)?, gpu.alloc(PARTS)?, gpu.alloc(PARTS)?],
            totals: sums::Totals::new(&gpu)?,
            gpu,
            stream,
        })
    }

    /// The device time of `times` consecutive launches, after one that is not counted.
    pub fn time(&mut self, bench: &GpuBench<D>, times: u64) -> Result<Duration, Error> {
        let (start, end) = (self.gpu.event()?, self.gpu.event()?);
        (bench.launch)(self)?;
        self.stream.record(&start)?;
        for _ in 0..times {
            (bench.launch)(self)?;
        }
        self.stream.record(&end)?;
        end.synchronize()?;
        end.since(&start)
    }
}

fn from_iter<D: Driver, T: Plain>(
    gpu: &Gpu<D>,
    stream: &Stream<D>,
    values: impl Iterator<Item = T>,
) -> Result<Buffer<T, D>, Error> {
    gpu.upload(stream, &values.collect::<Vec<_>>())
}

fn mask<D: Driver>(buffer: &Buffer<u8, D>) -> Mask<'_> {
    Mask::view(Some(buffer.view()))
}

#[allow(unsafe_code)]
fn offsets<D: Driver>(buffer: &Buffer<u32, D>) -> Offsets<'_> {
    // SAFETY: uploaded from offsets that a `Batch` has accepted.
    unsafe { Offsets::unchecked(buffer.view()) }
}

#[allow(unsafe_code)]
fn enqueue<D: Driver, K: DisjointRows>(gpu: &Gpu<D>, stream: &Stream<D>, kernel: &K) -> Result<(), Error> {
    // SAFETY: every view is of a buffer of this GPU that lives as long as the stream and is as long as the op
    // needs; one stream orders reads and writes.
    unsafe { gpu.launch(stream, kernel) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::op::OPS;
    use lockstep_gpu::Platform;
    use lockstep_gpu_testing::{HostDriver, Settings};

    #[test]
    fn every_op_of_the_table_is_timed() {
        let benches = all_on_gpu::<HostDriver>(&Inputs::new(1 << 10, 100));
        for op in OPS {
            let of_op = |bench: &GpuBench<_>| bench.name.split('/').next() == Some(op.name);
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

//! Every op of the table on a GPU: one batch in device memory, launches without copies, timed by the device's own events.
//!
//! An op's bench is a function from [`OnGpu`] to a launch and a line of its file's `benches`; what it reads and writes are fields of
//! the batch.

mod advantage;
mod check;
mod exact;
mod policy;
mod sums;
mod tokens;

use crate::Inputs;
use lockstep_core::aggregate::exact_sum;
use lockstep_core::check as checks;
use lockstep_core::op::DisjointRows;
use lockstep_core::policy_loss::sum;
use lockstep_core::ragged::{Mask, Offsets};
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
    digits: Buffer<f64, D>,
    row32: Buffer<f32, D>,
    counts: Buffer<u32, D>,
    flags: Buffer<u32, D>,
}

/// What is timed.
pub struct GpuBench<D: Driver> {
    /// The op, and what is asked of it: `policy_loss_sapo/coef`.
    pub name: &'static str,
    /// Bytes moved per token, each array once.
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

/// The copy that everything is measured by, and every op.
pub fn all_on_gpu<D: Driver>(inputs: &Inputs) -> Vec<GpuBench<D>> {
    let per_token = inputs.rewards.len() as f64 / inputs.tokens() as f64;
    let copy = GpuBench::new("copy", 8.0, |batch| {
        let [to, from] = &mut batch.element;
        to.write_from(&batch.stream, from)
    });
    let mut list = vec![copy];
    list.extend(policy::benches());
    list.extend(tokens::benches());
    list.extend(advantage::benches(per_token));
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
            rewards: gpu.upload(&stream, &inputs.rewards)?,
            advantage: gpu.upload(&stream, &inputs.advantage)?,
            element: [gpu.alloc(tokens)?, gpu.alloc(tokens)?],
            sums: gpu.alloc(sequences * sum::SUMS)?,
            row64: gpu.alloc(sequences)?,
            digits: gpu.alloc(exact_sum::digits::<f64>(sequences).max(exact_sum::digits::<f32>(tokens)))?,
            row32: gpu.alloc(2 * sequences)?,
            counts: gpu.alloc(sequences)?,
            flags: gpu.alloc(sequences.max(checks::rows(tokens)))?,
            gpu,
            stream,
        })
    }

    /// Time on the device of `times` launches in a row, after one that is not counted.
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

fn mask<D: Driver>(buffer: &Buffer<u8, D>) -> Mask<'_> {
    Mask::view(Some(buffer.view()))
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

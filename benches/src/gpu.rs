//! The same benchmarks on a GPU, timed by the device's own events: their launches without the copies.

use crate::Inputs;
use crate::ops::Bench;
use lockstep::{Device, Error};
use lockstep_core::op::OPS;
use lockstep_gpu::{Driver, Gpu, Stopwatch};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A GPU whose launches are repeated and measured.
#[derive(Debug)]
pub struct OnGpu {
    device: Device,
    stopwatch: Arc<Stopwatch>,
}

impl OnGpu {
    /// Measures on `device`, in batches of launches. `None` if the device is a CPU.
    pub fn new(device: &Device, batches: usize, launches: u32) -> Option<OnGpu> {
        let stopwatch = Arc::new(Stopwatch::new(batches, launches));
        Some(OnGpu { device: device.with_stopwatch(&stopwatch)?, stopwatch })
    }

    /// Runs a benchmark, and returns the device time of each batch, by entry point: of the ops in the
    /// benchmark's name, or of every launch of a function that is no op.
    pub fn time(&self, bench: &mut Bench<'_>) -> Result<BTreeMap<&'static str, Vec<Duration>>, Error> {
        (bench.run)(&self.device)?;
        let ops: Vec<_> = OPS.iter().filter(|op| bench.ops().any(|name| name == op.name)).collect();
        let mut times = self.stopwatch.take();
        times.retain(|entry, _| {
            ops.is_empty() || ops.iter().flat_map(|op| op.all_entries()).any(|of| of == *entry)
        });
        Ok(times)
    }
}

/// The device time of `launches` copies between two arrays of one binary32 per token, after one that is not
/// counted.
pub fn copy_on_gpu<D: Driver>(gpu: &Gpu<D>, inputs: &Inputs, launches: u32) -> Result<Duration, Error> {
    let (stream, start, end) = (gpu.stream()?, gpu.event()?, gpu.event()?);
    let from = gpu.upload(&stream, &inputs.logp)?;
    let mut to = gpu.alloc(inputs.tokens())?;
    to.write_from(&stream, &from)?;
    stream.record(&start)?;
    (0..launches).try_for_each(|_| to.write_from(&stream, &from))?;
    stream.record(&end)?;
    end.synchronize()?;
    Ok(end.since(&start)?)
}

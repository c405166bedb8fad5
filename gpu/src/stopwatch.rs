//! Device times of the kernels that staged runs launch, for benchmarks.

use crate::gpu::{Current, Entry};
use crate::{Driver, Error, Gpu, Handle, Parameters};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Repeats every kernel that a [`Gpu`] with this stopwatch [runs](Gpu::run), and measures the repeats with
/// the device's own events. Copies are not measured.
#[derive(Debug)]
pub struct Stopwatch {
    batches: usize,
    launches: u32,
    measured: Mutex<BTreeMap<&'static str, Vec<Duration>>>,
}

impl Stopwatch {
    /// Creates a stopwatch that measures `batches` batches of `launches` launches each.
    pub fn new(batches: usize, launches: u32) -> Self {
        Stopwatch { batches, launches, measured: Mutex::default() }
    }

    /// Returns what has been measured since the last call: for each entry point, the time of each batch,
    /// summed over the runs that used it.
    pub fn take(&self) -> BTreeMap<&'static str, Vec<Duration>> {
        std::mem::take(&mut *self.measured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<D: Driver> Gpu<D> {
    /// Returns the same device, measuring what [`run`](Gpu::run) launches. Results do not change.
    pub fn with_stopwatch(&self, stopwatch: &Arc<Stopwatch>) -> Self {
        Gpu { stopwatch: Some(stopwatch.clone()), ..self.clone() }
    }

    /// Repeats a launch in a stream and measures it, if this device has a stopwatch.
    ///
    /// # Safety
    /// As for [`enqueue`](Gpu::enqueue).
    #[allow(unsafe_code)]
    pub(crate) unsafe fn measure(
        &self,
        current: &Current<'_, D>,
        entry: Entry,
        parameters: &mut Parameters,
        stream: Handle,
    ) -> Result<(), Error> {
        let Some(stopwatch) = &self.stopwatch else { return Ok(()) };
        let mut times = Vec::new();
        for _ in 0..stopwatch.batches {
            let (start, end) = (self.event()?, self.event()?);
            let mark = |event: Handle| {
                // SAFETY: the event is ours; the stream is the caller's.
                unsafe { current.driver().record(event, stream) }.map_err(|fault| self.context.fault(fault))
            };
            mark(start.handle)?;
            for _ in 0..stopwatch.launches {
                // SAFETY: the caller's.
                unsafe { self.enqueue(current, entry, parameters, stream)? };
            }
            mark(end.handle)?;
            end.synchronize()?;
            times.push(end.since(&start)?);
        }
        let mut measured = stopwatch.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = measured.entry(entry.name).or_insert_with(|| vec![Duration::ZERO; times.len()]);
        sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
        Ok(())
    }
}

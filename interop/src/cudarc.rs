//! cudarc 0.19: a plan over `CudaSlice`s, on a `CudaStream`.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use lockstep::plan::{Calls, Capacity};
//! use lockstep::{Device, Outputs, Recipe, Views};
//! use lockstep_interop::cudarc::{OnStream, result};
//!
//! let (device, stream) = (Device::open("cuda:0")?, CudaContext::new(0)?.new_stream()?);
//! let capacity = Capacity { tokens: 10, sequences: 4, groups: 2 };
//! let plan = Recipe::named("dapo")?.plan_exactly(capacity, Calls::Both, Outputs::ALL)?;
//!
//! let cu_seqlens = stream.clone_htod(&[0_u32, 3, 5, 7, 10])?;
//! let cu_groups = stream.clone_htod(&[0_u32, 2, 4])?;
//! let rewards = stream.clone_htod(&[1.0_f32, 0.0, 0.0, 1.0])?;
//! let logp = stream.clone_htod(&[-0.5_f32; 10])?;
//! let mut workspace = stream.alloc_zeros::<u8>(plan.workspace_bytes())?;
//! // SAFETY: the views go to launches on the stream; the offsets are right, and the workspace was zeroed.
//! unsafe {
//!     let mut on = OnStream::new(&device, &stream)?;
//!     let columns = Views {
//!         cu_seqlens: Some(on.read(&cu_seqlens)?),
//!         cu_groups: Some(on.read(&cu_groups)?),
//!         rewards: Some(on.read(&rewards)?),
//!         logp: Some(on.read(&logp)?),
//!         logp_old: Some(on.read(&logp)?),
//!         ..Views::default()
//!     };
//!     let into = on.write(&mut workspace)?;
//!     plan.enqueue(&on, &columns, None, into)?;
//! } // Here cudarc records that the stream reads the columns and writes the workspace.
//! let coef = stream.clone_dtoh(&result::<f32>(&plan, &workspace, "coef")?)?; // dL/dlogp
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::Error;
use ::cudarc::driver::sys::CUdeviceptr;
use ::cudarc::driver::{CudaSlice, CudaStream, CudaView, DevicePtr, DevicePtrMut, SyncOnDrop};
use lockstep::core::ragged::{In, Out};
use lockstep::plan::{Plan, Queue};
use lockstep::{Backend, ColumnElement, Device};
use std::fmt;
use std::ops::Deref;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// cudarc's stream as a [`Queue`], with what a call on it borrows. Drop it once everything is enqueued:
/// cudarc then records what the stream reads and writes.
pub struct OnStream<'a> {
    stream: &'a CudaStream,
    queue: Queue,
    lent: Vec<SyncOnDrop<'a>>,
}

impl fmt::Debug for OnStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnStream({:?}, {} lent)", self.queue, self.lent.len())
    }
}

impl<'a> OnStream<'a> {
    /// Creates a queue on a stream of `device`. The device holds Lockstep's loaded kernels: open it once and
    /// keep it.
    ///
    /// Errors: a stream of another device, or of a context that is not the device's primary one.
    pub fn new(device: &'a Device, stream: &'a CudaStream) -> Result<Self, Error> {
        let context = stream.context();
        if device.backend() != Backend::Cuda || device.ordinal() != Some(context.ordinal()) {
            let expected = format!("cuda:{}, the stream's", context.ordinal());
            return Err(Error::argument("device", expected, device.describe()));
        }
        if !context.is_primary() {
            let expected = "a stream of the device's primary context (`CudaContext::new`)";
            return Err(Error::argument("stream", expected, "one of another context"));
        }
        // SAFETY: a stream of this device's primary context, borrowed for as long as the queue exists.
        let queue = unsafe { device.queue_on(stream.cu_stream().cast())? };
        Ok(OnStream { stream, queue, lent: Vec::new() })
    }

    /// Lends memory for launches to read: a `CudaSlice` or `CudaView`. The stream waits for others' writes to
    /// it.
    ///
    /// Errors: memory of another device.
    ///
    /// # Safety
    /// The view goes to launches on the stream only: on a host, its elements cannot be read.
    pub unsafe fn read<T: ColumnElement>(
        &mut self,
        memory: &'a impl DevicePtr<T>,
    ) -> Result<In<'a, T>, Error> {
        self.same_device(memory.stream())?;
        let (first, lent) = memory.device_ptr(self.stream);
        self.lent.push(lent);
        // SAFETY: cudarc's memory of this device, borrowed for 'a; its elements are numbers, for which every
        // byte is valid.
        Ok(unsafe { view(first, memory.len()) })
    }

    /// Lends memory for launches to write: a `CudaSlice` or `CudaViewMut`. The stream waits for others' reads
    /// and writes of it.
    ///
    /// Errors: memory of another device.
    ///
    /// # Safety
    /// As for [`OnStream::read`].
    pub unsafe fn write<T: ColumnElement>(
        &mut self,
        memory: &'a mut impl DevicePtrMut<T>,
    ) -> Result<Out<'a, T>, Error> {
        self.same_device(memory.stream())?;
        let len = memory.len();
        let (first, lent) = memory.device_ptr_mut(self.stream);
        self.lent.push(lent);
        // SAFETY: cudarc's memory of this device, borrowed exclusively for 'a.
        Ok(unsafe { view_mut(first, len) })
    }

    fn same_device(&self, of: &CudaStream) -> Result<(), Error> {
        let [own, other] = [self.stream, of].map(|stream| stream.context().ordinal());
        if own == other {
            return Ok(());
        }
        Err(Error::argument("memory", format!("memory of device {own}"), format!("memory of device {other}")))
    }
}

/// For calls that take a `Queue`: [`Plan::enqueue`], [`Plan::alarms`] and [`Queue::launch`].
impl Deref for OnStream<'_> {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}

/// Returns a view of the result `name` in the plan's workspace, without a copy.
///
/// Errors: a result that the plan does not have, or one of another type; a workspace that is too small.
pub fn result<'a, T: ColumnElement>(
    plan: &Plan,
    workspace: &'a CudaSlice<u8>,
    name: &'static str,
) -> Result<CudaView<'a, T>, Error> {
    let Some(slot) = plan.slot(name) else {
        let names: Vec<&str> = plan.slots().iter().map(|slot| slot.name).collect();
        return Err(Error::argument(name, format!("one of {}", names.join(", ")), "no result of this plan"));
    };
    if slot.element != T::ELEMENT {
        return Err(Error::argument(name, slot.element.name(), T::ELEMENT.name()));
    }
    let bytes = slot.offset..slot.offset + slot.len * slot.element.bytes();
    let expected = bytes.end;
    // SAFETY: numbers, for which every bit pattern is valid, at a multiple of 256 bytes.
    let numbers = workspace.try_slice(bytes).and_then(|bytes| unsafe { bytes.transmute::<T>(slot.len) });
    numbers.ok_or_else(|| {
        let got = format!("{} bytes", workspace.len());
        Error::argument("workspace", format!("at least {expected} bytes"), got)
    })
}

/// Returns a view of `len` elements at a raw address of cudarc's driver bindings.
///
/// # Safety
/// Those of [`In::from_raw`].
pub unsafe fn view<'a, T: Copy>(first: CUdeviceptr, len: usize) -> In<'a, T> {
    // SAFETY: the caller's.
    unsafe { In::from_raw(with_exposed_provenance(first as usize), len) }
}

/// Returns a writable view of `len` elements at a raw address of cudarc's driver bindings.
///
/// # Safety
/// Those of [`Out::from_raw`].
pub unsafe fn view_mut<'a, T: Copy>(first: CUdeviceptr, len: usize) -> Out<'a, T> {
    // SAFETY: the caller's.
    unsafe { Out::from_raw(with_exposed_provenance_mut(first as usize), len) }
}

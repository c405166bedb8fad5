//! Single ops over the caller's memory: routers, logits, prefix trees. Arrays are passed by name, and results
//! are written to the caller's arrays; `lib/lockstep/arrays.py` takes their addresses.

mod logits;
mod routing;
mod tree;
mod vocab_parallel;

pub(crate) use logits::{draw_tokens, logits_gradient, logits_kl, logits_statistics};
pub(crate) use routing::{PyRouter, PyTrace, balance_loss, gating_backward, gating_forward};
pub(crate) use tree::prefix_tree;
pub(crate) use vocab_parallel::{vocab_parallel_statistics, vocab_parallel_sums, vocab_parallel_top};

use crate::{Place, PyDevice, refused, view};
use lockstep::core::Error as Argument;
use lockstep::core::op::DisjointRows;
use lockstep::core::ragged::{Cells, In, Mask, Out, Span, flag};
use lockstep::core::require;
use lockstep::plan::Queue;
use lockstep::{Compiled, Error};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::c_void;

/// Copies an array to the host.
macro_rules! copy {
    ($queue:expr, $array:expr) => {{
        let array = $array;
        let mut values = vec![Default::default(); array.len()];
        // SAFETY: an array of the queue's device (see `Arrays`).
        unsafe { $queue.download(array.as_ptr(), &mut values) }.map(|()| values)
    }};
}
use copy;

/// The caller's arrays by name: address, elements, bytes per element.
#[derive(FromPyObject)]
#[pyo3(transparent)]
pub(crate) struct Arrays(HashMap<String, (usize, usize, usize)>);

impl Arrays {
    fn find<T>(&self, name: &'static str) -> Result<Option<(usize, usize)>, Error> {
        match self.0.get(name) {
            None => Ok(None),
            Some((at, len, bytes)) if *bytes == size_of::<T>() => Ok(Some((*at, *len))),
            Some((_, _, bytes)) => {
                let expected = "the element size of the op's type, in bytes";
                Err(Argument::Value { argument: name, index: None, expected, got: *bytes as f64 }.into())
            }
        }
    }

    /// Returns an input array, if it was passed.
    fn given<T: Copy>(&self, name: &'static str) -> Result<Option<In<'static, T>>, Error> {
        // SAFETY: `lib/lockstep/arrays.py` has checked type, device and contiguity, and holds the array until
        // the call returns.
        Ok(self.find::<T>(name)?.map(|(at, len)| unsafe { In::from_raw(at as *const T, len) }))
    }

    /// Returns an input array; an error if it was not passed.
    fn input<T: Copy>(&self, name: &'static str) -> Result<In<'static, T>, Error> {
        self.given(name)?.ok_or_else(|| Argument::Empty { argument: name, expected: "an array" }.into())
    }

    /// Returns an output array of `len` elements, if it was passed.
    fn wanted<T: Copy>(&self, name: &'static str, len: usize) -> Result<Option<Out<'static, T>>, Error> {
        let place = self.find::<T>(name)?;
        if let Some((_, got)) = place {
            require::length(name, len, "the length of the op's output", got)?;
        }
        // SAFETY: as for `given`; the array was allocated for this call, and nobody else has it. Or it is an
        // input of an op that may work in place.
        Ok(place.map(|(at, len)| unsafe { Out::from_raw(at as *mut T, len) }))
    }

    /// Returns an output array of `len` elements; an error if it was not passed.
    fn output<T: Copy>(&self, name: &'static str, len: usize) -> Result<Out<'static, T>, Error> {
        self.wanted(name, len)?.ok_or_else(|| Argument::Empty { argument: name, expected: "an array" }.into())
    }

    /// Returns the mask that selects among `rows` rows.
    fn mask(&self, name: &'static str, rows: usize) -> Result<Mask<'static>, Error> {
        let mask = self.given::<u8>(name)?;
        if let Some(bytes) = mask {
            require::length(name, rows, "one per row", bytes.len())?;
        }
        Ok(Mask::view(mask))
    }
}

/// Returns a host array as a slice.
fn whole<T: Copy>(array: In<'static, T>) -> &'static [T] {
    // The address of an empty tensor is 0.
    if array.is_empty() { &[] } else { array.row(Span::new(0, array.len())) }
}

/// Returns an array on the host as a slice.
pub(crate) fn host_slice<T: Copy>(place: Place) -> &'static [T] {
    whole(view(place))
}

/// Where an op runs: a device and one of its streams.
type On = (Py<PyDevice>, usize);

/// Runs `work` with the queue of a device, with the GIL released.
fn on<T: Send>(
    py: Python<'_>,
    (device, stream): On,
    work: impl FnOnce(&Queue) -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(move || {
        // SAFETY: torch's current stream of this device, or 0.
        let queue = unsafe { device.get().0.queue_on(stream as *mut c_void)? };
        work(&queue)
    })
    .map_err(refused)
}

/// Launches an op and waits for it. If a row raised its alarm, `why` finds the cause from copies on the host.
/// Without `wait`, an op on a GPU is launched and no more: its results say which row was bad.
fn launch<K: Compiled + DisjointRows>(
    queue: &Queue,
    kernel: &K,
    alarms: Cells<'_, u32>,
    wait: bool,
    why: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    kernel.check()?;
    if alarms.is_empty() {
        return Ok(());
    }
    let wait = wait || queue.is_cpu();
    let mut raised = vec![0; if wait { alarms.len() } else { 0 }];
    // SAFETY: the arrays are memory of the queue's device (see `Arrays`), and the download waits for the
    // launch that writes them.
    unsafe {
        queue.launch(kernel)?;
        if wait {
            queue.download(alarms.as_ptr().cast_const(), &mut raised)?;
        }
    }
    match raised.iter().position(|alarm| *alarm > flag::LIMIT) {
        None => Ok(()),
        Some(index) => {
            why()?;
            let hint = "check the inputs of this row";
            Err(Argument::NotFinite { result: K::NAME, index, hint }.into())
        }
    }
}

//! Single ops over memory of the caller's: routers, logits, prefix trees. Arrays come in by name, results go
//! into arrays of the caller's; `lib/lockstep/arrays.py` takes their addresses.

mod logits;
mod routing;
mod tree;

pub(crate) use logits::{draw_tokens, logits_gradient, logits_kl, logits_statistics};
pub(crate) use routing::{PyRouter, PyTrace, balance_loss, gating_backward, gating_forward};
pub(crate) use tree::prefix_tree;

use crate::{PyDevice, refused};
use lockstep::core::Error as Argument;
use lockstep::core::op::DisjointRows;
use lockstep::core::ragged::{Cells, In, Mask, Out, Span, flag};
use lockstep::plan::Queue;
use lockstep::{Compiled, Error};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::c_void;

/// A copy of an array on the host.
macro_rules! copy {
    ($queue:expr, $array:expr) => {{
        let array = $array;
        let mut values = vec![Default::default(); array.len()];
        // SAFETY: an array of the queue's device (see `Arrays`).
        unsafe { $queue.download(array.as_ptr(), &mut values) }.map(|()| values)
    }};
}
use copy;

/// Arrays of the caller's by name: address, elements, bytes of an element.
#[derive(FromPyObject)]
#[pyo3(transparent)]
pub(crate) struct Arrays(HashMap<String, (usize, usize, usize)>);

impl Arrays {
    fn find<T>(&self, name: &'static str) -> Result<Option<(usize, usize)>, Error> {
        match self.0.get(name) {
            None => Ok(None),
            Some((at, len, bytes)) if *bytes == size_of::<T>() => Ok(Some((*at, *len))),
            Some((_, _, bytes)) => {
                let expected = "elements of the op's own type";
                Err(Argument::Value { argument: name, index: None, expected, got: *bytes as f64 }.into())
            }
        }
    }

    /// An array that is read, if it was given.
    fn given<T: Copy>(&self, name: &'static str) -> Result<Option<In<'static, T>>, Error> {
        // SAFETY: `lib/lockstep/arrays.py` has looked at type, device and contiguity, and holds the array
        // until the call returns.
        Ok(self.find::<T>(name)?.map(|(at, len)| unsafe { In::from_raw(at as *const T, len) }))
    }

    /// An array that is read.
    fn input<T: Copy>(&self, name: &'static str) -> Result<In<'static, T>, Error> {
        self.given(name)?.ok_or_else(|| Argument::Empty { argument: name, expected: "an array" }.into())
    }

    /// An array of `len` elements that is written, if it is wanted.
    fn wanted<T: Copy>(&self, name: &'static str, len: usize) -> Result<Option<Out<'static, T>>, Error> {
        match self.find::<T>(name)? {
            Some((_, got)) if got != len => {
                let because = "what the op writes";
                Err(Argument::Length { argument: name, expected: len, because, got }.into())
            }
            // SAFETY: as for `given`; nobody else has the array, which was made for this call.
            place => Ok(place.map(|(at, len)| unsafe { Out::from_raw(at as *mut T, len) })),
        }
    }

    /// An array of `len` elements that is written.
    fn output<T: Copy>(&self, name: &'static str, len: usize) -> Result<Out<'static, T>, Error> {
        self.wanted(name, len)?.ok_or_else(|| Argument::Empty { argument: name, expected: "an array" }.into())
    }

    /// Which of `rows` take part.
    fn mask(&self, name: &'static str, rows: usize) -> Result<Mask<'static>, Error> {
        let mask = self.given::<u8>(name)?;
        match mask {
            Some(bytes) if bytes.len() != rows => {
                let (because, got) = ("one per row", bytes.len());
                Err(Argument::Length { argument: name, expected: rows, because, got }.into())
            }
            _ => Ok(Mask::view(mask)),
        }
    }
}

/// An array of the host as a slice.
fn whole<T: Copy>(array: In<'static, T>) -> &'static [T] {
    // The address of an empty tensor is 0.
    if array.is_empty() { &[] } else { array.row(Span::new(0, array.len())) }
}

/// Where an op runs: a device, and a stream of it.
type On = (Py<PyDevice>, usize);

/// Runs `work` with the queue of a device, without the GIL.
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

/// Launches an op and waits for it. Where a row raised its alarm, `why` says what is wrong, from copies on the host.
fn launch<K: Compiled + DisjointRows>(
    queue: &Queue,
    kernel: &K,
    alarms: Cells<'_, u32>,
    why: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    if alarms.is_empty() {
        return Ok(());
    }
    let mut raised = vec![0; alarms.len()];
    // SAFETY: the arrays are memory of the queue's device (see `Arrays`), and the download waits for what
    // writes them.
    unsafe {
        queue.launch(kernel)?;
        queue.download(alarms.as_ptr().cast_const(), &mut raised)?;
    }
    match raised.iter().position(|alarm| *alarm > flag::LIMIT) {
        None => Ok(()),
        Some(index) => {
            why()?;
            let hint = "a row cannot be used";
            Err(Argument::NotFinite { result: K::NAME, index, hint }.into())
        }
    }
}

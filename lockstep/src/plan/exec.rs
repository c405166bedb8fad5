//! Places a plan's arrays in the workspace, and enqueues its launches.

use super::{Alarm, Bad, Queue, Slot};
use crate::{ColumnElement, Compiled, Error};
use lockstep_core::op::DisjointRows;
use lockstep_core::ragged::{In, Mask, Offsets, Out};

/// Alignment of arrays in bytes, chosen for memory transactions.
pub(super) const ALIGN: usize = 256;

/// An array in the workspace.
pub(super) struct Array<T> {
    first: *mut T,
    len: usize,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Array<T> {}

#[allow(unsafe_code)]
impl<T: Copy> Array<T> {
    /// A view for a launch that reads the array.
    pub(super) fn view(self) -> In<'static, T> {
        // SAFETY: within the workspace, which the caller of `enqueue` guarantees; when launches are only
        // counted, nothing reads it.
        unsafe { In::from_raw(self.first, self.len) }
    }

    /// A view for a launch that writes the array.
    pub(super) fn out(self) -> Out<'static, T> {
        // SAFETY: as in `view`; arrays do not overlap.
        unsafe { Out::from_raw(self.first, self.len) }
    }

    /// The first `len` elements.
    pub(super) fn head(self, len: usize) -> Self {
        Array { len: len.min(self.len), ..self }
    }
}

/// One pass over a plan's launches, which counts or enqueues them.
pub(super) struct Exec<'q> {
    memory: *mut u8,
    /// `None`: nothing is launched; arrays and launches are only counted.
    queue: Option<&'q Queue>,
    /// Where the result `coef` goes, if not to the workspace.
    coef: Option<*mut u8>,
    /// End of the results, and end of the scratch memory, which comes after all results.
    pub(super) ends: [usize; 2],
    /// The limits of `ends`.
    most: [usize; 2],
    pub(super) slots: Vec<Slot>,
    pub(super) alarms: Vec<Alarm>,
    pub(super) launches: Vec<&'static str>,
}

impl<'q> Exec<'q> {
    /// A pass that only counts.
    pub(super) fn count() -> Self {
        Exec::at(std::ptr::null_mut(), [0, usize::MAX], None)
    }

    /// A pass that launches over a workspace at `memory`; `ends` are the ends of its results and of the
    /// whole.
    pub(super) fn launch_at(
        memory: *mut u8,
        ends: [usize; 2],
        queue: &'q Queue,
        coef: Option<Out<'_, f32>>,
    ) -> Self {
        Exec { coef: coef.map(|coef| coef.as_ptr().cast()), ..Exec::at(memory, ends, Some(queue)) }
    }

    fn at(memory: *mut u8, most: [usize; 2], queue: Option<&'q Queue>) -> Self {
        let (slots, alarms, launches) = (Vec::new(), Vec::new(), Vec::new());
        Exec { memory, queue, coef: None, ends: [0, most[0]], most, slots, alarms, launches }
    }

    fn place<T>(&mut self, which: usize, len: usize) -> (usize, Array<T>) {
        let offset = self.ends[which];
        self.ends[which] += (len * size_of::<T>()).next_multiple_of(ALIGN);
        (offset, Array { first: self.memory.wrapping_byte_add(offset).cast(), len })
    }

    /// An array of results, which the caller may read afterwards.
    pub(super) fn result<T: ColumnElement>(&mut self, name: &'static str, len: usize) -> Array<T> {
        let (offset, array) = self.place(0, len);
        if self.queue.is_none() {
            self.slots.push(Slot { name, element: T::ELEMENT, len, offset });
        }
        match self.coef {
            Some(coef) if name == "coef" => Array { first: coef.cast(), len },
            _ => array,
        }
    }

    /// A scratch array, used between launches.
    pub(super) fn scratch<T>(&mut self, len: usize) -> Array<T> {
        self.place(1, len).1
    }

    /// The alarms of a stage's rows: above the limit where a live input or result is bad.
    pub(super) fn alarm(&mut self, stage: &'static str, rows: usize) -> Array<u32> {
        self.judged(["alarm", stage], rows, Bad::Alarm)
    }

    /// A number for each row of a stage; `bad` says which numbers are errors.
    pub(super) fn judged(&mut self, of: [&'static str; 2], rows: usize, bad: Bad) -> Array<u32> {
        let [name, stage] = of;
        let offset = self.ends[0];
        if self.queue.is_none() {
            self.alarms.push(Alarm { stage, offset, rows, bad });
        }
        self.result(name, rows)
    }

    /// The queue of the launches; `None` if they are only counted.
    pub(super) fn queue(&self) -> Option<&'q Queue> {
        self.queue
    }

    /// Enqueues an op.
    #[allow(unsafe_code)]
    pub(super) fn run<K: Compiled + DisjointRows>(&mut self, kernel: &K) -> Result<(), Error> {
        kernel.check()?;
        match self.queue {
            None => {
                self.launches.push(K::NAME);
                Ok(())
            }
            // If a column that was counted is absent, the pass may take another path, with other arrays.
            Some(_) if self.ends[0] > self.most[0] || self.ends[1] > self.most[1] => {
                let says =
                    format!("the workspace ends at {:?} bytes, {} needs {:?}", self.most, K::NAME, self.ends);
                Err(Error::Plan(says))
            }
            // SAFETY: the caller of `enqueue` guarantees the columns; the other arrays are the plan's own.
            Some(queue) => unsafe { queue.launch(kernel) },
        }
    }
}

/// A column as offsets.
#[allow(unsafe_code)]
pub(super) fn offsets(offsets: In<'_, u32>) -> Offsets<'_> {
    // SAFETY: guaranteed by the caller of `enqueue`.
    unsafe { Offsets::unchecked(offsets) }
}

/// A column as a mask.
pub(super) fn mask(bytes: Option<In<'_, u8>>) -> Mask<'_> {
    Mask::view(bytes)
}

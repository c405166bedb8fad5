//! Where a plan's arrays lie and where its launches go.

use super::{Alarm, Bad, Queue, Slot};
use crate::{ColumnElement, Compiled, Error};
use lockstep_core::op::DisjointRows;
use lockstep_core::ragged::{In, Mask, Offsets, Out};

/// Where arrays start: what memory transactions like.
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
    /// To be read by a launch.
    pub(super) fn view(self) -> In<'static, T> {
        // SAFETY: within the workspace, which whoever enqueues vouches for; where nothing is launched nobody
        // looks.
        unsafe { In::from_raw(self.first, self.len) }
    }

    /// To be written by a launch.
    pub(super) fn out(self) -> Out<'static, T> {
        // SAFETY: as in `view`; each array has a place of its own.
        unsafe { Out::from_raw(self.first, self.len) }
    }

    /// Its first `len` elements.
    pub(super) fn head(self, len: usize) -> Self {
        Array { len: len.min(self.len), ..self }
    }
}

/// One pass over a plan's launches: to count them, or to put them into a queue.
pub(super) struct Exec<'q> {
    memory: *mut u8,
    /// `None`: nothing is launched, arrays and launches are counted.
    queue: Option<&'q Queue>,
    /// Where the result `coef` goes, if not into the workspace.
    coef: Option<*mut u8>,
    /// End of the results, and of what nobody else looks at, which lies behind all results.
    pub(super) ends: [usize; 2],
    /// Where they must not be beyond.
    most: [usize; 2],
    pub(super) slots: Vec<Slot>,
    pub(super) alarms: Vec<Alarm>,
    pub(super) launches: Vec<&'static str>,
}

impl<'q> Exec<'q> {
    /// Counts.
    pub(super) fn count() -> Self {
        Exec::at(std::ptr::null_mut(), [0, usize::MAX], None)
    }

    /// Launches over a workspace at `memory` whose results and the whole of which end at `ends`.
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

    /// An array that the caller may read afterwards.
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

    /// An array between launches.
    pub(super) fn scratch<T>(&mut self, len: usize) -> Array<T> {
        self.place(1, len).1
    }

    /// The alarms of the rows of a stage: above the limit where a live input or result is bad.
    pub(super) fn alarm(&mut self, stage: &'static str, rows: usize) -> Array<u32> {
        self.judged(["alarm", stage], rows, Bad::Alarm)
    }

    /// A number for each row of a stage, of which some are refused.
    pub(super) fn judged(&mut self, of: [&'static str; 2], rows: usize, bad: Bad) -> Array<u32> {
        let [name, stage] = of;
        let offset = self.ends[0];
        if self.queue.is_none() {
            self.alarms.push(Alarm { stage, offset, rows, bad });
        }
        self.result(name, rows)
    }

    /// Where the launches go; `None` where they are only counted.
    pub(super) fn queue(&self) -> Option<&'q Queue> {
        self.queue
    }

    /// Puts an op into the queue.
    #[allow(unsafe_code)]
    pub(super) fn run<K: Compiled + DisjointRows>(&mut self, kernel: &K) -> Result<(), Error> {
        match self.queue {
            None => {
                self.launches.push(K::NAME);
                Ok(())
            }
            // A column that was counted with and is not there may take another way, with other arrays.
            Some(_) if self.ends[0] > self.most[0] || self.ends[1] > self.most[1] => {
                let says =
                    format!("the workspace ends at {:?} bytes, {} needs {:?}", self.most, K::NAME, self.ends);
                Err(Error::Plan(says))
            }
            // SAFETY: whoever enqueues vouches for the columns; the other arrays are the plan's own.
            Some(queue) => unsafe { queue.launch(kernel) },
        }
    }
}

/// Offsets of columns.
#[allow(unsafe_code)]
pub(super) fn offsets(offsets: In<'_, u32>) -> Offsets<'_> {
    // SAFETY: whoever enqueues vouches for them.
    unsafe { Offsets::unchecked(offsets) }
}

/// A mask of a column.
pub(super) fn mask(bytes: Option<In<'_, u8>>) -> Mask<'_> {
    Mask::view(bytes)
}

//! Host columns as one block of device memory.

use super::exec::ALIGN;
use super::{Capacity, CreditViews, Memory, Queue};
use crate::columns::{Column, Columns, Shape};
use crate::rollouts::Views;
use crate::{Credit, Error, Rollouts, RolloutsBuf};
use lockstep_core::ragged::In;

/// Host bytes that will be one block of device memory; views of it hold offsets until the block has an
/// address.
#[derive(Default)]
pub(super) struct Image {
    bytes: Vec<u8>,
}

impl Image {
    fn add(&mut self, bytes: &[u8]) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        offset
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds those of `columns` that are present.
    pub(super) fn add_columns(&mut self, rollouts: &Rollouts<'_>, columns: Columns) -> Views<'static> {
        Views::placed(rollouts, columns, |bytes| std::ptr::without_provenance(self.add(bytes)))
    }

    /// Adds the parts of a credit that a loss reads.
    #[allow(unsafe_code)]
    pub(super) fn add_credit(&mut self, credit: &Credit) -> CreditViews<'static> {
        let mut floats = |values: &[f32]| {
            let bytes = bytemuck::cast_slice(values);
            // SAFETY: an offset, which `moved` turns into an address.
            unsafe { In::from_raw(std::ptr::without_provenance(self.add(bytes)), values.len()) }
        };
        let advantage = floats(&credit.advantage);
        let weights = credit.weights.as_deref().map(&mut floats);
        let returns = (!credit.returns.is_empty()).then(|| floats(&credit.returns));
        let loss_mask = credit.loss_mask.as_deref().map(|mask| {
            // SAFETY: as above.
            unsafe { In::from_raw(std::ptr::without_provenance(self.add(mask)), mask.len()) }
        });
        CreditViews { advantage, per_token: credit.per_token, loss_mask, weights, returns }
    }
}

impl CreditViews<'static> {
    /// Turns offsets into the block at `base` into addresses.
    #[allow(unsafe_code)]
    pub(super) fn moved(self, base: *const u8) -> Self {
        fn at<T: Copy>(view: In<'static, T>, base: *const u8) -> In<'static, T> {
            // SAFETY: the offset lies in the block at `base`.
            unsafe { In::from_raw(base.wrapping_add(view.as_ptr().addr()).cast(), view.len()) }
        }
        CreditViews {
            advantage: at(self.advantage, base),
            per_token: self.per_token,
            loss_mask: self.loss_mask.map(|view| at(view, base)),
            weights: self.weights.map(|view| at(view, base)),
            returns: self.returns.map(|view| at(view, base)),
        }
    }
}

/// Columns in device memory that can be overwritten with another batch of the same lengths, as a captured
/// plan requires.
#[derive(Debug)]
pub struct DeviceRollouts {
    memory: Memory,
    offsets: Views<'static>,
    columns: Columns,
}

impl DeviceRollouts {
    /// Uploads those of `columns` that are present, as one copy, and waits for it.
    pub fn upload(queue: &Queue, rollouts: &Rollouts<'_>, columns: Columns) -> Result<Self, Error> {
        let mut image = Image::default();
        let offsets = image.add_columns(rollouts, columns);
        Ok(DeviceRollouts { memory: queue.upload(image.bytes())?, offsets, columns })
    }

    /// The columns, for [`Plan::enqueue`](super::Plan::enqueue).
    ///
    /// # Safety
    /// The views go to launches on the queue's device only: on a host, a GPU's memory cannot be read.
    #[allow(unsafe_code)]
    pub unsafe fn views(&self) -> Views<'_> {
        self.offsets.moved(self.memory.as_ptr())
    }

    /// Writes another batch to the same addresses and waits for the copy.
    ///
    /// Errors: a batch with different columns or lengths; a queue of another device.
    #[allow(unsafe_code)]
    pub fn write(&mut self, queue: &Queue, rollouts: &Rollouts<'_>) -> Result<(), Error> {
        queue.check_memory(&self.memory)?;
        let mut image = Image::default();
        let offsets = image.add_columns(rollouts, self.columns);
        let same = |column: &Column| offsets.length(*column) == self.offsets.length(*column);
        if let Some(other) = self.columns.iter().find(|column| !same(column)) {
            return Err(Error::Plan(format!(
                "column {} has a different length than the one in memory",
                other.name()
            )));
        }
        // SAFETY: the block is ours and has the same length; `&mut` ensures that there are no views of it.
        unsafe { queue.write(image.bytes(), self.memory.as_ptr()) }
    }
}

impl Rollouts<'_> {
    /// Copies the batch and pads its columns to the lengths of `capacity`: offsets with their last value,
    /// other columns with 0. `counts` is not changed.
    ///
    /// Errors: those of [`Rollouts::check`]; a batch that exceeds the capacity.
    pub fn padded(&self, capacity: &Capacity) -> Result<RolloutsBuf, Error> {
        let batch = self.batch()?;
        self.check_of(&batch, self.columns())?;
        let own = [
            ("tokens", batch.tokens(), capacity.tokens),
            ("sequences", batch.sequences(), capacity.sequences),
            ("groups", batch.groups(), capacity.groups),
        ];
        if let Some((name, got, most)) = own.into_iter().find(|(_, got, most)| got > most) {
            return Err(Error::Plan(format!("the batch has {got} {name}: the capacity is {most}")));
        }
        let mut padded = self.to_buf();
        padded.resize(|shape| capacity.length(shape).filter(|_| !matches!(shape, Shape::One | Shape::Three)));
        Ok(padded)
    }
}

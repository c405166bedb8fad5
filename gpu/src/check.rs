//! Checks of arguments that only the device can see, made there by core's `check` ops.
//!
//! The caller provides the scratch: [`lockstep_core::check::rows`] of the argument's length. The report is
//! the lowest number in it: [`PASSED`], or the index of the first fault.

use crate::{Driver, Error, Gpu, Plain, Stream};
use lockstep_core::check::{CheckOffsets, CheckValues, Domain, PASSED, first_fault, rows};
use lockstep_core::ragged::{Cells, In, Mask, Out};
use lockstep_core::require;

#[allow(unsafe_code)]
impl<D: Driver> Gpu<D> {
    /// Checks on the device that `offsets` start at 0, never decrease and end at `elements`, and waits for
    /// the answer. An error names `argument`, the index and the value there, and `of`, what the elements are.
    ///
    /// To check without waiting, [`launch`](Gpu::launch) [`CheckOffsets`] and read the scratch later.
    ///
    /// # Safety
    /// As for [`launch`](Gpu::launch): `offsets` and `scratch` are this device's memory. The offsets may have
    /// any values.
    pub unsafe fn check_offsets(
        &self,
        stream: &Stream<D>,
        (argument, of): (&'static str, &'static str),
        offsets: In<'_, u32>,
        elements: usize,
        scratch: Out<'_, u32>,
    ) -> Result<(), Error> {
        if offsets.len() < 2 {
            let expected = "at least one row: [0, n]";
            return Err(lockstep_core::Error::Empty { argument, expected }.into());
        }
        enough(&scratch, offsets.len())?;
        let report = *scratch;
        // SAFETY: the caller's.
        let found = unsafe {
            self.launch(stream, &CheckOffsets { offsets, elements, first_fault: scratch })?;
            self.lowest(stream, report, rows(offsets.len()))?
        };
        let Some(index) = found else { return Ok(()) };
        // SAFETY: the caller's; the index is below the length.
        let got = unsafe { self.read_one(stream, offsets, index)? };
        let fault = match index {
            0 if got != 0 => lockstep_core::Error::FirstOffset { argument, got },
            _ => {
                let before = match index {
                    0 => 0,
                    // SAFETY: as above.
                    _ => unsafe { self.read_one(stream, offsets, index - 1)? },
                };
                if got < before {
                    lockstep_core::Error::Decreasing { argument, index, before, got }
                } else {
                    lockstep_core::Error::LastOffset { argument, index, expected: elements, of, got }
                }
            }
        };
        Err(fault.into())
    }

    /// Checks on the device that every live value lies in `domain`, and waits for the answer. An error names
    /// `argument`, and the index and value of the first that does not.
    ///
    /// # Safety
    /// As for [`launch`](Gpu::launch): the arrays are this device's memory, and the mask is as long as the
    /// values. The values may be anything.
    pub unsafe fn check_values(
        &self,
        stream: &Stream<D>,
        argument: &'static str,
        values: In<'_, f32>,
        mask: Mask<'_>,
        domain: Domain,
        scratch: Out<'_, u32>,
    ) -> Result<(), Error> {
        if let Some(bytes) = mask.bytes() {
            require::length("mask", values.len(), argument, bytes.len())?;
        }
        if values.is_empty() {
            return Ok(());
        }
        enough(&scratch, values.len())?;
        let report = *scratch;
        // SAFETY: the caller's.
        let found = unsafe {
            self.launch(stream, &CheckValues { values, mask, domain, first_fault: scratch })?;
            self.lowest(stream, report, rows(values.len()))?
        };
        let Some(index) = found else { return Ok(()) };
        // SAFETY: the caller's; the index is below the length.
        let got = unsafe { self.read_one(stream, values, index)? };
        Err(require::value(argument, Some(index), domain.expected(), got).into())
    }

    /// Returns the index of the first fault in the report of a check.
    ///
    /// # Safety
    /// `report` is this device's memory, at least `rows` long.
    unsafe fn lowest(
        &self,
        stream: &Stream<D>,
        report: Cells<'_, u32>,
        rows: usize,
    ) -> Result<Option<usize>, Error> {
        let mut host = vec![PASSED; rows];
        // SAFETY: the caller's; the stream is waited for.
        unsafe { self.download(stream, report.as_ptr(), &mut host)? };
        Ok(first_fault(&host))
    }

    /// # Safety
    /// `array` is this device's memory and has element `i`.
    unsafe fn read_one<T: Plain + Default>(
        &self,
        stream: &Stream<D>,
        array: In<'_, T>,
        i: usize,
    ) -> Result<T, Error> {
        let mut host = [T::default()];
        // SAFETY: the caller's; the stream is waited for.
        unsafe { self.download(stream, array.as_ptr().add(i), &mut host)? };
        Ok(host[0])
    }
}

fn enough(scratch: &Out<'_, u32>, elements: usize) -> Result<(), Error> {
    let (expected, got) = (rows(elements), scratch.len());
    if got >= expected {
        return Ok(());
    }
    let because = "one per 4096 elements: lockstep_core::check::rows";
    Err(lockstep_core::Error::Length { argument: "scratch", expected, because, got }.into())
}

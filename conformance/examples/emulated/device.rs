//! How a case is sent to the device, and which entry points it uses.

use lockstep_conformance::backend::{AnyKernel, Backend};
use lockstep_gpu::{Buffer, Driver, Geometry, Gpu, Parameters};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// How a case is sent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Each array is its own allocation; outputs hold the case's poison.
    ZeroCopy,
    /// The same, but outputs hold nothing that may be read.
    Unwritten,
    /// All arrays in one allocation: [`Gpu::run`].
    Staged,
}

/// A device, a path to it and a launch geometry.
pub(crate) struct Device<D: Driver> {
    pub(crate) gpu: Gpu<D>,
    pub(crate) path: Path,
    pub(crate) entries: RefCell<BTreeSet<&'static str>>,
}

/// The byte that the emulator fills unwritten memory with.
const NEVER: u8 = 0xa5;

impl<D: Driver> Device<D> {
    /// The path and geometry for this turn; they alternate. `block`: whether several warps share a row, where
    /// an op allows it.
    pub(crate) fn at_turn(gpu: &Gpu<D>, turn: u64, block: bool, emulated: bool) -> Device<D> {
        let of = |teams_per_block, max_blocks, warps, alone| {
            let warps_per_row = if block { Some(warps) } else { alone };
            Geometry { teams_per_block, max_blocks, warps_per_row }
        };
        let geometries = [
            of(None, None, 2, None),
            of(Some(1), None, 8, Some(1)),
            of(Some(3), Some(2), 3, Some(1)),
            of(None, Some(1), 16, Some(1)),
        ];
        let path = match turn % 4 {
            0 | 2 => Path::ZeroCopy,
            // Only the emulator knows what unwritten memory holds.
            1 if emulated => Path::Unwritten,
            _ => Path::Staged,
        };
        let geometry = geometries[(turn / 4 % 4) as usize];
        let gpu = gpu.with_geometry(geometry).with_pointer_checks(turn.is_multiple_of(16));
        Device { gpu, path, entries: RefCell::default() }
    }

    fn zero_copy(&self, host: &Parameters) -> Result<(), lockstep_gpu::Error> {
        let stream = self.gpu.stream()?;
        let mut parameters = host.clone();
        let mut buffers: Vec<Option<Buffer<u8, D>>> = Vec::new();
        for array in parameters.arrays_mut() {
            let mut buffer = None;
            if array.bytes > 0 {
                // SAFETY: a view of the case's memory.
                let bytes = unsafe { std::slice::from_raw_parts(array.address, array.bytes) };
                buffer = Some(match (self.path, array.written) {
                    (Path::Unwritten, true) => self.gpu.alloc(bytes.len())?,
                    _ => self.gpu.upload(&stream, bytes)?,
                });
            }
            array.address = buffer.as_ref().map_or(array.address, Buffer::as_ptr);
            buffers.push(buffer);
        }
        // SAFETY: as long as the views say, and ours until the end.
        unsafe { self.gpu.launch_encoded(&stream, parameters) }?;
        let mut never = false;
        for (array, buffer) in host.arrays().iter().zip(&buffers) {
            if let (true, Some(buffer)) = (array.written, buffer) {
                // SAFETY: an output of the case.
                let out = unsafe { std::slice::from_raw_parts_mut(array.address, array.bytes) };
                let mut bytes = vec![0; out.len()];
                buffer.read(&stream, &mut bytes)?;
                for (out, byte) in out.chunks_mut(4).zip(bytes.chunks(4)) {
                    if self.path != Path::Unwritten || byte.iter().any(|byte| *byte != NEVER) {
                        out.copy_from_slice(byte);
                    } else {
                        never = true;
                    }
                }
            }
        }
        stream.synchronize()?;
        // The kernel did not write these bytes, which then keep their value, or it wrote just these.
        if never {
            let again = Device { gpu: self.gpu.clone(), path: Path::ZeroCopy, entries: RefCell::default() };
            return again.zero_copy(host);
        }
        Ok(())
    }
}

impl<D: Driver> Backend for Device<D> {
    fn name(&self) -> String {
        format!("{}, {:?}, {:?}", self.gpu.info().name, self.path, self.gpu.geometry())
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        let parameters = kernel.parameters();
        if parameters.rows() == 0 {
            return Ok(());
        }
        self.entries.borrow_mut().extend(self.gpu.entry_point(&parameters));
        let done = match self.path {
            Path::Staged => self.gpu.run(kernel),
            Path::ZeroCopy | Path::Unwritten => self.zero_copy(&parameters),
        };
        done.map_err(|error| error.to_string())
    }
}

//! Zero-copy launches: a kernel over device memory, on the caller's stream.

use crate::geometry::Grid;
use crate::gpu::{Current, Entry};
use crate::{Driver, Error, Gpu, Handle, Kind, Owner, Parameters, Stream};
use lockstep_core::op::{DisjointRows, OpInfo};

impl<D: Driver> Gpu<D> {
    /// Launches an op on `stream`; the views of `kernel` hold device addresses.
    ///
    /// Nothing is allocated, copied or waited for: on return the op is queued in the stream, and its
    /// arguments have been copied out of `kernel`. A kernel without rows launches nothing. The first launch
    /// of an op loads its kernel. A stream that is being captured into a graph captures the launch: launch
    /// once before that, or [`load`](Gpu::load) the op.
    ///
    /// # Safety
    /// Until the stream has run the op:
    /// * every array is memory that this device can reach, of the length that its view states, and as long as
    ///   the kernel's documentation requires (no access is bounds-checked on a device);
    /// * inputs are initialised and nobody writes them, and nobody else reads or writes outputs, except in
    ///   work that the streams order before or after the op;
    /// * offsets pass [`Gpu::check_offsets`].
    #[allow(unsafe_code)]
    pub unsafe fn launch<K: DisjointRows>(&self, stream: &Stream<D>, kernel: &K) -> Result<(), Error> {
        // SAFETY: the caller's.
        unsafe { self.launch_encoded(stream, Parameters::of(kernel)) }
    }

    /// [`launch`](Gpu::launch), for a kernel whose type is not known here.
    ///
    /// # Safety
    /// As for `launch`.
    #[allow(unsafe_code)]
    pub unsafe fn launch_encoded(&self, stream: &Stream<D>, mut parameters: Parameters) -> Result<(), Error> {
        if parameters.rows == 0 {
            return Ok(());
        }
        let current = self.context.enter()?;
        stream.must_be_of(&self.context)?;
        let entry = self.entry(&current, &parameters)?;
        if self.verify {
            self.verify(&current, &parameters)?;
        }
        // SAFETY: the caller's.
        unsafe { self.enqueue(&current, entry, &mut parameters, stream.raw_handle()) }
    }

    /// Returns the name of the entry point that a launch of this kernel runs.
    pub fn entry_point(&self, parameters: &Parameters) -> Option<&'static str> {
        let op = OpInfo::named(parameters.op)?;
        let names = if self.shared(parameters).is_some() { op.blocks } else { op.entries };
        names.get(parameters.variant).copied()
    }

    /// Returns how many warps should share a row, if several should.
    fn shared(&self, parameters: &Parameters) -> Option<u32> {
        let largest = parameters.arrays().iter().map(|array| array.bytes).max().unwrap_or(0);
        let warps = self.geometry.warps(parameters.rows, largest, self.context.info.units);
        let has = || OpInfo::named(parameters.op).is_some_and(|op| !op.blocks.is_empty());
        (warps > 1 && self.context.shape.max_teams_per_block > 1 && has()).then_some(warps)
    }

    /// Returns the entry point for a kernel.
    pub(crate) fn entry(&self, current: &Current<'_, D>, parameters: &Parameters) -> Result<Entry, Error> {
        let warps = self.shared(parameters);
        let entry = self.context.entry(current, parameters.op, parameters.variant, warps.is_some())?;
        Ok(Entry { teams: warps.map_or(entry.teams, |warps| warps.min(entry.teams)), ..entry })
    }

    /// Queues an op in a stream.
    ///
    /// # Safety
    /// As for [`launch`](Gpu::launch), for the arrays in `parameters`.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn enqueue(
        &self,
        current: &Current<'_, D>,
        entry: Entry,
        parameters: &mut Parameters,
        stream: Handle,
    ) -> Result<(), Error> {
        let (context, driver, rows) = (&self.context, current.driver(), parameters.rows);
        let shape = context.shape;
        let grid = || {
            Grid::new(rows, context.info.units, shape, self.geometry, |teams| {
                // Smaller blocks use proportionally fewer registers.
                if teams <= shape.teams_per_block {
                    return entry.resident * (shape.teams_per_block / teams);
                }
                // SAFETY: an entry's module is loaded for as long as its context lives.
                let blocks =
                    unsafe { driver.resident_blocks(entry.function, shape.lanes * teams) }.unwrap_or(1);
                blocks * context.info.units
            })
        };
        let (grid, layers) = if entry.block {
            let blocks = Grid::of_blocks(rows, self.geometry, entry.resident);
            parameters.teams = blocks;
            (Grid { blocks, teams_per_block: entry.teams }, 1)
        } else {
            let (grid, layers) = layers(rows, grid(), driver.max_layers());
            parameters.teams = grid.teams();
            (grid, layers)
        };
        let block = (shape.lanes, grid.teams_per_block);
        parameters
            // SAFETY: the pointers are to the parameters of every entry point, in their order and of their
            // types (kernels/src/entry.rs); the rest is the caller's.
            .with_pointers(|params| unsafe {
                driver.launch_layers(entry.function, (grid.blocks, layers), block, stream, params)
            })
            .map_err(|fault| match fault.kind {
                Kind::Sticky => context.fault(fault),
                _ => Error::Launch { entry: entry.name, fault },
            })
    }

    /// Asks the driver who owns the arrays' memory.
    fn verify(&self, current: &Current<'_, D>, parameters: &Parameters) -> Result<(), Error> {
        let op = parameters.op;
        for (argument, array) in parameters.arrays().iter().enumerate() {
            if array.bytes == 0 {
                continue;
            }
            let owner = current.driver().owner(Handle(array.address.cast()));
            let good = match &owner {
                Owner::Device { ordinal, context } => {
                    *ordinal == self.context.info.ordinal
                        && context.is_none_or(|context| context == self.context.handle)
                }
                Owner::Shared => true,
                Owner::Unknown(fault) if fault.kind == Kind::Sticky => {
                    return Err(self.context.fault(fault.clone()));
                }
                Owner::Unknown(_) => false,
            };
            if !good {
                let address = array.address.addr();
                return Err(Error::ForeignPointer { op, argument, address, owner });
            }
        }
        Ok(())
    }
}

/// Returns a grid for `rows` rows and its number of layers, at most `max_layers`. With one layer, teams loop
/// over rows. With several, each row has its own team, and a grid that would exceed `max_layers` becomes
/// wider.
fn layers(rows: usize, grid: Grid, max_layers: u32) -> (Grid, u32) {
    if max_layers == 1 {
        return (grid, 1);
    }
    let least = rows.div_ceil(grid.teams_per_block as usize * max_layers as usize);
    let grid = Grid { blocks: u32::try_from(least).unwrap_or(u32::MAX).max(grid.blocks), ..grid };
    let layers = rows.div_ceil(grid.teams() as usize);
    (grid, u32::try_from(layers).unwrap_or(u32::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_team_where_teams_take_one_row() {
        let grid = |blocks, teams_per_block| Grid { blocks, teams_per_block };
        assert_eq!(layers(1000, grid(7, 8), 1), (grid(7, 8), 1), "teams take row after row");
        for (rows, blocks, wanted) in [
            (1, 1, (1, 1)),
            (100, 100, (100, 1)),
            (101, 100, (100, 2)),
            (7, 1, (1, 7)),
            (65535, 1, (1, 65535)),
            (65536, 1, (2, 32768)),
            (1 << 27, 100, (2049, 65505)),
        ] {
            let (wide, high) = layers(rows, grid(blocks, 1), 65535);
            assert_eq!((wide.blocks, high), wanted, "{rows} rows, {blocks} blocks");
            assert!(wide.teams() as usize * high as usize >= rows && high <= 65535);
        }
    }
}

//! Launch geometry. It changes speed, never bits.

use crate::Shape;
use lockstep_core::op::MAX_WARPS;

/// Teams per block, maximum blocks per grid, and warps per row. `None` leaves the choice to the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Teams per block: 1 to 32 warps on NVIDIA, always 1 on AMD.
    pub teams_per_block: Option<u32>,
    /// Maximum number of blocks in a grid. Teams loop over rows, so fewer blocks than rows is fine.
    pub max_blocks: Option<u32>,
    /// Warps that share a row, 1 to 16, on NVIDIA, in ops that have [entry points for
    /// it](lockstep_core::op::OpInfo::blocks). If more than one, each block processes one row at a time, and
    /// `teams_per_block` has no effect. By default, 16 warps share a row if rows are few and long: at most
    /// two per multiprocessor, or four if they are very long.
    pub warps_per_row: Option<u32>,
}

/// By default several warps share a row if there are at most this many rows per multiprocessor, and the
/// largest array has at least this many bytes per row on average. Measured on an H200:
/// docs/decisions/0034-second-gpu.md.
const FEW: [(usize, usize); 2] = [(2, 8 << 10), (4, 64 << 10)];

impl Geometry {
    /// How many warps should share each of `rows` rows, on a device of `units` multiprocessors; 1 for one row
    /// per warp. `bytes` are those of the largest array.
    pub(crate) fn warps(self, rows: usize, bytes: usize, units: u32) -> u32 {
        let (of_row, units) = (bytes / rows.max(1), units as usize);
        let few = FEW.iter().any(|&(most, long)| rows <= most * units && of_row >= long);
        self.warps_per_row.unwrap_or(if few { MAX_WARPS } else { 1 }).clamp(1, MAX_WARPS)
    }
}

/// More threads than any device holds at once, and fewer than either vendor's limit for a grid.
const THREADS: u32 = 1 << 31;

/// One launch's grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) blocks: u32,
    pub(crate) teams_per_block: u32,
}

impl Grid {
    /// Returns the grid for `rows` rows on `units` multiprocessors. Where rows are few, blocks are small, so
    /// that every multiprocessor has one. `resident` returns how many blocks of a given number of teams the
    /// device holds at once; if it holds none, for lack of registers, blocks are made smaller.
    pub(crate) fn new(
        rows: usize,
        units: u32,
        shape: Shape,
        geometry: Geometry,
        resident: impl Fn(u32) -> u32,
    ) -> Grid {
        let own = u32::try_from(rows / units.max(1) as usize).unwrap_or(u32::MAX);
        let mut teams = geometry
            .teams_per_block
            .unwrap_or(shape.teams_per_block.min(own))
            .clamp(1, shape.max_teams_per_block);
        let mut held = resident(teams);
        while held == 0 && teams > 1 {
            teams /= 2;
            held = resident(teams);
        }
        let limit = geometry.max_blocks.unwrap_or(held).clamp(1, THREADS / (shape.lanes * teams));
        let wanted = rows.div_ceil(teams as usize);
        let blocks = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, limit);
        Grid { blocks, teams_per_block: teams }
    }

    /// Returns the number of blocks for `rows` rows, one row per block, if the device holds `held` blocks.
    pub(crate) fn of_blocks(rows: usize, geometry: Geometry, held: u32) -> u32 {
        let limit = geometry.max_blocks.unwrap_or(held).max(1);
        u32::try_from(rows).unwrap_or(u32::MAX).clamp(1, limit.min(i32::MAX as u32))
    }

    /// Returns the number of teams in the grid.
    pub(crate) fn teams(self) -> u32 {
        self.blocks * self.teams_per_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVIDIA: Shape = Shape { lanes: 32, teams_per_block: 8, max_teams_per_block: 32 };
    const AMD: Shape = Shape { lanes: 64, teams_per_block: 1, max_teams_per_block: 1 };

    fn grid(rows: usize, shape: Shape, teams: Option<u32>, blocks: Option<u32>) -> (u32, u32) {
        let geometry = Geometry { teams_per_block: teams, max_blocks: blocks, ..Geometry::default() };
        let grid = Grid::new(rows, 10, shape, geometry, |_| 100);
        (grid.blocks, grid.teams_per_block)
    }

    #[test]
    fn no_more_blocks_than_rows_need_nor_than_the_device_holds() {
        assert_eq!(grid(80, NVIDIA, None, None), (10, 8));
        assert_eq!(grid(81, NVIDIA, None, None), (11, 8));
        assert_eq!(grid(1 << 40, NVIDIA, None, None), (100, 8));
        assert_eq!(grid(99, AMD, None, None), (99, 1));
    }

    #[test]
    fn few_rows_are_spread_over_all_multiprocessors() {
        assert_eq!(grid(1, NVIDIA, None, None), (1, 1));
        assert_eq!(grid(10, NVIDIA, None, None), (10, 1));
        assert_eq!(grid(19, NVIDIA, None, None), (19, 1));
        assert_eq!(grid(20, NVIDIA, None, None), (10, 2));
        assert_eq!(grid(79, NVIDIA, None, None), (12, 7));
        assert_eq!(grid(1, NVIDIA, Some(8), None), (1, 8));
    }

    #[test]
    fn warps_share_rows_that_are_few_and_long() {
        let warps = |rows, bytes, asked| {
            Geometry { warps_per_row: asked, ..Geometry::default() }.warps(rows, bytes, 10)
        };
        assert_eq!(warps(20, 20 << 13, None), 16);
        assert_eq!(warps(21, 21 << 13, None), 1, "more than two rows for each multiprocessor");
        assert_eq!(warps(20, (20 << 13) - 1, None), 1, "short rows");
        assert_eq!((warps(21, 21 << 16, None), warps(40, 40 << 16, None)), (16, 16), "very long rows");
        assert_eq!((warps(41, 41 << 16, None), warps(40, (40 << 16) - 1, None)), (1, 1));
        assert_eq!(warps(1000, 1, Some(4)), 4);
        let long = 1 << 20;
        assert_eq!((warps(1, long, Some(0)), warps(1, long, Some(99)), warps(0, 0, None)), (1, 16, 1));
        let blocks =
            |rows, max_blocks| Grid::of_blocks(rows, Geometry { max_blocks, ..Geometry::default() }, 20);
        assert_eq!(
            (blocks(8, None), blocks(21, None), blocks(8, Some(3)), blocks(0, Some(0))),
            (8, 20, 3, 1)
        );
        assert_eq!(blocks(usize::MAX, Some(u32::MAX)), i32::MAX as u32);
    }

    #[test]
    fn blocks_that_do_not_fit_are_made_smaller() {
        let geometry = Geometry { teams_per_block: Some(32), max_blocks: Some(5), ..Geometry::default() };
        let grid = Grid::new(1000, 1, NVIDIA, geometry, |teams| 12 / teams);
        assert_eq!((grid.blocks, grid.teams_per_block), (5, 8));
        let hopeless = Grid::new(1000, 1, NVIDIA, Geometry::default(), |_| 0);
        assert_eq!((hopeless.blocks, hopeless.teams_per_block), (1, 1));
    }

    #[test]
    fn what_the_caller_asks_for_is_kept_within_what_entry_points_can_count() {
        assert_eq!(grid(1000, NVIDIA, Some(3), Some(7)), (7, 3));
        assert_eq!(grid(1000, NVIDIA, Some(64), Some(1)), (1, 32));
        assert_eq!(grid(1000, NVIDIA, Some(0), Some(0)), (1, 1));
        assert_eq!(grid(1000, AMD, Some(8), None), (100, 1));
        assert_eq!(grid(usize::MAX, AMD, None, Some(u32::MAX)), (1 << 25, 1));
    }
}

//! Launch geometry. It changes speed, never bits.

use crate::Shape;

/// Teams per block, and the most blocks per grid. `None` leaves the choice to the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Teams per block: 1 to 32 warps on NVIDIA, always 1 on AMD.
    pub teams_per_block: Option<u32>,
    /// The most blocks of a grid. Teams loop over rows, so fewer blocks than rows is fine.
    pub max_blocks: Option<u32>,
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
        let geometry = Geometry { teams_per_block: teams, max_blocks: blocks };
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
    fn blocks_that_do_not_fit_are_made_smaller() {
        let geometry = Geometry { teams_per_block: Some(32), max_blocks: Some(5) };
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

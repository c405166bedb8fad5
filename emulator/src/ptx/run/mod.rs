//! Running an entry point, warp by warp.

pub(crate) mod compute;
pub(crate) mod convert;
pub(crate) mod exchange;
pub(crate) mod float;
pub(crate) mod flow;
pub(crate) mod int;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod registers;

use crate::fault::FaultKind;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// One value per lane.
pub(crate) type Lanes = [u64; LANES];

/// The reason why a warp stops: a fault, and its lane.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) kind: FaultKind,
    pub(crate) lane: Option<u32>,
}

impl Stop {
    #[cold]
    pub(crate) fn of(kind: FaultKind, lane: Option<u32>) -> Box<Stop> {
        Box::new(Stop { kind, lane })
    }
}

/// The result of a step, or why the warp stops.
pub(crate) type Done = Result<(), Box<Stop>>;

/// Returns the lanes of a mask, from the lowest.
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

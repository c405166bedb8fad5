//! Why a wave stops before its end.

use crate::fault::FaultKind;

/// A fault, and the lane whose it is.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) kind: FaultKind,
    pub(super) lane: Option<u32>,
}

/// Boxed: it is rare, and results are returned all the time.
pub(super) type Done<T = ()> = Result<T, Box<Stop>>;

pub(super) trait Stops<T> {
    /// As a fault of a lane.
    fn lane(self, lane: u32) -> Done<T>;
}

impl<T> Stops<T> for Result<T, FaultKind> {
    #[inline(always)]
    fn lane(self, lane: u32) -> Done<T> {
        self.map_err(|kind| Box::new(Stop { kind, lane: Some(lane) }))
    }
}

/// As a fault of the whole wave.
#[cold]
pub(super) fn stop<T>(kind: FaultKind) -> Done<T> {
    Err(Box::new(Stop { kind, lane: None }))
}

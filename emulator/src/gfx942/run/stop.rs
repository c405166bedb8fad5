//! Why a wave stops before its end.

use crate::fault::FaultKind;

/// A fault, and its lane.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) kind: FaultKind,
    pub(super) lane: Option<u32>,
}

/// Boxed, because it is rare and results are returned all the time.
pub(super) type Done<T = ()> = Result<T, Box<Stop>>;

pub(super) trait Stops<T> {
    /// Converts to a fault of a lane.
    fn lane(self, lane: u32) -> Done<T>;
}

impl<T> Stops<T> for Result<T, FaultKind> {
    #[inline(always)]
    fn lane(self, lane: u32) -> Done<T> {
        self.map_err(|kind| Box::new(Stop { kind, lane: Some(lane) }))
    }
}

/// Returns a fault of the whole wave.
#[cold]
pub(super) fn stop<T>(kind: FaultKind) -> Done<T> {
    Err(Box::new(Stop { kind, lane: None }))
}

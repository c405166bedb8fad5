//! APRIL's buffer order: unfinished rollouts are continued before new ones start, oldest start version first.
//!
//! **Formula** (2509.18521, slime, official code; docs/maths/correction.md and docs/maths/schedules.md): sort
//! by (start version, index). Sampling is over-provisioned: it stops when N groups are complete, and the rest
//! keep their tokens, log-probabilities and versions and come first in the next step.
//!
//! **Shapes**: `start_version`, `order` `[n]`, in buffer order.
//!
//! **Special cases**: equal versions keep buffer order.

use lockstep_core::Error;
use lockstep_core::require;

/// Fills `order` with the indices of rollouts, the first to continue first. Errors: lengths that disagree.
pub fn order(start_version: &[u32], order: &mut [u32]) -> Result<(), Error> {
    require::length("order", start_version.len(), "one per rollout", order.len())?;
    for (i, id) in order.iter_mut().enumerate() {
        *id = i as u32;
    }
    order.sort_unstable_by_key(|id| (start_version[*id as usize], *id));
    Ok(())
}

/// Number of new rollouts to start when `in_flight` are wanted and `buffered` are continued.
pub fn fresh(in_flight: u32, buffered: u32) -> u32 {
    in_flight.saturating_sub(buffered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_version_first_and_then_the_order_of_the_buffer() {
        let mut o = [0; 6];
        order(&[7, 5, 7, 5, 6, 5], &mut o).unwrap();
        assert_eq!(o, [1, 3, 5, 4, 0, 2]);
        assert_eq!((fresh(128, 40), fresh(16, 40)), (88, 0));
        assert!(matches!(order(&[1], &mut []), Err(Error::Length { argument: "order", .. })));
    }
}

//! Staleness limits: how far sampling may run ahead of training.
//!
//! **Formula** (framework code; docs/maths/schedules.md):
//!
//! ```text
//! AReaL: capacity = min(max_concurrent − running, (η + version + 1) B − (accepted + running));
//!        may be negative: wait.
//!        At most (η + 1) B requests wait in the queue. A rejected rollout no longer counts.
//!        After a restart from a checkpoint accepted = version · B.
//! verl, VCPO (fully asynchronous):
//!        rollouts = ⌊(1 + threshold) · sync_steps · required_batches · mini_batch⌋ − stale_in_queue
//! ROLL:  a sample is admissible when start_step >= current_step − ⌈α⌉, α = 0 being synchronous;
//!        ⌈B α⌉ requests run ahead of the current batch.
//! ```
//!
//! Echo-style asynchronous push-pull (our reading) is ROLL's test with the bound as α.
//!
//! **Special cases**: counts saturate at the ends of `i64`.

use crate::numbers;
use lockstep_core::Error;
use lockstep_core::require;

/// AReaL's staleness controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areal {
    /// Largest number of concurrent requests.
    pub max_concurrent: u32,
    /// Largest staleness η of a rollout, in versions.
    pub max_staleness: u32,
    /// Batch size B: rollouts of a training batch.
    pub batch: u32,
}

impl Areal {
    /// Number of requests that may be started now; if negative, the excess.
    pub fn capacity(&self, version: u64, running: u64, accepted: u64) -> i64 {
        let whole = |x: u128| i128::try_from(x).unwrap_or(i128::MAX);
        let by_machine = i128::from(self.max_concurrent) - i128::from(running);
        let window = (u128::from(self.max_staleness) + u128::from(version) + 1) * u128::from(self.batch);
        let by_staleness = whole(window) - (i128::from(accepted) + i128::from(running));
        let capacity = by_machine.min(by_staleness).clamp(i64::MIN.into(), i64::MAX.into());
        capacity as i64
    }

    /// Number of requests that may wait in the queue, (η + 1) B.
    pub fn pending(&self) -> u64 {
        (u64::from(self.max_staleness) + 1) * u64::from(self.batch)
    }

    /// Value of `accepted` after a restart at `version`.
    pub fn recovered(&self, version: u64) -> u64 {
        version.saturating_mul(self.batch.into())
    }
}

/// Number of rollouts between two synchronisations of verl's fully asynchronous recipe; if negative, none.
///
/// Errors: a threshold that is below 0 or not finite.
pub fn verl_rollouts(
    threshold: f64,
    sync_steps: u32,
    required_batches: u32,
    mini_batch: u32,
    stale_in_queue: u64,
) -> Result<i64, Error> {
    let inside = threshold >= 0.0 && threshold.is_finite();
    require::scalar("threshold", inside, "a finite number, at least 0", threshold)?;
    // In verl's order: the product is rounded, and then cut off.
    let batch = f64::from(required_batches) * f64::from(mini_batch);
    let all = batch * (threshold + 1.0) * f64::from(sync_steps);
    // Float-to-integer conversion saturates and rounds towards zero.
    Ok((all as i64).saturating_sub_unsigned(stale_in_queue))
}

/// ROLL's test: whether a sample is admissible. Errors: α below 0 or not finite.
pub fn roll_admits(start_step: u64, current_step: u64, ratio: f64) -> Result<bool, Error> {
    Ok(start_step >= current_step.saturating_sub(roll_bound(ratio)?.into()))
}

/// Number of requests, ⌈B α⌉, that run ahead of the current batch in ROLL. Errors: α below 0 or not finite.
pub fn roll_ahead(batch: u32, ratio: f64) -> Result<u32, Error> {
    roll_bound(ratio)?;
    Ok(numbers::ceil(f64::from(batch) * ratio))
}

fn roll_bound(ratio: f64) -> Result<u32, Error> {
    require::not_negative("ratio", ratio)?;
    Ok(numbers::ceil(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREAL: Areal = Areal { max_concurrent: 64, max_staleness: 4, batch: 32 };

    #[test]
    fn worked_8_7_areal_capacity() {
        assert_eq!(AREAL.capacity(7, 10, 300), 54);
    }

    #[test]
    fn areal_waits_when_it_is_too_far_ahead() {
        assert_eq!(AREAL.capacity(0, 0, 160), 0);
        assert_eq!(AREAL.capacity(0, 10, 160), -10);
        assert_eq!(AREAL.capacity(7, 70, 0), -6);
        assert_eq!(AREAL.pending(), 160);
        // Right after a restart the full window is available: (η + 1) B.
        assert_eq!(Areal { max_concurrent: 1000, ..AREAL }.capacity(9, 0, AREAL.recovered(9)), 160);
        assert_eq!(AREAL.capacity(u64::MAX, u64::MAX, 0), i64::MIN);
        assert_eq!(AREAL.capacity(u64::MAX, 0, u64::MAX), 64);
    }

    #[test]
    fn verl_counts_what_is_stale_already() {
        assert_eq!(verl_rollouts(0.5, 4, 1, 32, 0), Ok(192));
        assert_eq!(verl_rollouts(0.5, 4, 1, 32, 200), Ok(-8));
        assert_eq!(verl_rollouts(0.0, 1, 2, 3, 0), Ok(6));
        assert_eq!(verl_rollouts(0.1, 1, 1, 5, 0), Ok(5), "5.5 is 5");
        // int(100 * (0.15 + 1) * 3) of Python.
        assert_eq!(verl_rollouts(0.15, 3, 1, 100, 0), Ok(344));
        assert!(matches!(
            verl_rollouts(f64::NAN, 1, 1, 1, 0),
            Err(Error::Value { argument: "threshold", .. })
        ));
    }

    #[test]
    fn roll_admits_up_to_its_bound() {
        assert_eq!(roll_admits(10, 10, 0.0), Ok(true));
        assert_eq!(roll_admits(9, 10, 0.0), Ok(false));
        assert_eq!(roll_admits(8, 10, 1.5), Ok(true));
        assert_eq!(roll_admits(7, 10, 1.5), Ok(false));
        assert_eq!(roll_admits(0, 3, 5.0), Ok(true), "no wrap at the start");
        assert_eq!((roll_ahead(32, 0.0), roll_ahead(32, 1.5), roll_ahead(3, 0.5)), (Ok(0), Ok(48), Ok(2)));
        assert!(matches!(roll_admits(0, 0, -1.0), Err(Error::Value { argument: "ratio", .. })));
    }
}

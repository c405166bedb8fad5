//! RoRecomp-style batches (our reading): short right and long wrong answers first, the rest later.
//!
//! **Formula** (2509.25958, abstract and reviews; docs/maths/schedules.md), per prompt, after advantages were
//! computed over the whole group:
//!
//! ```text
//! priority: the ⌊α c + 1/2⌋ shortest of the c right and the ⌊α w + 1/2⌋ longest of the w wrong answers
//!           (at least one of each kind that occurs), α 0.8 to 0.5
//! the rest goes to a first-in-first-out buffer; once it holds one batch,
//! a compensation batch of the oldest is used for one extra step,
//! with probability p₀ (1 − step/steps), 0 from `steps` on
//! ```
//!
//! **Shapes**: `length`, `correct`, `priority` `[G]`, `order` scratch `[G]`. The buffer is a [`Fifo`].
//!
//! **Special cases**: equal lengths are ordered by index. If all answers are right, only the short ones have
//! priority; if all are wrong, only the long ones.
//!
//! **Variants**: rounding and the linear decay are ours.

use super::fifo::Fifo;
use super::order;
use crate::numbers;
use crate::random::{Purpose, Stream};
use lockstep_core::Error;
use lockstep_core::require;

/// Marks the priority batch of one group; all slices are `[G]`. Errors: lengths that disagree; α outside
/// 0..=1.
pub fn split(
    length: &[u32],
    correct: &[bool],
    alpha: f64,
    order: &mut [u32],
    priority: &mut [bool],
) -> Result<(), Error> {
    require::length("correct", length.len(), "one per rollout", correct.len())?;
    require::length("order", length.len(), "one per rollout", order.len())?;
    require::length("priority", length.len(), "one per rollout", priority.len())?;
    require::unit("alpha", alpha)?;
    let right = correct.iter().filter(|c| **c).count();
    let most = |n: usize| (numbers::nearest(alpha * n as f64) as usize).max(n.min(1));
    let (mut rights, mut wrongs) = (most(right), most(length.len() - right));
    // The shortest right and the longest wrong answers have the highest keys of their kind.
    order::sort(order, |i| f64::from(length[i as usize]) * if correct[i as usize] { -1.0 } else { 1.0 });
    for id in order {
        let i = *id as usize;
        let left = if correct[i] { &mut rights } else { &mut wrongs };
        priority[i] = *left > 0;
        *left = left.saturating_sub(1);
    }
    Ok(())
}

/// Whether to take a compensation batch at `step`. Errors: p₀ outside 0..=1; a `batch` of 0.
pub fn compensates(
    buffer: &Fifo,
    batch: u32,
    probability: f64,
    steps: u32,
    seed: u64,
    step: u32,
) -> Result<bool, Error> {
    require::unit("probability", probability)?;
    require::scalar("batch", batch > 0, "at least 1", 0.0)?;
    let left = if step < steps { 1.0 - f64::from(step) / f64::from(steps) } else { 0.0 };
    let u = Stream::new(seed, Purpose::COMPENSATE, step, 0).uniform();
    Ok(buffer.len() >= batch && u < probability * left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_of<const N: usize>(length: [u32; N], correct: [bool; N], alpha: f64) -> [bool; N] {
        let (mut order, mut priority) = ([0; N], [false; N]);
        split(&length, &correct, alpha, &mut order, &mut priority).unwrap();
        priority
    }

    #[test]
    fn shortest_right_and_longest_wrong_go_first() {
        let length = [10, 40, 20, 30, 5, 80];
        let correct = [true, true, true, true, false, false];
        assert_eq!(split_of(length, correct, 0.5), [true, false, true, false, false, true]);
        assert_eq!(split_of(length, correct, 1.0), [true; 6]);
        assert_eq!(
            split_of(length, correct, 0.0),
            [true, false, false, false, false, true],
            "one of each kind"
        );
    }

    #[test]
    fn one_sided_groups_and_ties() {
        assert_eq!(split_of([3, 1, 2, 9], [true; 4], 0.5), [false, true, true, false]);
        assert_eq!(split_of([3, 1, 2, 9], [false; 4], 0.5), [true, false, false, true]);
        assert_eq!(split_of([7; 4], [true; 4], 0.5), [true, true, false, false]);
        assert_eq!(split_of([], [], 0.5), []);
    }

    #[test]
    fn compensation_needs_a_batch_and_fades() {
        let mut buffer = Fifo::new(8).unwrap();
        (0..3).for_each(|_| _ = buffer.push());
        assert_eq!(compensates(&buffer, 4, 1.0, 100, 0, 0), Ok(false));
        buffer.push();
        assert_eq!(compensates(&buffer, 4, 1.0, 100, 0, 0), Ok(true));
        assert_eq!(compensates(&buffer, 4, 1.0, 100, 0, 100), Ok(false));
        let early = (0..1000).filter(|s| compensates(&buffer, 4, 1.0, 2000, 5, *s).unwrap()).count();
        // The mean of 1 − step/2000 over the first half is 0.75; five standard deviations are at most 79.
        assert!(early.abs_diff(750) < 79, "{early}");
        assert!(matches!(
            compensates(&buffer, 4, 1.5, 9, 0, 0),
            Err(Error::Value { argument: "probability", .. })
        ));
    }
}

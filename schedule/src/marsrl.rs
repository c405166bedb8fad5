//! MarsRL: selects the outputs of one role that become inputs of the next.
//!
//! **Formula** (2511.11373; docs/maths/advantages.md): every later role takes 2 outputs of the preceding role
//! and answers each 8 times, one group per input. Adaptive sampling prefers informative outputs: for the
//! verifier, solutions with reward 0; for the corrector, verdicts with reward 1, and only those that report
//! an error.
//!
//! **Special cases**: with fewer outputs than wanted, all of them are taken. If none is eligible the chain
//! ends (the verifier reports no error).
//!
//! **Variants**: drawn uniformly among the preferred outputs, then among the others (our choice: the paper
//! only says "prefers").

use crate::random::{Purpose, Stream};
use lockstep_core::Error;
use lockstep_core::require;

/// Inputs that each role takes from the preceding one.
pub const INPUTS: usize = 2;
/// Answers to each input: the group size.
pub const GROUP: usize = 8;

/// Writes the positions of the selected outputs to `chosen`, those whose reward is `preferred` first, and
/// returns their number.
///
/// `eligible` `[n]` excludes outputs (for example solutions without a reported error); `pool` is scratch
/// `[n]`; `element` distinguishes the choices of one step.
///
/// Errors: lengths that disagree; a reward that is not finite (with its index).
///
/// ```
/// use lockstep_schedule::marsrl::inputs;
/// let (mut pool, mut chosen) = ([0; 4], [9; 2]);
/// // The verifier gets the two wrong solutions.
/// assert_eq!(inputs(&[1.0, 0.0, 1.0, 0.0], None, 0.0, (1234, 0, 0), &mut pool, &mut chosen)?, 2);
/// chosen.sort();
/// assert_eq!(chosen, [1, 3]);
/// # Ok::<(), lockstep_core::Error>(())
/// ```
pub fn inputs(
    rewards: &[f32],
    eligible: Option<&[bool]>,
    preferred: f32,
    (seed, step, element): (u64, u32, u32),
    pool: &mut [u32],
    chosen: &mut [u32],
) -> Result<usize, Error> {
    require::room("pool", rewards.len(), pool.len())?;
    let flags = eligible.map_or(rewards.len(), |eligible| eligible.len());
    require::length("eligible", rewards.len(), "one per output", flags)?;
    require::each("rewards", rewards, "a finite number", f32::is_finite)?;
    // Preferred outputs come before the others.
    let (mut first, mut n) = (0, 0);
    for i in (0..rewards.len()).filter(|i| eligible.is_none_or(|eligible| eligible[*i])) {
        pool[n] = i as u32;
        if rewards[i] == preferred {
            pool.swap(first, n);
            first += 1;
        }
        n += 1;
    }
    let take = chosen.len().min(n);
    let mut stream = Stream::new(seed, Purpose::MARSRL, step, element);
    for at in 0..take {
        let end = if at < first { first } else { n };
        pool.swap(at, at + stream.below((end - at) as u64) as usize);
        chosen[at] = pool[at];
    }
    Ok(take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_first_and_evenly() {
        let rewards = [1.0, 0.0, 0.0, 1.0, 0.0];
        let (mut seen, mut rest) = ([0_u32; 5], [0_u32; 5]);
        for step in 0..3000 {
            let (mut pool, mut chosen) = ([0; 5], [9; 4]);
            assert_eq!(inputs(&rewards, None, 0.0, (7, step, 0), &mut pool, &mut chosen), Ok(4));
            chosen[..3].iter().for_each(|i| seen[*i as usize] += 1);
            rest[chosen[3] as usize] += 1;
            let (mut pool, mut one) = ([0; 5], [9; 1]);
            inputs(&rewards, None, 1.0, (7, step, 1), &mut pool, &mut one).unwrap();
            assert!(one[0] == 0 || one[0] == 3);
        }
        assert_eq!(seen, [0, 3000, 3000, 0, 3000]);
        // 1500 each; five standard deviations are 137.
        assert!(rest[0].abs_diff(1500) < 137 && rest[0] + rest[3] == 3000, "{rest:?}");
    }

    #[test]
    fn only_what_is_eligible() {
        let (mut pool, mut chosen) = ([0; 3], [9; 3]);
        let run = |eligible: &[bool], pool: &mut [u32], chosen: &mut [u32]| {
            inputs(&[1.0, 1.0, 0.0], Some(eligible), 1.0, (1, 0, 0), pool, chosen)
        };
        assert_eq!(run(&[false, true, true], &mut pool, &mut chosen), Ok(2));
        assert_eq!(chosen, [1, 2, 9]);
        assert_eq!(run(&[false; 3], &mut pool, &mut chosen), Ok(0));
        assert!(matches!(
            run(&[true], &mut pool, &mut chosen),
            Err(Error::Length { argument: "eligible", .. })
        ));
        assert!(matches!(
            run(&[true; 3], &mut pool[..1], &mut chosen),
            Err(Error::Length { argument: "pool", .. })
        ));
        let nan = inputs(&[f32::NAN], None, 1.0, (1, 0, 0), &mut pool, &mut chosen).unwrap_err();
        assert!(matches!(nan, Error::Value { argument: "rewards", index: Some(0), .. }));
    }
}

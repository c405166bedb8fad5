//! Swarm SAPO: a node's training set from its own groups and those of other nodes.
//!
//! **Formula** (2509.08721, official code; docs/maths/schedules.md): I local and J external groups, with I +
//! J fixed (4/4). External groups are drawn uniformly, without replacement, from those with an advantage,
//! that is, whose rewards (recomputed locally) are not all equal. Updates use the receiver's policy as if the
//! rollouts were its own: no importance ratio.
//!
//! **Special cases**: with fewer than J such groups all of them are taken; the caller fills up with local
//! ones.
//!
//! **Variants**: genrl's maths example takes the groups with the largest total score: [`best`]. Its cut at
//! zero is found on the unsorted list and applied to the sorted one, which we consider a bug: here groups
//! without a positive total are left out.

use super::dynamic_sampling;
use crate::random::{Purpose, Stream};
use lockstep_core::Error;
use lockstep_core::require;

/// Draws external groups from those given by offsets `[G+1]` into `rewards`. Writes their ids to `chosen` and
/// returns their number; `pool` is scratch `[G]`.
///
/// Errors: offsets that do not start at 0, decrease (with the index) or do not end at the number of rewards;
/// an empty group; a reward that is not finite (with its index); too little scratch.
pub fn draw(
    cu_groups: &[u32],
    rewards: &[f32],
    seed: u64,
    step: u32,
    pool: &mut [u32],
    chosen: &mut [u32],
) -> Result<usize, Error> {
    let groups = dynamic_sampling::groups(cu_groups, "rewards", rewards)?;
    require::room("pool", groups, pool.len())?;
    let mut n = 0;
    for g in 0..groups {
        let members = &rewards[cu_groups[g] as usize..cu_groups[g + 1] as usize];
        if members.iter().any(|r| *r != members[0]) {
            pool[n] = g as u32;
            n += 1;
        }
    }
    // A partial shuffle: the first `take` entries of the pool are a uniform draw in order.
    let take = chosen.len().min(n);
    let mut stream = Stream::new(seed, Purpose::SWARM, step, 0);
    for at in 0..take {
        pool.swap(at, at + stream.below((n - at) as u64) as usize);
        chosen[at] = pool[at];
    }
    Ok(take)
}

/// Takes the groups with the largest total rewards, of those with a total above 0: largest first, ties by
/// index.
///
/// Arguments, return value and errors as for [`draw`]. Nothing is random, and groups of equal rewards are not
/// left out (genrl).
pub fn best(
    cu_groups: &[u32],
    rewards: &[f32],
    pool: &mut [u32],
    chosen: &mut [u32],
) -> Result<usize, Error> {
    let groups = dynamic_sampling::groups(cu_groups, "rewards", rewards)?;
    require::room("pool", groups, pool.len())?;
    let total = |group: u32| -> f64 {
        let g = group as usize;
        rewards[cu_groups[g] as usize..cu_groups[g + 1] as usize].iter().map(|r| f64::from(*r)).sum()
    };
    let mut n = 0;
    for g in (0..groups as u32).filter(|g| total(*g) > 0.0) {
        pool[n] = g;
        n += 1;
    }
    let take = chosen.len().min(n);
    for at in 0..take {
        let mut greatest = at;
        for other in at + 1..n {
            let (a, b) = (total(pool[other]), total(pool[greatest]));
            if a > b || (a == b && pool[other] < pool[greatest]) {
                greatest = other;
            }
        }
        pool.swap(at, greatest);
        chosen[at] = pool[at];
    }
    Ok(take)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CU: [u32; 5] = [0, 2, 4, 6, 8];
    const REWARDS: [f32; 8] = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.25, 0.5];

    #[test]
    fn groups_without_advantage_are_never_drawn_and_the_others_evenly() {
        let mut seen = [0_u32; 4];
        for step in 0..3000 {
            let (mut pool, mut chosen) = ([0; 4], [9; 2]);
            assert_eq!(draw(&CU, &REWARDS, 4, step, &mut pool, &mut chosen), Ok(2));
            assert!(chosen[0] != chosen[1]);
            chosen.iter().for_each(|g| seen[*g as usize] += 1);
        }
        // 2000 each of three; five standard deviations are 129.
        assert!(seen[1] == 0 && [0, 2, 3].iter().all(|g| seen[*g].abs_diff(2000) < 129), "{seen:?}");
    }

    #[test]
    fn the_best_come_first_and_a_total_of_zero_is_cut_after_sorting() {
        // Totals 1, 2, 0, 1, −0.5: the 0 comes before a group that is taken, which a cut on the unsorted list
        // would lose.
        let (cu, rewards) = ([0, 2, 4, 6, 8, 9], [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.25, 0.75, -0.5]);
        let (mut pool, mut chosen) = ([0; 5], [9; 5]);
        assert_eq!(best(&cu, &rewards, &mut pool, &mut chosen), Ok(3));
        assert_eq!(chosen, [1, 0, 3, 9, 9]);
        assert_eq!(best(&cu, &rewards, &mut pool, &mut chosen[..1]), Ok(1));
        assert_eq!(chosen[0], 1);
        assert_eq!(best(&[0], &[], &mut [], &mut chosen), Ok(0));
        let e = best(&CU, &REWARDS, &mut pool[..3], &mut chosen).unwrap_err();
        assert!(
            matches!(e, Error::Length { argument: "pool", .. } | Error::Value { argument: "pool", .. }),
            "{e}"
        );
    }

    #[test]
    fn too_few_and_wrong_arguments() {
        let (mut pool, mut chosen) = ([0; 4], [9; 4]);
        assert_eq!(draw(&CU, &REWARDS, 4, 0, &mut pool, &mut chosen), Ok(3));
        assert_eq!(chosen[3], 9);
        let mut bad = REWARDS;
        bad[5] = f32::NAN;
        let e = draw(&CU, &bad, 4, 0, &mut pool, &mut chosen).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "rewards", index: Some(5), .. }));
        let e = draw(&[0, 2, 2, 8], &REWARDS, 4, 0, &mut pool, &mut chosen).unwrap_err();
        assert!(matches!(e, Error::EmptyRow { argument: "cu_groups", index: 1, .. }));
    }
}

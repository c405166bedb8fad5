//! Swarm SAPO: a node's training set from its own groups and those of others.
//!
//! **Formula** (2509.08721, official code; maths.md §7.9): I local and J external groups, I + J fixed (4/4); external ones are drawn uniformly, without
//! replacement, from those with an advantage, that is whose rewards (recomputed locally) are not all alike. Updates use the receiver's policy as if the
//! rollouts were its own: no importance ratio.
//!
//! **Special cases**: fewer than J such groups: what there is; the caller makes up the number with local ones.
//!
//! **Variants**: genrl's maths example ranks by total score and cuts at zero, on the list before it is sorted (taken for a bug). Not offered.

use super::{dynamic_sampling, require};
use crate::Error;
use crate::random::{Purpose, Stream};

/// Draws from the groups given by offsets `[G+1]` into `rewards`; `chosen` receives ids, `pool` is scratch `[G]`. Returns how many there are.
///
/// Errors: offsets that do not start at 0, decrease (index) or end elsewhere than at the rewards; an empty group; a reward that is not finite (index);
/// scratch.
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

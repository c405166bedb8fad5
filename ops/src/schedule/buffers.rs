//! Selection from buffers and from other nodes: APRIL, rollout replay, Swarm SAPO, MARSRL's inputs, DAPO's
//! filter.

use crate::Error;
use lockstep_schedule::fifo::Fifo;
use lockstep_schedule::{april, dynamic_sampling as filter, marsrl, replay, swarm};

/// Computes the order in which unfinished rollouts are continued: oldest start version first; formula:
/// [`lockstep_schedule::april`].
///
/// ```
/// assert_eq!(lockstep_ops::schedule::april_order(&[7, 5, 7, 5])?, [1, 3, 0, 2]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn april_order(start_version: &[u32]) -> Result<Vec<u32>, Error> {
    let mut order = vec![0; start_version.len()];
    april::order(start_version, &mut order)?;
    Ok(order)
}

/// Draws the slots of `count` stored groups to replay; formula: [`lockstep_schedule::replay`], which
/// also computes the shares of a batch.
///
/// Errors: a `count` above the number of stored groups.
///
/// ```
/// use lockstep_ops::schedule::{fifo::Fifo, replay, replay_slots};
/// let mut buffer = Fifo::new(512)?;
/// (0..40).for_each(|_| _ = buffer.push());
/// let shares = replay::shares(64, 0.5, buffer.len())?;
/// assert_eq!((shares.fresh, shares.replayed), (32, 32));
/// assert_eq!(replay_slots(&buffer, shares.replayed, 1234, 0)?.len(), 32);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn replay_slots(buffer: &Fifo, count: u32, seed: u64, step: u32) -> Result<Vec<u32>, Error> {
    replay::check(buffer, count as usize)?;
    let mut slots = vec![0; count as usize];
    replay::draw(buffer, seed, step, &mut slots)?;
    Ok(slots)
}

/// Draws up to `count` external groups uniformly from those with a non-zero advantage; formula:
/// [`lockstep_schedule::swarm`].
///
/// Errors: invalid offsets (index); a reward that is not finite (index).
///
/// ```
/// let groups = lockstep_ops::schedule::swarm_groups(&[0, 2, 4], &[1.0, 1.0, 0.0, 1.0], 4, 1234, 0)?;
/// assert_eq!(groups, [1]); // the rewards of group 0 are alike
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn swarm_groups(
    cu_groups: &[u32],
    rewards: &[f32],
    count: usize,
    seed: u64,
    step: u32,
) -> Result<Vec<u32>, Error> {
    let groups = cu_groups.len().saturating_sub(1);
    let (mut pool, mut chosen) = (vec![0; groups], vec![0; count.min(groups)]);
    let n = swarm::draw(cu_groups, rewards, seed, step, &mut pool, &mut chosen)?;
    chosen.truncate(n);
    Ok(chosen)
}

/// Selects up to `count` external groups with the largest total rewards above 0, largest first; formula:
/// [`lockstep_schedule::swarm`].
///
/// Errors: those of [`swarm_groups`].
///
/// ```
/// let groups = lockstep_ops::schedule::swarm_best(&[0, 2, 4, 6], &[0.0, 1.0, 0.0, 0.0, 1.0, 1.0], 4)?;
/// assert_eq!(groups, [2, 0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn swarm_best(cu_groups: &[u32], rewards: &[f32], count: usize) -> Result<Vec<u32>, Error> {
    let groups = cu_groups.len().saturating_sub(1);
    let (mut pool, mut chosen) = (vec![0; groups], vec![0; count.min(groups)]);
    let n = swarm::best(cu_groups, rewards, &mut pool, &mut chosen)?;
    chosen.truncate(n);
    Ok(chosen)
}

/// Selects the positions of up to `count` outputs of a role that become inputs of the next role, those of
/// reward `preferred` first; formula: [`lockstep_schedule::marsrl`]. `at` is the seed, the step, and
/// the number of this choice within the step.
///
/// Errors: lengths that disagree; a reward that is not finite (index).
///
/// ```
/// // The corrector gets verdicts that are right, of solutions whose error was reported.
/// use lockstep_ops::schedule::marsrl_inputs;
/// let reported = Some(&[false, true, true][..]);
/// let chosen = marsrl_inputs(&[1.0, 0.0, 1.0], reported, 1.0, 2, (1234, 0, 0))?;
/// assert_eq!(chosen, [2, 1]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn marsrl_inputs(
    rewards: &[f32],
    eligible: Option<&[bool]>,
    preferred: f32,
    count: usize,
    at: (u64, u32, u32),
) -> Result<Vec<u32>, Error> {
    let (mut pool, mut chosen) = (vec![0; rewards.len()], vec![0; count.min(rewards.len())]);
    let n = marsrl::inputs(rewards, eligible, preferred, at, &mut pool, &mut chosen)?;
    chosen.truncate(n);
    Ok(chosen)
}

/// Selects the first `wanted` groups whose metric varies, in order of arrival; formula:
/// [`lockstep_schedule::dynamic_sampling`].
///
/// Errors: invalid offsets (index); a value that is not finite (index).
///
/// ```
/// let kept = lockstep_ops::schedule::dynamic_sampling(&[0, 2, 4, 6], &[1.0, 1.0, 0.0, 1.0, 1.0, 0.0], 8)?;
/// assert_eq!(kept, [1, 2]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn dynamic_sampling(cu_groups: &[u32], metric: &[f32], wanted: usize) -> Result<Vec<u32>, Error> {
    let mut kept = vec![false; cu_groups.len().saturating_sub(1)];
    filter::filter(cu_groups, metric, &mut kept)?;
    Ok((0..).zip(kept).filter(|(_, kept)| *kept).map(|(group, _)| group).take(wanted).collect())
}

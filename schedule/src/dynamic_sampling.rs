//! DAPO's dynamic sampling: generates until enough groups have rewards that differ.
//!
//! **Formula** (verl's recipe, framework code; docs/maths/rewards.md): a group is kept if the standard
//! deviation of its metric is above 0 or it has one member. Generation continues until `wanted` groups are
//! kept; then the batch is cut to `wanted` groups in order of arrival.
//!
//! The test is max == min, because a binary32 standard deviation of equal values is not always 0.
//!
//! **Shapes**: `metric` `[S]` (final reward, reward or accuracy), offsets of groups `[G+1]`, `kept` `[G]`.
//!
//! **Special cases**: a metric that is not finite, or a group without members, is an error.
//!
//! **Variants**: where the recipe raises an error after `max_batches` generations (10; 0 for no limit), the
//! outcome here is [`Outcome::Partial`].

use lockstep_core::Error;
use lockstep_core::require;

/// The next action after a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Generate another batch.
    Continue,
    /// Train on the first `wanted` kept groups.
    Full,
    /// The limit is reached: the caller decides whether to train on the groups kept so far.
    Partial,
}

/// Number of groups, after checking the offsets and the values named `name`.
pub(super) fn groups(cu_groups: &[u32], name: &'static str, metric: &[f32]) -> Result<usize, Error> {
    let argument = "cu_groups";
    let (Some(first), Some(last)) = (cu_groups.first(), cu_groups.last()) else {
        return Err(Error::Empty { argument, expected: "at least the offset 0" });
    };
    if *first != 0 {
        return Err(Error::FirstOffset { argument, got: *first });
    }
    for (i, pair) in cu_groups.windows(2).enumerate() {
        if pair[1] < pair[0] {
            return Err(Error::Decreasing { argument, index: i + 1, before: pair[0], got: pair[1] });
        }
        if pair[1] == pair[0] {
            return Err(Error::EmptyRow { argument, index: i, row: "group" });
        }
    }
    if *last as usize != metric.len() {
        let (index, expected) = (cu_groups.len() - 1, metric.len());
        return Err(Error::LastOffset { argument, index, expected, of: "sequences", got: *last });
    }
    require::each(name, metric, "a finite number", f32::is_finite)?;
    Ok(cu_groups.len() - 1)
}

/// Marks the groups to keep, and returns their number.
///
/// Errors: invalid offsets; an empty group; lengths that disagree; a metric that is not finite (with its
/// index).
pub fn filter(cu_groups: &[u32], metric: &[f32], kept: &mut [bool]) -> Result<usize, Error> {
    let groups = groups(cu_groups, "metric", metric)?;
    require::length("kept", groups, "one per group", kept.len())?;
    for (g, kept) in kept.iter_mut().enumerate() {
        let members = &metric[cu_groups[g] as usize..cu_groups[g + 1] as usize];
        *kept = members.len() == 1 || members.iter().any(|x| *x != members[0]);
    }
    Ok(kept.iter().filter(|k| **k).count())
}

/// Decides the next action, given `kept` groups after `batches` generations.
pub fn outcome(kept: u32, wanted: u32, batches: u32, max_batches: u32) -> Outcome {
    if kept >= wanted {
        Outcome::Full
    } else if max_batches > 0 && batches >= max_batches {
        Outcome::Partial
    } else {
        Outcome::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_a_spread_or_one_member_are_kept() {
        let mut kept = [false; 4];
        let metric = [1.0, 1.0, 1.0, 1.000_000_1, 0.0, 0.1, 0.1, 0.1];
        assert_eq!(filter(&[0, 2, 4, 5, 8], &metric, &mut kept), Ok(2));
        assert_eq!(kept, [false, true, true, false]);
        assert_eq!(filter(&[0], &[], &mut []), Ok(0));
        // -0 and +0 are the same reward.
        assert_eq!(filter(&[0, 2], &[0.0, -0.0], &mut kept[..1]), Ok(0));
    }

    #[test]
    fn generation_stops_when_full_or_at_the_limit() {
        assert_eq!(outcome(7, 8, 3, 10), Outcome::Continue);
        assert_eq!(outcome(8, 8, 3, 10), Outcome::Full);
        assert_eq!(outcome(9, 8, 10, 10), Outcome::Full);
        assert_eq!(outcome(7, 8, 10, 10), Outcome::Partial);
        assert_eq!(outcome(7, 8, 1000, 0), Outcome::Continue);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let kept = &mut [false; 2];
        assert!(matches!(filter(&[], &[], kept), Err(Error::Empty { argument: "cu_groups", .. })));
        assert!(matches!(filter(&[1, 2], &[0.0; 2], kept), Err(Error::FirstOffset { got: 1, .. })));
        assert!(matches!(filter(&[0, 2, 1], &[0.0; 2], kept), Err(Error::Decreasing { index: 2, .. })));
        assert!(matches!(filter(&[0, 1, 3], &[0.0; 2], kept), Err(Error::LastOffset { index: 2, .. })));
        let e = filter(&[0, 1, 2], &[0.0, f32::INFINITY], kept).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "metric", index: Some(1), .. }));
    }
}

//! Prefix trees of a group's responses: TEMPO's per-token credit without a critic, and Monte-Carlo values of
//! tree rollouts.
//!
//! Three ops and no tree in memory, only arrays with one entry per sequence:
//!
//! 1. [`tree_sort`] merges runs of responses into lexicographic order; ⌈log₂ n⌉ launches, for groups of up to
//!    n responses, give `order` and `lcp`, the length of the prefix that a response shares with its
//!    predecessor.
//! 2. [`tree_nodes`] reads the branching nodes off these arrays (a maximal interval whose `lcp` is at least h
//!    is the node of depth h): value, parent, number of responses.
//! 3. [`tree_advantage`] walks from each response's leaf to the root and writes one constant per stretch
//!    between branches.
//!
//! An explicit tree (parent pointers) works the same way with steps instead of tokens: its leaves in
//! depth-first order are `order`, and the number of steps that two neighbours share is `lcp`.

pub mod tree_advantage;
pub mod tree_nodes;
pub mod tree_sort;

pub use tree_advantage::TreeAdvantage;
pub use tree_nodes::TreeNodes;
pub use tree_sort::TreeSort;

use crate::ragged::Offsets;

/// No node: the parent of the root, or the leaf of a response that shares no branch.
pub const NONE: u32 = u32::MAX;

/// Returns the number of launches of [`TreeSort`] for groups of at most `longest` sequences: ⌈log₂ longest⌉.
pub const fn rounds(longest: u32) -> u32 {
    if longest <= 1 { 0 } else { u32::BITS - (longest - 1).leading_zeros() }
}

/// Returns the number of `u32` entries that sorting needs in addition to its results `order` and `lcp` `[S]`:
/// the second buffer of both, and the rows of a launch.
pub const fn scratch(sequences: usize) -> usize {
    4 * sequences + 1
}

/// Writes the rows of a launch of [`TreeSort`] that merges runs of `width` sequences within each group, to
/// `cu_merges` `[S+1]` and `middle` `[S]`, and returns their number. O(S), without allocation.
///
/// # Panics
/// If an array is shorter than stated.
pub fn merges(cu_groups: Offsets<'_>, width: u32, cu_merges: &mut [u32], middle: &mut [u32]) -> usize {
    let mut rows = 0;
    cu_merges[0] = 0;
    for group in 0..cu_groups.rows() {
        let span = cu_groups.span(group);
        let (mut start, end) = (span.start as u32, span.end as u32);
        while start < end {
            let split = start.saturating_add(width).min(end);
            let stop = split.saturating_add(width).min(end);
            middle[rows] = split;
            rows += 1;
            cu_merges[rows] = stop;
            start = stop;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_enough_to_merge_everything() {
        for (longest, expected) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (512, 9), (513, 10)] {
            assert_eq!(rounds(longest), expected, "{longest}");
            assert!(longest <= 1 || 1u64 << rounds(longest) >= u64::from(longest));
        }
    }

    #[test]
    fn merges_stay_inside_their_groups() {
        let (mut offsets, mut middle) = ([9; 9], [9; 8]);
        let groups = Offsets::new("cu_groups", &[0, 5, 5, 8], 8, "sequences").unwrap();
        assert_eq!(merges(groups, 2, &mut offsets, &mut middle), 3);
        assert_eq!((&offsets[..4], &middle[..3]), (&[0, 4, 5, 8][..], &[2, 5, 7][..]));
        assert_eq!(merges(groups, 4, &mut offsets, &mut middle), 2);
        assert_eq!((&offsets[..3], &middle[..2]), (&[0, 5, 8][..], &[4, 8][..]));
    }
}

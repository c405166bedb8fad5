//! Branching nodes of sorted responses as sets of members, docs/maths/trees.md.

use super::tree_sort::common;

/// The node at a position of the sorted responses.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Mean outcome; NaN if no member has one.
    pub value: f64,
    /// Mean magnitude.
    pub magnitude: f64,
    /// Number of counted members.
    pub counted: usize,
    /// The position that represents the node; `None` at the first position.
    pub node: Option<usize>,
    /// The parent node.
    pub parent: Option<usize>,
}

/// A depth and the positions that agree up to it.
type Members = (u32, Vec<usize>);

/// Weighted mean of the rewards that are not NaN, its magnitude, and their number.
fn mean(members: &[usize], rewards: &[f64], weights: &[f64]) -> (f64, f64, usize) {
    let counted: Vec<usize> =
        members.iter().copied().filter(|k| !rewards[*k].is_nan() && weights[*k] != 0.0).collect();
    // Backwards, so that the order differs from core's.
    let weight: f64 = counted.iter().rev().map(|k| weights[*k]).sum();
    let sum =
        |f: &dyn Fn(f64) -> f64| counted.iter().rev().map(|k| weights[*k] * f(rewards[*k])).sum::<f64>();
    (sum(&|r| r) / weight, sum(&f64::abs) / weight, counted.len())
}

/// The nodes of one group by position, and the last node on each position's path. A NaN reward does not
/// count.
pub fn group(
    sorted: &[Vec<u32>],
    rewards: &[f64],
    weights: &[f64],
    pad: Option<u32>,
) -> (Vec<Node>, Vec<Option<usize>>) {
    let n = sorted.len();
    let shared = |k: usize| common(&sorted[k - 1], &sorted[k], pad);
    let members = |k: usize| -> Vec<usize> {
        (0..n).filter(|j| *j == k || common(&sorted[*j], &sorted[k], pad) >= shared(k)).collect()
    };
    // Depth and members of each position's node.
    let all: Vec<Members> = (1..n).map(|k| (shared(k), members(k))).collect();
    let number = |found: &Members| all.iter().position(|node| node == found).map(|k| k + 1);
    let deepest = |holds: &dyn Fn(&Members) -> bool| {
        all.iter().filter(|node| holds(node)).max_by_key(|node| node.0).and_then(number)
    };
    let nodes = (0..n).map(|k| {
        let everybody: Vec<usize> = (0..n).collect();
        let own = if k == 0 { &everybody } else { &all[k - 1].1 };
        let (value, magnitude, counted) = mean(own, rewards, weights);
        let above = |node: &Members| {
            k > 0 && node.0 < all[k - 1].0 && all[k - 1].1.iter().all(|member| node.1.contains(member))
        };
        let node = if k == 0 { None } else { number(&all[k - 1]) };
        Node { value, magnitude, counted, node, parent: deepest(&above) }
    });
    (nodes.collect(), (0..n).map(|k| deepest(&|node| node.1.contains(&k))).collect())
}

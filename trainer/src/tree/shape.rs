//! A tree as nodes with children and their labels, for drawing.

use lockstep::ops::tree::{Node, Outcomes, PrefixTree};
use lockstep::{Batch, Error};

/// Maximum number of token ids in a label.
const IDS: usize = 12;

/// A group's tree; node 0 is the root.
pub(super) struct Shape {
    /// All nodes, parents before children.
    pub(super) nodes: Vec<Node>,
    /// The first token ids of each node.
    ids: Vec<Vec<u32>>,
    /// The reward of each response.
    pub(super) rewards: Vec<f32>,
    /// Smallest and largest reward; equal if there is none.
    pub(super) range: (f32, f32),
}

impl Shape {
    /// Builds the tree of a one-group batch.
    pub(super) fn new(
        tree: &PrefixTree,
        batch: &Batch<'_>,
        tokens: &[u32],
        rewards: &[f32],
    ) -> Result<Self, Error> {
        let nodes = tree.nodes(batch, &Outcomes::new(rewards), 0)?;
        let ids = |node: &Node| -> Vec<u32> {
            let start = batch.cu_seqlens().span(node.sequence).start;
            tokens[start + node.from..start + node.to].iter().take(IDS).copied().collect()
        };
        let ids = nodes.iter().map(ids).collect();
        let counted = || rewards.iter().copied().filter(|r| !r.is_nan());
        let range = (counted().fold(f32::INFINITY, f32::min), counted().fold(f32::NEG_INFINITY, f32::max));
        let range = if range.0 <= range.1 { range } else { (0.0, 0.0) };
        Ok(Self { nodes, ids, rewards: rewards.to_vec(), range })
    }

    /// The value of a node, as a label.
    pub(super) fn value_text(&self, number: usize) -> String {
        let value = self.nodes[number].value;
        if value.is_nan() { "V –".to_owned() } else { format!("V {value:.4}") }
    }

    /// The first token ids of a node, as a label.
    pub(super) fn ids_text(&self, number: usize) -> String {
        let (node, ids) = (&self.nodes[number], &self.ids[number]);
        let more = if node.to - node.from > ids.len() { " …" } else { "" };
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        format!("[{}{more}]", ids.join(" "))
    }

    /// The responses that end at a node, with their rewards.
    pub(super) fn ends_text(&self, number: usize) -> String {
        let end = |&sequence: &usize| match self.rewards[sequence] {
            reward if reward.is_nan() => format!("#{sequence} no reward"),
            reward => format!("#{sequence} reward {reward}"),
        };
        self.nodes[number].ends.iter().map(end).collect::<Vec<_>>().join(", ")
    }
}

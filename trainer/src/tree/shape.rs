//! A tree as nodes with children, for drawing.

use lockstep::ops::tree::{self, Outcomes, PrefixTree};
use lockstep::{Batch, Error};

/// A run of tokens shared by the same responses.
pub(super) struct Node {
    /// First token.
    pub(super) from: usize,
    /// One past the last.
    pub(super) to: usize,
    /// Mean outcome of the responses through this node; NaN if none has one.
    pub(super) value: f64,
    /// Number of responses through this node.
    pub(super) passing: usize,
    /// The first token ids.
    pub(super) ids: Vec<u32>,
    /// Responses that end here: index and reward.
    pub(super) ends: Vec<(usize, f32)>,
    /// Child nodes, in order.
    pub(super) children: Vec<usize>,
}

/// Maximum number of token ids kept per node.
pub(super) const IDS: usize = 12;

/// A group's tree; node 0 is the root.
pub(super) struct Shape {
    /// All nodes, parents before children.
    pub(super) nodes: Vec<Node>,
    /// Responses of the group.
    pub(super) responses: usize,
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
        let labelled = |node: tree::Node| {
            let start = batch.cu_seqlens().span(node.sequence).start;
            Node {
                from: node.from,
                to: node.to,
                value: node.value,
                passing: node.passing,
                ids: tokens[start + node.from..start + node.to].iter().take(IDS).copied().collect(),
                ends: node.ends.into_iter().map(|sequence| (sequence, rewards[sequence])).collect(),
                children: node.children,
            }
        };
        let nodes = tree.nodes(batch, &Outcomes::new(rewards), 0)?.into_iter().map(labelled).collect();
        let counted = || rewards.iter().copied().filter(|r| !r.is_nan());
        let range = (counted().fold(f32::INFINITY, f32::min), counted().fold(f32::NEG_INFINITY, f32::max));
        let range = if range.0 <= range.1 { range } else { (0.0, 0.0) };
        Ok(Self { nodes, responses: rewards.len(), range })
    }
}

impl Node {
    /// Its value, as a label.
    pub(super) fn value_text(&self) -> String {
        if self.value.is_nan() { "V –".to_owned() } else { format!("V {:.4}", self.value) }
    }

    /// Its first token ids, as a label.
    pub(super) fn ids_text(&self) -> String {
        let ids: Vec<String> = self.ids.iter().map(u32::to_string).collect();
        let more = if self.to - self.from > self.ids.len() { " …" } else { "" };
        format!("[{}{more}]", ids.join(" "))
    }

    /// The responses that end here, with their rewards.
    pub(super) fn ends_text(&self) -> String {
        let end = |(sequence, reward): &(usize, f32)| match reward.is_nan() {
            true => format!("#{sequence} no reward"),
            false => format!("#{sequence} reward {reward}"),
        };
        self.ends.iter().map(end).collect::<Vec<_>>().join(", ")
    }
}

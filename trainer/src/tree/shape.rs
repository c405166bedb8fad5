//! A tree as nodes with children, for drawing.

use lockstep::ops::tree::PrefixTree;

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
    pub(super) fn new(tree: &PrefixTree, cu_seqlens: &[u32], tokens: &[u32], rewards: &[f32]) -> Self {
        let responses = rewards.len();
        let mut nodes: Vec<Node> = Vec::new();
        // Positions, first token, parent. No recursion: a tree may be as deep as the group is large.
        let mut waiting = vec![(0, responses, 0, None)];
        while let Some((start, end, from, parent)) = waiting.pop() {
            let sequence = tree.order[start] as usize;
            let tokens = &tokens[cu_seqlens[sequence] as usize..cu_seqlens[sequence + 1] as usize];
            let to = (start + 1..end).map(|at| tree.lcp[at] as usize).min().unwrap_or(tokens.len());
            let splits: Vec<usize> = (start + 1..end).filter(|at| tree.lcp[*at] as usize == to).collect();
            let value = match splits.first() {
                Some(branch) => tree.value[*branch],
                None => rewards[sequence].into(),
            };
            let number = nodes.len();
            let mut ends = Vec::new();
            let bounds: Vec<usize> = [start].into_iter().chain(splits).chain([end]).collect();
            // Pushed in reverse, so that the first is on top.
            for pair in bounds.windows(2).rev() {
                let sequence = tree.order[pair[0]] as usize;
                let length = (cu_seqlens[sequence + 1] - cu_seqlens[sequence]) as usize;
                if pair[1] - pair[0] == 1 && length == to {
                    ends.push((sequence, rewards[sequence]));
                } else {
                    waiting.push((pair[0], pair[1], to, Some(number)));
                }
            }
            ends.reverse();
            let ids = tokens[from..to].iter().take(IDS).copied().collect();
            nodes.push(Node { from, to, value, passing: end - start, ids, ends, children: Vec::new() });
            if let Some(parent) = parent {
                let parent: usize = parent;
                nodes[parent].children.push(number);
            }
        }
        let counted = || rewards.iter().copied().filter(|r| !r.is_nan());
        let range = (counted().fold(f32::INFINITY, f32::min), counted().fold(f32::NEG_INFINITY, f32::max));
        Self { nodes, responses, range: if range.0 <= range.1 { range } else { (0.0, 0.0) } }
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

//! A group's prefix tree as nodes with children, for drawing.

use super::{Outcomes, PrefixTree};
use crate::{Batch, Error};
use lockstep_core::require;

/// A run of tokens shared by the same responses.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Node {
    /// First token.
    pub from: usize,
    /// One past the last.
    pub to: usize,
    /// Mean outcome of the responses through this node; NaN if none has one.
    pub value: f64,
    /// Number of responses through this node.
    pub passing: usize,
    /// One of these responses.
    pub sequence: usize,
    /// Responses that end here.
    pub ends: Vec<usize>,
    /// Child nodes, in order.
    pub children: Vec<usize>,
}

impl PrefixTree {
    /// Lists the nodes of a group's tree, parents before children and depth first; node 0 is the root.
    /// `outcomes` are those of the tree.
    ///
    /// Errors: a batch or outcomes that are not the tree's; a group that does not exist.
    ///
    /// ```
    /// use lockstep_ops::ops::tree::{Outcomes, prefix_tree};
    /// use lockstep_ops::{Batch, Device};
    /// // ab, ac
    /// let (batch, outcomes) = (Batch::new(&[0, 2, 4], &[0, 2], None)?, Outcomes::new(&[1.0, 0.0]));
    /// let tokens: &[u32] = &[1, 2, 1, 3];
    /// let tree = prefix_tree(&Device::cpu(), &batch, tokens.into(), &outcomes, None)?;
    /// let nodes = tree.nodes(&batch, &outcomes, 0)?;
    /// assert_eq!((nodes[0].to, nodes[0].value, &nodes[0].children[..]), (1, 0.5, &[1, 2][..]));
    /// # Ok::<(), lockstep_ops::Error>(())
    /// ```
    pub fn nodes(
        &self,
        batch: &Batch<'_>,
        outcomes: &Outcomes<'_>,
        group: usize,
    ) -> Result<Vec<Node>, Error> {
        outcomes.check(batch)?;
        batch.check_sequences("order of the tree", self.order.len())?;
        require::scalar("group", group < batch.groups(), "a group of the batch", group as f64)?;
        let span = batch.cu_groups().span(group);
        let mut nodes: Vec<Node> = Vec::new();
        // Positions, first token, parent. No recursion: a tree may be as deep as the group is large.
        let mut waiting = vec![(span.start, span.end, 0, None)];
        waiting.retain(|(start, end, ..)| start < end);
        while let Some((start, end, from, parent)) = waiting.pop() {
            let sequence = self.order[start] as usize;
            let length = |sequence: usize| batch.cu_seqlens().span(sequence).len();
            let inner = || start + 1..end;
            let to = inner().map(|at| self.lcp[at] as usize).min().unwrap_or(length(sequence));
            let splits: Vec<usize> = inner().filter(|at| self.lcp[*at] as usize == to).collect();
            let value = match splits.first() {
                Some(branch) => self.value[*branch],
                None => outcomes.of(sequence),
            };
            let number = nodes.len();
            let mut ends = Vec::new();
            let bounds: Vec<usize> = [start].into_iter().chain(splits).chain([end]).collect();
            // Pushed in reverse, so that the first is on top.
            for pair in bounds.windows(2).rev() {
                let sequence = self.order[pair[0]] as usize;
                if pair[1] - pair[0] == 1 && length(sequence) == to {
                    ends.push(sequence);
                } else {
                    waiting.push((pair[0], pair[1], to, Some(number)));
                }
            }
            ends.reverse();
            nodes.push(Node { from, to, value, passing: end - start, sequence, ends, children: Vec::new() });
            if let Some(parent) = parent {
                let parent: usize = parent;
                nodes[parent].children.push(number);
            }
        }
        Ok(nodes)
    }
}

impl Outcomes<'_> {
    /// The outcome of a sequence; NaN if it has none.
    fn of(&self, sequence: usize) -> f64 {
        let counted = self.valid.is_none_or(|valid| valid[sequence] != 0)
            && self.weights.is_none_or(|weights| weights[sequence] != 0.0);
        if counted { self.rewards[sequence].into() } else { f64::NAN }
    }
}

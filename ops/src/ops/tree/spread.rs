//! Maps values of steps to the tokens of packed responses.

use super::explicit::check_parents;
use super::{Tokens, value};
use crate::{Batch, Error};
use lockstep_core::require;
use lockstep_core::tree::NONE;

/// The tokens of each step: each node of an explicit tree is a segment of the responses that pass through it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segments<'a> {
    /// Parent of each node, `[M]`: [`ExplicitTree::parent`](super::ExplicitTree).
    pub parent: &'a [u32],
    /// First token of the node, counted from the start of the response, `[M]`: where the parent ends.
    pub start: &'a [u32],
    /// One past its last token, `[M]`.
    pub end: &'a [u32],
    /// The node that each response ends with, `[S]`.
    pub leaf: &'a [u32],
}

/// Maps one value per node, `step` `[M]`, to the tokens, `[N]`: every token of a step has the step's
/// advantage, plus the `advantage` `[S]` of its response if given (TreePS-RAG's trajectory term). Masked
/// tokens have 0.
///
/// Errors: lengths that disagree; a parent after its child or a cycle (node); segments that overlap, leave a
/// gap or run backwards (node); a leaf that is not a node or does not end where its response does (response);
/// if `tokens` is given, an id that differs between two responses within a segment that they share (token).
pub fn spread(
    batch: &Batch<'_>,
    segments: &Segments<'_>,
    tokens: Option<Tokens<'_>>,
    step: &[f32],
    advantage: Option<&[f32]>,
) -> Result<Vec<f32>, Error> {
    segments.check(batch)?;
    require::length("step", segments.parent.len(), "one per node of `parent`", step.len())?;
    if let Some(advantage) = advantage {
        batch.check_sequences("advantage", advantage.len())?;
    }
    if let Some(tokens) = tokens {
        batch.check_tokens("tokens", tokens.len())?;
        segments.check_shared(batch, tokens)?;
    }
    let mut out = vec![0.0; batch.tokens()];
    for (sequence, leaf) in segments.leaf.iter().enumerate() {
        let own = advantage.map_or(0.0, |advantage| advantage[sequence]);
        segments.each(batch, sequence, *leaf, |node, tokens| {
            for i in tokens.filter(|i| batch.loss_mask().at(*i)) {
                out[i] = step[node] + own;
            }
        });
    }
    Ok(out)
}

impl Segments<'_> {
    fn check(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let nodes = self.parent.len();
        require::length("start", nodes, "one per node of `parent`", self.start.len())?;
        require::length("end", nodes, "one per node of `parent`", self.end.len())?;
        batch.check_sequences("leaf", self.leaf.len())?;
        check_parents(self.parent)?;
        for node in 0..nodes {
            let (start, end) = (self.start[node], self.end[node]);
            if end < start {
                return Err(value("end", node, "at least the segment's start", end.into()));
            }
            let before = if self.parent[node] == NONE { 0 } else { self.end[self.parent[node] as usize] };
            if start != before {
                let expected = if start < before {
                    "the end of the parent's segment: the two overlap"
                } else {
                    "the end of the parent's segment (0 for a root): there is a gap"
                };
                return Err(value("start", node, expected, start.into()));
            }
        }
        for (sequence, &leaf) in self.leaf.iter().enumerate() {
            if leaf as usize >= nodes {
                return Err(value("leaf", sequence, "a node", leaf.into()));
            }
            if self.end[leaf as usize] as usize != batch.cu_seqlens().span(sequence).len() {
                let expected = "a node whose segment ends where the response does";
                return Err(value("leaf", sequence, expected, leaf.into()));
            }
        }
        Ok(())
    }

    /// Compares every response with the first one that passes through the same node.
    fn check_shared(&self, batch: &Batch<'_>, tokens: Tokens<'_>) -> Result<(), Error> {
        let ids = tokens.view();
        let mut first = vec![NONE; self.parent.len()];
        let mut differs: Option<usize> = None;
        for (sequence, leaf) in self.leaf.iter().enumerate() {
            self.each(batch, sequence, *leaf, |node, range| {
                if first[node] == NONE {
                    first[node] = range.start as u32;
                    return;
                }
                let shift = range.start - first[node] as usize;
                let bad = range.clone().find(|i| ids.at(*i) != ids.at(*i - shift));
                // Report the lowest index.
                differs = differs.into_iter().chain(bad).min();
            });
        }
        match differs {
            None => Ok(()),
            Some(index) => Err(require::value(
                "tokens",
                Some(index),
                "the token id of the first response that shares this segment",
                ids.at(index),
            )
            .into()),
        }
    }

    /// Calls `f` with each node of a response, from its leaf up, and the node's tokens in the batch.
    fn each(
        &self,
        batch: &Batch<'_>,
        sequence: usize,
        leaf: u32,
        mut f: impl FnMut(usize, std::ops::Range<usize>),
    ) {
        let (begin, mut node) = (batch.cu_seqlens().span(sequence).start, leaf);
        while node != NONE {
            let at = node as usize;
            f(at, begin + self.start[at] as usize..begin + self.end[at] as usize);
            node = self.parent[at];
        }
    }
}

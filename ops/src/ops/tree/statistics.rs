//! Statistics of how much a group's responses share.

use super::PrefixTree;
use crate::Batch;
use lockstep_core::tree::NONE;

/// Statistics of the trees of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TreeStatistics {
    /// Number of nodes where responses diverge (or one ends on the path of another), over all groups.
    pub branches: usize,
    /// Number of tokens N.
    pub tokens: u64,
    /// Tokens that another response of the group shares, at the same position of the same path.
    pub shared_tokens: u64,
    /// Tokens of the trees, where shared tokens count once.
    pub tree_tokens: u64,
    /// Branches by depth: entry 0 counts those before the first token, entry k those at depths 2^(k−1) to 2^k
    /// − 1.
    pub depths: Vec<usize>,
}

impl TreeStatistics {
    /// `shared_tokens` / `tokens`; 0 without tokens.
    pub fn shared_fraction(&self) -> f64 {
        if self.tokens == 0 { 0.0 } else { self.shared_tokens as f64 / self.tokens as f64 }
    }
}

impl PrefixTree {
    /// Computes statistics over all groups. They depend only on the structure, so sequences without an
    /// outcome count too.
    pub fn statistics(&self, batch: &Batch<'_>) -> TreeStatistics {
        let mut found = TreeStatistics { tokens: batch.tokens() as u64, ..TreeStatistics::default() };
        found.tree_tokens = found.tokens;
        for group in 0..batch.groups() {
            let span = batch.cu_groups().span(group);
            for at in span.start..span.end {
                let length = batch.cu_seqlens().span(self.order[at] as usize).len() as u64;
                // The first of a group shares nothing with the one before it.
                let before = if at > span.start { u64::from(self.lcp[at]) } else { 0 };
                let after = if at + 1 < span.end { u64::from(self.lcp[at + 1]) } else { 0 };
                found.shared_tokens += before.max(after).min(length);
                found.tree_tokens -= before.min(length);
                if self.node[at] != NONE && self.node[at] as usize == at {
                    found.branches += 1;
                    let bin = (u32::BITS - self.lcp[at].leading_zeros()) as usize;
                    found.depths.resize(found.depths.len().max(bin + 1), 0);
                    found.depths[bin] += 1;
                }
            }
        }
        found
    }
}

//! Counts of a batch, docs/maths/aggregation.md: M, N₊ and the padded width.

/// The counts of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live tokens.
    pub tokens: usize,
    /// Sequences with a live token.
    pub nonempty: usize,
    /// Tokens of the longest sequence, masked ones included.
    pub longest: usize,
}

/// Counts over sequences, each given as the liveness of its tokens.
pub fn of(sequences: &[Vec<bool>]) -> Counts {
    Counts {
        tokens: sequences.concat().into_iter().filter(|live| *live).count(),
        nonempty: sequences.iter().filter(|sequence| sequence.contains(&true)).count(),
        longest: sequences.iter().map(Vec::len).max().unwrap_or(0),
    }
}

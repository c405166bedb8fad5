//! Counts of a batch, docs/maths/aggregation.md: M, N₊ and the padded width.

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live tokens.
    pub tokens: usize,
    /// Sequences with a live token.
    pub nonempty: usize,
    /// Tokens of the longest sequence, masked ones included.
    pub longest: usize,
}

/// Of sequences, each by which of its tokens are live.
pub fn of(sequences: &[Vec<bool>]) -> Counts {
    Counts {
        tokens: sequences.concat().into_iter().filter(|live| *live).count(),
        nonempty: sequences.iter().filter(|sequence| sequence.contains(&true)).count(),
        longest: sequences.iter().map(Vec::len).max().unwrap_or(0),
    }
}

//! Sorts responses lexicographically by their tokens and computes the prefixes that neighbours share, one
//! merge of two sorted runs at a time.
//!
//! **Formula** (docs/maths/trees.md; merging with known common prefixes, Ng and Kakehi 2008): the heads a, b
//! of two runs carry the length of the prefix that each shares with the last emitted response.
//!
//! ```text
//! shared(a) > shared(b):  a is next         (b left the common path earlier)
//! equal, h:               compare from token h on; the loser's shared becomes their common prefix
//! ```
//!
//! A token is read again only beyond a prefix that has not been counted yet, so all launches together compare
//! at most Σ `lcp` tokens plus two per step: linear in tokens, n log n in responses, for any input.
//!
//! **Shapes**: `tokens` `[N]`, `cu_seqlens` `[S+1]`; `order`, `lcp` `[S]` come from the preceding launch
//! (initially the identity and 0). A row merges positions `cu_merges[r]..middle[r]` and
//! `middle[r]..cu_merges[r+1]` into `sorted`, `sorted_lcp` `[S]`, which must be other memory.
//! [`merges`](super::merges) computes the rows.
//!
//! **Special cases**: equal responses keep their order. A response that ends sorts before those that
//! continue: its end is a separate edge. The first position of a row has `lcp` 0.
//!
//! **Variants** (docs/maths/disagreements.md row 13): with `pad`, an ended response continues with that token
//! forever, as in TEMPO's released code, which compares padded ids; `lcp` may then exceed a response's
//! length, and is 2³² − 1 if padded responses are equal.

use crate::Error;
use crate::op::{Kernel, check_indices};
use crate::ragged::{In, Offsets, Out, Span};
use crate::team::Team;

crate::kernel! {
    /// The op `tree_sort`: merges sorted runs of responses in pairs.
    pub struct TreeSort<'a> {
        /// Offsets of merges, in positions, `[M+1]`.
        pub cu_merges: Offsets<'a>,
        /// Start of the second run of each merge, `[M]`.
        pub middle: In<'a, u32> [merges],
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Token ids, `[N]`.
        pub tokens: In<'a, u32> [tokens],
        /// The token with which an ended response continues; if absent, nothing equals its end.
        pub pad: Option<u32>,
        /// Sequence at each position, `[S]`.
        pub order: In<'a, u32> [positions],
        /// Number of tokens shared with the preceding response, `[S]`.
        pub lcp: In<'a, u32> [positions],
        /// Sequence at each position after the merge, `[S]`.
        pub sorted: Out<'a, u32> [positions],
        /// Number of tokens shared with the preceding response after the merge, `[S]`.
        pub sorted_lcp: Out<'a, u32> [positions],
    }
    unsafe "tree_sort", over cu_merges (positions, merges), work |k, row| k.cost(row),
        let tokens = |k| k.cu_seqlens.sizes().0,
        check |k| k.check_indices();
}

/// Cost of a merge step in compared tokens (measured: 7 to 10 ns a step, 0.26 ns a token).
const STEP: usize = 32;

impl TreeSort<'_> {
    fn check_indices(&self) -> Result<(), Error> {
        let (positions, sequences) = (self.cu_merges.sizes().0, self.cu_seqlens.rows());
        check_indices("order", self.order, Span::new(0, positions), Span::new(0, sequences), "a sequence")?;
        for merge in 0..self.cu_merges.rows() {
            let (own, expected) = (self.cu_merges.span(merge), "a position within its merge");
            let inside = Span::new(own.start, own.end + 1);
            check_indices("middle", self.middle, Span::new(merge, merge + 1), inside, expected)?;
        }
        Ok(())
    }

    /// Two sequences may have all their tokens in common. Longer runs already know what their neighbours
    /// share, and their steps mostly end at the first token, so a step is charged as a few tokens.
    fn cost(&self, row: usize) -> usize {
        let span = self.cu_merges.span(row);
        if span.len() != 2 {
            return STEP * span.len();
        }
        self.cu_seqlens.span(span.end - 1).end - self.cu_seqlens.span(span.start).start
    }

    /// Returns the length of the common prefix of sequences `a` and `b`, which agree before token `from`, and
    /// whether `b` comes first.
    #[inline(always)]
    fn compare<T: Team>(&self, team: &T, a: usize, b: usize, from: u32) -> (u32, bool) {
        let (tokens, from) = (self.tokens, from as usize);
        let (a, b) = (self.cu_seqlens.span(a), self.cu_seqlens.span(b));
        let both = least(a.len(), b.len());
        let mut shared = from;
        if from < both {
            shared = from + team.common_prefix(tokens, a.start + from, b.start + from, both - from);
        }
        if shared < both {
            return (shared as u32, tokens.at(b.start + shared) < tokens.at(a.start + shared));
        }
        let (longer, a_is_longer) = if a.len() > b.len() { (a, true) } else { (b, false) };
        let Some(pad) = self.pad else { return (both as u32, a_is_longer) };
        let rest = Span::new(longer.start + shared, longer.end);
        let differs = team.first(rest, move |i| tokens.at(i) != pad);
        if shared >= longer.len() || differs == longer.end {
            return (u32::MAX, false);
        }
        // The shorter sequence has `pad` there.
        ((differs - longer.start) as u32, (tokens.at(differs) < pad) != a_is_longer)
    }
}

#[inline(always)]
fn least(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

impl Kernel for TreeSort<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_merges.span(row);
        let middle = self.middle.at(row) as usize;
        let (mut left, mut right) = (span.start, middle);
        let (mut left_shares, mut right_shares) = (0, 0);
        let mut position = span.start;
        while position < span.end {
            let (has_left, has_right) = (left < middle, right < span.end);
            let mut takes_right = !has_left | (has_right & (right_shares > left_shares));
            let shares = if takes_right { right_shares } else { left_shares };
            if has_left & has_right & (left_shares == right_shares) {
                let (a, b) = (self.order.at(left) as usize, self.order.at(right) as usize);
                let (common, right_first) = self.compare(team, a, b, shares);
                takes_right = right_first;
                // The emitted response keeps `shares`; the other now shares `common` with it.
                left_shares = common;
                right_shares = common;
            }
            let taken = if takes_right { right } else { left };
            if team.leads() {
                self.sorted.put(position, self.order.at(taken));
                self.sorted_lcp.put(position, shares);
            }
            if takes_right {
                right += 1;
                right_shares = if right < span.end { self.lcp.at(right) } else { 0 };
            } else {
                left += 1;
                left_shares = if left < middle { self.lcp.at(left) } else { 0 };
            }
            position += 1;
        }
    }
}

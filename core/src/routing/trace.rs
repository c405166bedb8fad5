//! The trace: which experts ran for each token and layer.
//!
//! **Shape**: `[tokens, layers, top_k]`, packed like the tokens; `u8` for up to 256 experts, `u16` above. 48
//! layers × top-8 take 384 bytes per token. A range of layers or tokens is a view with the same strides, not
//! a copy.
//!
//! **Absent records**: a record (the top_k entries of a token and layer) that consists only of 0xFF (`u8`) or
//! 0xFFFF (`u16`) is absent, and the live router chooses there. With top_k ≥ 2 no router produces such a
//! record, because its experts would be equal; with top_k = 1, expert 255 of a `u8` trace and 65535 of a
//! `u16` trace cannot be recorded, and [`validate`](Trace::validate) rejects that many experts.

use crate::ragged::{In, Span};
use core::fmt;

/// A view of a trace: a range of tokens and a range of layers.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    narrow: Option<In<'a, u8>>,
    wide: Option<In<'a, u16>>,
    /// Layers stored per token in memory.
    stored: usize,
    first: usize,
    layers: usize,
    top_k: usize,
}

crate::launch_args!(Trace<'_> { narrow, wide, stored, first, layers, top_k });

impl<'a> Trace<'a> {
    /// Views `[tokens, layers, top_k]` bytes.
    pub fn narrow(ids: In<'a, u8>, layers: usize, top_k: usize) -> Self {
        Trace { narrow: Some(ids), wide: None, stored: layers, first: 0, layers, top_k }
    }

    /// Views `[tokens, layers, top_k]` 16-bit numbers.
    pub fn wide(ids: In<'a, u16>, layers: usize, top_k: usize) -> Self {
        Trace { narrow: None, wide: Some(ids), stored: layers, first: 0, layers, top_k }
    }

    /// The layers `first..first + layers` of this view; `None` if they exceed it.
    pub fn slice(self, first: usize, layers: usize) -> Option<Self> {
        let inside = first.checked_add(layers).is_some_and(|end| end <= self.layers);
        inside.then_some(Trace { first: self.first + first, layers, ..self })
    }

    /// The tokens `first..first + tokens` of this view, such as those of a data- or sequence-parallel rank;
    /// `None` if they exceed it.
    pub fn part(self, first: usize, tokens: usize) -> Option<Self> {
        let end = first.checked_add(tokens).filter(|end| *end <= self.tokens())?;
        let per_token = self.stored * self.top_k;
        let span = Span::new(first * per_token, end * per_token);
        Some(Trace {
            narrow: self.narrow.map(|ids| ids.part(span)),
            wide: self.wide.map(|ids| ids.part(span)),
            ..self
        })
    }

    /// Number of layers of the view.
    #[inline(always)]
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Number of entries of a record, K.
    #[inline(always)]
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Number of entries in memory.
    fn len(&self) -> usize {
        self.narrow.map_or(0, In::len) + self.wide.map_or(0, In::len)
    }

    /// Number of tokens, rounded down.
    pub fn tokens(&self) -> usize {
        self.len().checked_div(self.stored.saturating_mul(self.top_k)).unwrap_or(0)
    }

    /// Number of rows of the view: tokens times layers, with the layers of a token adjacent.
    pub fn rows(&self) -> usize {
        self.tokens() * self.layers
    }

    /// The token of a row.
    #[inline(always)]
    pub fn token(&self, row: usize) -> usize {
        if self.layers == 1 { row } else { super::quotient(row, self.layers) }
    }

    /// Position in memory of the first entry of a row.
    #[inline(always)]
    pub fn position(&self, row: usize) -> usize {
        let token = self.token(row);
        (token * self.stored + self.first + (row - token * self.layers)) * self.top_k
    }

    /// The entries as bytes, if they are bytes and the rows are contiguous.
    #[inline(always)]
    pub(super) fn packed(&self) -> Option<In<'a, u8>> {
        let whole = self.wide.is_none() & (self.first == 0) & (self.layers == self.stored);
        if whole { self.narrow } else { None }
    }

    /// The entry at a position.
    #[inline(always)]
    pub fn at(&self, position: usize) -> u32 {
        let narrow = match self.narrow {
            Some(ids) => u32::from(ids.at(position)),
            None => 0,
        };
        narrow
            | match self.wide {
                Some(ids) => u32::from(ids.at(position)),
                None => 0,
            }
    }

    /// The value of every entry of an absent record.
    #[inline(always)]
    pub fn missing(&self) -> u32 {
        if self.wide.is_some() { 0xffff } else { 0xff }
    }

    /// Whether the record of row `row` is absent.
    #[inline(always)]
    pub fn is_absent(&self, row: usize) -> bool {
        let (first, missing) = (self.position(row), self.missing());
        let (mut absent, mut j) = (true, 0);
        while j < self.top_k {
            absent &= self.at(first + j) == missing;
            j += 1;
        }
        absent
    }

    /// Whether entry `j` of row `row`, which has a record, is an expert below `experts` that differs from the
    /// entries before it.
    #[inline(always)]
    pub fn holds(&self, row: usize, j: usize, experts: usize) -> bool {
        let first = self.position(row);
        let expert = self.at(first + j);
        let (mut fresh, mut i) = ((expert as usize) < experts, 0);
        while i < j {
            fresh &= self.at(first + i) != expert;
            i += 1;
        }
        fresh
    }

    /// Validates a trace of `tokens` tokens for `experts` experts. Returns the number of rows of the view
    /// that have a record.
    ///
    /// Errors: the first fault.
    pub fn validate(&self, tokens: usize, experts: usize) -> Result<usize, TraceFault> {
        let per_token = self.stored.saturating_mul(self.top_k);
        let got = self.len();
        if per_token == 0 || !got.is_multiple_of(per_token) || got / per_token != tokens {
            return Err(
                match per_token > 0 && got.is_multiple_of(per_token) && got / per_token + 1 == tokens {
                    true => TraceFault::OneTokenShort { tokens },
                    false => TraceFault::Shape { expected: tokens.saturating_mul(per_token), got },
                },
            );
        }
        // If a single number can be a record, the number that means "missing" cannot be an expert.
        let most = self.missing() as usize + usize::from(self.top_k > 1);
        if experts > most {
            return Err(TraceFault::TooManyExperts { experts, most });
        }
        let mut present = 0;
        for row in 0..self.rows() {
            if !self.is_absent(row) {
                self.validate_row(row, experts)?;
                present += 1;
            }
        }
        Ok(present)
    }

    fn validate_row(&self, row: usize, experts: usize) -> Result<(), TraceFault> {
        let first = self.position(row);
        let token = self.token(row);
        let layer = self.first + row - token * self.layers;
        for entry in 0..self.top_k {
            let expert = self.at(first + entry);
            let place = Place { token, layer, entry };
            // A number below `experts` is an expert, even if it equals the missing value.
            if expert as usize >= experts {
                return Err(match expert == self.missing() {
                    true => TraceFault::Partial { place },
                    false => TraceFault::Range { place, expert, experts },
                });
            }
            if let Some(other) = (0..entry).find(|i| self.at(first + i) == expert) {
                return Err(TraceFault::Duplicate { place, expert, other });
            }
        }
        Ok(())
    }
}

/// The position of an entry in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Token, in packed order.
    pub token: usize,
    /// Layer, counted from the first stored layer.
    pub layer: usize,
    /// Entry within the record.
    pub entry: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`trace`[{}, {}, {}]", self.token, self.layer, self.entry)
    }
}

/// A fault of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFault {
    /// The number of entries is not tokens × layers × top_k.
    Shape {
        /// Expected number of entries.
        expected: usize,
        /// Actual number of entries.
        got: usize,
    },
    /// The trace lacks one token, as from an engine that records no row for the last token.
    OneTokenShort {
        /// Expected number of tokens.
        tokens: usize,
    },
    /// More experts than the entry type can distinguish from "missing".
    TooManyExperts {
        /// Number of experts.
        experts: usize,
        /// Largest possible number of experts.
        most: usize,
    },
    /// An entry is not an expert.
    Range {
        /// Position of the entry.
        place: Place,
        /// The entry.
        expert: u32,
        /// Number of experts.
        experts: usize,
    },
    /// A record lists the same expert twice.
    Duplicate {
        /// Position of the second occurrence.
        place: Place,
        /// The expert.
        expert: u32,
        /// Entry of the first occurrence.
        other: usize,
    },
    /// An entry is missing in a record whose other entries are not.
    Partial {
        /// Position of the entry.
        place: Place,
    },
}

impl fmt::Display for TraceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TraceFault::Shape { expected, got } => {
                write!(f, "`trace` has {got} entries: expected {expected} (tokens × layers × top_k)")
            }
            TraceFault::OneTokenShort { tokens } => write!(
                f,
                "`trace` has rows for {} tokens: expected {tokens}; the engine records no row for a token \
                 that it does not feed back: append an absent row to each sequence",
                tokens - 1
            ),
            TraceFault::TooManyExperts { experts, most } => {
                write!(
                    f,
                    "`trace` cannot hold {experts} experts: its entries distinguish at most {most}, use u16"
                )
            }
            TraceFault::Range { place, expert, experts } => {
                write!(f, "{place} is {expert}: expected an expert below {experts}")
            }
            TraceFault::Duplicate { place, expert, other } => {
                write!(f, "{place} is {expert}, the same as entry {other}: expected distinct experts")
            }
            TraceFault::Partial { place } => {
                write!(f, "{place} is missing: expected a record with all entries present or all missing")
            }
        }
    }
}

impl core::error::Error for TraceFault {}

/// Entry `j` of the filler for padding row `row`: (row·top_k + j) mod experts. Its top_k ≤ experts experts
/// differ, and padding spreads over all experts instead of filling expert 0 (slime #1052).
#[inline(always)]
pub fn filler(row: usize, j: usize, top_k: usize, experts: usize) -> usize {
    ((row % experts) * top_k + j) % experts
}

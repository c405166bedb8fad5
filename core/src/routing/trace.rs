//! The trace: which experts ran, for each token and layer.
//!
//! **Shape**: `[tokens, layers, top_k]`, packed like the tokens, `u8` for up to 256 experts, `u16` above: 48
//! layers × top-8 are 384 bytes a token. A range of layers or tokens is a view with the same strides, not a
//! copy.
//!
//! **Absent records**: a record (the top_k entries of a token and layer) that consists of nothing but 0xFF
//! (`u8`) or 0xFFFF (`u16`) is absent: the live router chooses there. With top_k ≥ 2 that is no record of any
//! router, for its experts would be equal; with top_k = 1, expert 255 of a `u8` trace and 65535 of a `u16`
//! trace cannot be recorded, and `check` refuses so many experts.

use crate::ragged::{In, Span};
use core::fmt;

/// A view of a trace: a range of tokens, a range of layers.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    narrow: Option<In<'a, u8>>,
    wide: Option<In<'a, u16>>,
    /// Layers of a token in memory.
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

    /// The layers `first..first + layers` of this view; `None` if it has not so many.
    pub fn slice(self, first: usize, layers: usize) -> Option<Self> {
        let inside = first.checked_add(layers).is_some_and(|end| end <= self.layers);
        inside.then_some(Trace { first: self.first + first, layers, ..self })
    }

    /// The tokens `first..first + tokens` of this view, such as those of a data- or sequence-parallel rank;
    /// `None` if it has not so many.
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

    /// Layers of the view.
    #[inline(always)]
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// K.
    #[inline(always)]
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Entries in memory.
    fn len(&self) -> usize {
        self.narrow.map_or(0, In::len) + self.wide.map_or(0, In::len)
    }

    /// Tokens, rounded down.
    pub fn tokens(&self) -> usize {
        self.len().checked_div(self.stored.saturating_mul(self.top_k)).unwrap_or(0)
    }

    /// Rows of the view: tokens times layers, layers of a token side by side.
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

    /// The entries as bytes, if they are bytes and row follows row.
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

    /// What every entry of an absent record is.
    #[inline(always)]
    pub fn missing(&self) -> u32 {
        if self.wide.is_some() { 0xffff } else { 0xff }
    }

    /// Whether row `row` has no record.
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

    /// Whether entry `j` of row `row`, which has a record, is an expert that does not stand there before.
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

    /// Whether a trace of `tokens` tokens for `experts` experts is whole; the first fault otherwise. Returns
    /// how many rows of the view have a record.
    pub fn validate(&self, tokens: usize, experts: usize) -> Result<usize, TraceFault> {
        let per_token = self.stored * self.top_k;
        let got = self.len();
        if per_token == 0 || !got.is_multiple_of(per_token) || got / per_token != tokens {
            return Err(
                match per_token > 0 && got.is_multiple_of(per_token) && got / per_token + 1 == tokens {
                    true => TraceFault::OneTokenShort { tokens },
                    false => TraceFault::Shape { expected: tokens.saturating_mul(per_token), got },
                },
            );
        }
        // The number that stands for "missing" is no expert where a record can be that number alone.
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
            // Below `experts` the number is an expert, even if it looks like a missing one.
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

/// Where an entry of a trace stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Token, in the packed order.
    pub token: usize,
    /// Layer, counted from the first that is stored.
    pub layer: usize,
    /// Entry of the record.
    pub entry: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`trace`[{}, {}, {}]", self.token, self.layer, self.entry)
    }
}

/// What is wrong with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFault {
    /// Not tokens × layers × top_k entries.
    Shape {
        /// How many there should be.
        expected: usize,
        /// How many there are.
        got: usize,
    },
    /// An engine that records no row for the last token.
    OneTokenShort {
        /// Tokens that there should be.
        tokens: usize,
    },
    /// More experts than the type of an entry can tell apart from "missing".
    TooManyExperts {
        /// Experts.
        experts: usize,
        /// How many there may be.
        most: usize,
    },
    /// Not an expert.
    Range {
        /// Where.
        place: Place,
        /// What stands there.
        expert: u32,
        /// Experts.
        experts: usize,
    },
    /// The same expert twice.
    Duplicate {
        /// Where, the second time.
        place: Place,
        /// Which.
        expert: u32,
        /// The entry that has it first.
        other: usize,
    },
    /// An entry that is missing in a record whose others are not.
    Partial {
        /// Where.
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
                "`trace` has rows for {} tokens: expected {tokens}; the engine records no row for a token that it does not feed back: \
                 append an absent one to each sequence",
                tokens - 1
            ),
            TraceFault::TooManyExperts { experts, most } => {
                write!(f, "`trace` cannot hold {experts} experts: its entries tell {most} apart, use u16")
            }
            TraceFault::Range { place, expert, experts } => {
                write!(f, "{place} is {expert}: expected an expert, 0 to {}", experts - 1)
            }
            TraceFault::Duplicate { place, expert, other } => {
                write!(f, "{place} is {expert}, as entry {other} is: expected experts that differ")
            }
            TraceFault::Partial { place } => {
                write!(f, "{place} is missing: expected a record that is whole, or missing as a whole")
            }
        }
    }
}

impl core::error::Error for TraceFault {}

/// Entry `j` of the filler of padding row `row`: (row·top_k + j) mod experts. Its top_k ≤ experts experts
/// differ, and padding spreads over all experts instead of filling expert 0 (slime #1052).
#[inline(always)]
pub fn filler(row: usize, j: usize, top_k: usize, experts: usize) -> usize {
    ((row % experts) * top_k + j) % experts
}

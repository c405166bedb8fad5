//! Routing traces of mixture-of-experts models: recording, stitching, views and statistics.
//!
//! A trace takes tokens × layers × top_k × 1 byte (2 above 256 experts) of memory: 384 bytes per token for 48
//! layers of top-8.

#[cfg(feature = "safetensors")]
mod file;
pub mod gates;
mod load;
pub mod mismatch;

pub use gates::{GateKl, gate_kl, replay_kl};
pub use load::{LoadSum, load};
pub use mismatch::{Mismatch, mismatch};

use crate::Error;
use lockstep_core::Error as Argument;
use lockstep_core::ragged::In;
use lockstep_core::require;
use lockstep_core::routing::{Trace, filler};

/// Expert ids, in the narrowest type that holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Up to 256 experts.
    U8(Vec<u8>),
    /// Up to 65536 experts.
    U16(Vec<u16>),
}

impl Ids {
    fn len(&self) -> usize {
        match self {
            Ids::U8(ids) => ids.len(),
            Ids::U16(ids) => ids.len(),
        }
    }

    /// These entries as a trace `[tokens, layers, top_k]`.
    pub fn view(&self, layers: usize, top_k: usize) -> Trace<'_> {
        match self {
            Ids::U8(ids) => Trace::narrow(In::new(ids), layers, top_k),
            Ids::U16(ids) => Trace::wide(In::new(ids), layers, top_k),
        }
    }
}

/// A record of the experts that ran: `[tokens, layers, top_k]`, packed like the tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingTrace {
    ids: Ids,
    layers: usize,
    top_k: usize,
    experts: usize,
}

impl RoutingTrace {
    /// Creates a trace without tokens. Entries are bytes if the `experts` fit: up to 256, or 255 for top_k =
    /// 1 (see [`Trace`] about absent records).
    ///
    /// Errors: `experts`, `layers` or `top_k` out of range.
    pub fn new(experts: usize, layers: usize, top_k: usize) -> Result<RoutingTrace, Error> {
        let out_of =
            |argument, expected, got: usize| Err(require::value(argument, None, expected, got as f64).into());
        // This limit is far above any model, and keeps sizes from overflowing.
        if layers == 0 || layers > 1 << 16 {
            return out_of("layers", "1 to 65536", layers);
        }
        let spare = usize::from(top_k == 1);
        if experts == 0 || experts > (1 << 16) - spare {
            return out_of("experts", "1 to 65536 (65535 if top_k is 1)", experts);
        }
        if top_k == 0 || top_k > experts {
            return out_of("top_k", "1 to the number of experts", top_k);
        }
        let ids = if experts <= 256 - spare { Ids::U8(Vec::new()) } else { Ids::U16(Vec::new()) };
        Ok(RoutingTrace { ids, layers, top_k, experts })
    }

    /// Creates a trace from an engine's ids, `[tokens, layers, top_k]` in any integer type, where −1 means
    /// missing. The ids are checked before they are narrowed.
    ///
    /// Errors: those of [`RoutingTrace::new`]; an id that is neither an expert nor −1 (index); a record that
    /// is missing in part or repeats an expert (token, layer and entry); a number of ids that does not match
    /// the shape.
    pub fn from_ids<I: Copy + Into<i64>>(
        ids: &[I],
        tokens: usize,
        experts: usize,
        layers: usize,
        top_k: usize,
    ) -> Result<RoutingTrace, Error> {
        let mut trace = RoutingTrace::new(experts, layers, top_k)?;
        let bad = |id: i64| !(id == -1 || (0..experts as i64).contains(&id));
        if let Some(index) = ids.iter().position(|id| bad((*id).into())) {
            let id: i64 = ids[index].into();
            let expected = "an expert, or -1 for a missing one";
            return Err(require::value("trace", Some(index), expected, id as f64).into());
        }
        trace.check_partial(ids)?;
        trace.append(ids.iter().map(|id| (*id).into() as u32));
        trace.view().validate(tokens, experts)?;
        Ok(trace)
    }

    /// Rejects a −1 next to experts: as a byte, it would look like expert 255 of 256.
    fn check_partial<I: Copy + Into<i64>>(&self, ids: &[I]) -> Result<(), Error> {
        for (row, record) in ids.chunks(self.top_k).enumerate() {
            let missing = |id: &I| (*id).into() == -1;
            if record.iter().any(missing) && !record.iter().all(missing) {
                let place = lockstep_core::routing::Place {
                    token: row / self.layers,
                    layer: row % self.layers,
                    entry: record.iter().position(missing).unwrap_or(0),
                };
                return Err(lockstep_core::routing::TraceFault::Partial { place }.into());
            }
        }
        Ok(())
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Number of experts per token and layer, K.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Number of experts E.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.ids.len() / (self.layers * self.top_k)
    }

    /// The entries, `[tokens, layers, top_k]`.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Size of the entries in bytes.
    pub fn bytes(&self) -> usize {
        match &self.ids {
            Ids::U8(ids) => ids.len(),
            Ids::U16(ids) => 2 * ids.len(),
        }
    }

    /// A view of the whole trace. [`Trace::slice`] selects layers and [`Trace::part`] tokens, without a copy.
    pub fn view(&self) -> Trace<'_> {
        self.ids.view(self.layers, self.top_k)
    }

    fn append(&mut self, entries: impl Iterator<Item = u32>) {
        match &mut self.ids {
            Ids::U8(ids) => ids.extend(entries.map(|id| id as u8)),
            Ids::U16(ids) => ids.extend(entries.map(|id| id as u16)),
        }
    }

    /// Appends the tokens `range` of `other`: the records of a cached prefix, or of the next part of a
    /// partial rollout.
    ///
    /// Errors: traces of different experts, layers or top_k; a range that is not within `other`.
    pub fn stitch(&mut self, other: &RoutingTrace, range: std::ops::Range<usize>) -> Result<(), Error> {
        let shape = |t: &RoutingTrace| (t.experts, t.layers, t.top_k);
        if shape(self) != shape(other) {
            let expected = "a trace with the same experts, layers and top_k";
            return Err(Argument::Combination { argument: "stitched trace", expected }.into());
        }
        if range.start > range.end || range.end > other.tokens() {
            let (argument, expected) = ("stitched range", "start <= end <= number of tokens of the trace");
            return Err(require::value(argument, None, expected, range.end as f64).into());
        }
        let per_token = self.layers * self.top_k;
        let entries = range.start * per_token..range.end * per_token;
        match (&mut self.ids, &other.ids) {
            (Ids::U8(own), Ids::U8(ids)) => own.extend_from_slice(&ids[entries]),
            (Ids::U16(own), Ids::U16(ids)) => own.extend_from_slice(&ids[entries]),
            // The same number of experts implies the same type.
            _ => unreachable!("traces of one shape have one type"),
        }
        Ok(())
    }

    /// Reserves memory for `tokens` more tokens.
    ///
    /// Errors: there is not that much.
    pub fn reserve(&mut self, tokens: usize) -> Result<(), Error> {
        let entries = tokens.checked_mul(self.layers * self.top_k);
        let reserved = entries.and_then(|entries| match &mut self.ids {
            Ids::U8(ids) => ids.try_reserve(entries).ok(),
            Ids::U16(ids) => ids.try_reserve(entries).ok(),
        });
        let expected = "as many as memory holds";
        reserved.ok_or_else(|| require::value("tokens", None, expected, tokens as f64).into())
    }

    /// Appends `tokens` tokens without a record, for which the live router chooses: for example the one row
    /// that is missing from an engine that returns tokens − 1 rows.
    pub fn append_absent(&mut self, tokens: usize) {
        let entries = tokens * self.layers * self.top_k;
        self.append(std::iter::repeat_n(u32::MAX, entries));
    }

    /// Appends `tokens` tokens of padding, whose experts are those of [`filler`]: distinct, and spread over
    /// all experts.
    pub fn append_padding(&mut self, tokens: usize) {
        let (layers, top_k, experts) = (self.layers, self.top_k, self.experts);
        let from = self.tokens() * layers;
        let rows = from..from + tokens * layers;
        self.append(rows.flat_map(move |row| (0..top_k).map(move |j| filler(row, j, top_k, experts) as u32)));
    }

    /// Appends the choices of whole tokens, `[tokens, layers, top_k]`, as `gating_forward` returns them if
    /// the layers of a token are adjacent rows. This is how R2 records.
    ///
    /// Errors: choices that are not whole tokens; one that is no expert of this trace (index).
    pub fn append_chosen(&mut self, chosen: &Ids) -> Result<(), Error> {
        let whole = chosen.len().next_multiple_of(self.layers * self.top_k);
        require::length("chosen", whole, "whole tokens", chosen.len())?;
        match chosen {
            Ids::U8(ids) => self.append_experts(ids),
            Ids::U16(ids) => self.append_experts(ids),
        }
    }

    fn append_experts<I: Copy + Into<u32> + Into<f64>>(&mut self, ids: &[I]) -> Result<(), Error> {
        let number = |id: I| -> u32 { id.into() };
        // A number that is too large would be cut off to another expert's byte.
        let expected = "an expert of the trace";
        require::each("chosen", ids, expected, |id| (number(id) as usize) < self.experts)?;
        self.append(ids.iter().map(|id| number(*id)));
        Ok(())
    }
}

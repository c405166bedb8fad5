//! The inputs that everything is tested on: lengths by structure, values by design, each entry with the bug it catches.

pub mod corpus;
pub mod hash;
pub mod masks;
pub mod params;
pub mod random;
pub mod responses;
pub mod rewards;
pub mod select;
pub mod shapes;
pub mod values;

pub use corpus::corpus;
pub use params::{AnyGate, Params, Policy, Taus};

/// A packed batch with the arrays of one op. Which slot means what is the op's business ([`slot`]).
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// Offsets of rows, `[R+1]`.
    pub offsets: Vec<u32>,
    /// Which elements take part.
    pub mask: Option<Vec<u8>>,
    /// Arrays with one entry per element.
    pub element: Vec<Vec<f32>>,
    /// The binary64 input of `fold_rows`, one entry per element.
    pub element64: Vec<f64>,
    /// The offsets that `check_offsets` looks at, the lengths of `group_advantage`; one entry per element.
    pub index: Vec<u32>,
    /// Arrays with one entry per row.
    pub row: Vec<Vec<f32>>,
}

/// Slots of [`Data::element`].
pub mod slot {
    /// `logp`, and the only array of `aggregate`, `row_scan` (values) and `group_advantage` (rewards).
    pub const FIRST: usize = 0;
    /// `logp`.
    pub const LOGP: usize = 0;
    /// `logp_old`; `logp_ref` of the op `kl`.
    pub const LOGP_OLD: usize = 1;
    /// `logp_ref` of the policy loss.
    pub const LOGP_REF: usize = 2;
    /// Rollout-correction weights.
    pub const WEIGHTS: usize = 3;
    /// Advantages per token.
    pub const ADVANTAGE: usize = 4;
    /// Log-probabilities of the second policy.
    pub const SECOND: usize = 5;
}

impl Data {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.offsets[self.rows()] as usize
    }

    /// Elements of a row.
    pub fn span(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// Whether element `i` takes part.
    pub fn live(&self, i: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask[i] != 0)
    }
}

/// One launch of one op.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is, unique in a corpus.
    pub label: String,
    /// Which bug it catches.
    pub catches: &'static str,
    /// Op and scalar arguments.
    pub params: Params,
    /// Arrays.
    pub data: Data,
}

impl Case {
    /// Name in core's table.
    pub fn op(&self) -> &'static str {
        self.params.op()
    }
}

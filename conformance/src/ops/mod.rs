//! One file per op: its arguments, how it is launched, the oracle's expectation, its cases, its tolerances.
//!
//! Once an op has a file here, one of the oracle's, and its lines in the lists below, everything in this
//! crate tests it: corpus and digest, accuracy against the oracle, random cases, rows alone and repacked,
//! garbage under the mask, faults.
//!
//! Arguments have the names that core explains; a comment says only what is not said there.
#![allow(missing_docs)]

pub mod balance;
pub mod check;
pub mod combine;
pub mod correction;
pub mod counts;
pub mod discounted_return;
pub mod entropy_bonus;
pub mod exact_sum;
pub mod filter;
pub mod gae;
pub mod gating;
pub mod gmpo;
pub mod group;
pub mod kl;
pub mod kl_importance;
pub mod logits;
pub mod logits_kl;
pub mod mask_sequences;
pub mod moments;
pub mod novelty;
pub mod optimal_token_baseline;
pub mod pass_at_k;
pub mod policy_loss;
pub mod ratios;
pub mod role_baseline;
pub mod sampling;
pub mod selection;
pub mod sequence_weight;
pub mod shape;
pub mod sharpen;
pub mod step_return;
pub mod sums;
pub mod token_ratio;
pub mod totals;
pub mod tree;
pub mod value_loss;
pub mod variance_increase;
pub mod vocab_parallel;
pub mod vtrace;
pub mod whiten;

/// The oracle: the literature's formulas in `f64`, written from docs/maths rather than from core.
///
/// It imports nothing from Lockstep: plain numbers in, plain numbers out, deliberately naive. Each file has
/// the stem of core's file.
#[path = "../oracle"]
pub mod oracle {
    pub mod aggregate;
    pub mod balance;
    pub mod baseline;
    pub mod check;
    pub mod cispo;
    pub mod combine;
    pub mod counts;
    pub mod covariance;
    pub mod digits;
    pub mod discounted_return;
    pub mod dppo;
    pub mod draw;
    pub mod entropy_bonus;
    pub mod ess;
    pub mod exact_sum;
    pub mod filter;
    pub mod fold;
    pub mod gae;
    pub mod gating_backward;
    pub mod gating_forward;
    pub mod gmpo;
    pub mod gradient;
    pub mod key;
    pub mod kl;
    pub mod kl_importance;
    pub mod log_ratio_scan;
    pub mod logits_kl;
    pub mod mask_sequences;
    pub mod mini_rl;
    pub mod mismatch;
    pub mod moments;
    pub mod normalize;
    pub mod novelty;
    pub mod optimal_token_baseline;
    pub mod otr;
    pub mod otr_sampled;
    pub mod pass_at_k;
    pub mod policy_loss;
    pub mod ppo_clip;
    pub mod proximal;
    pub mod reinforce;
    pub mod remix;
    pub mod role_baseline;
    pub mod sapo;
    pub mod scan;
    pub mod sequence_weight;
    pub mod shape;
    pub mod sharpen;
    pub mod staleness;
    pub mod statistics;
    pub mod step_return;
    pub mod token;
    pub mod top;
    pub mod totals;
    pub mod tree_advantage;
    pub mod tree_nodes;
    pub mod tree_sort;
    pub mod trust_region;
    pub mod value_loss;
    pub mod variance_increase;
    pub mod vocab_parallel;
    pub mod vtrace;
    pub mod weights;
    pub mod whiten;
}

/// The names in core's table of the ops that these arguments cover, by variant; the first names the stream.
macro_rules! names {
    ($($variant:pat => $name:expr,)*) => {
        const OPS: &'static [&'static str] = &[$($name),*];

        fn op(&self) -> &'static str {
            match self { $($variant => $name,)* }
        }
    };
}
use names;

/// The oracle's variant of the same name.
macro_rules! same {
    ($value:expr, $from:ty => $to:ty, $($variant:ident)*) => {
        match $value { $(<$from>::$variant => <$to>::$variant,)* }
    };
}
pub(crate) use same;

use crate::backend::Backend;
use crate::cases::hash::Source;
use crate::cases::random::Draw;
use crate::cases::{Case, Data};
use crate::expect::Want;
use crate::outputs::Outputs;
use crate::precision::Allowance;
use std::fmt::Debug;

/// What most files of an op use.
mod prelude {
    pub(super) use super::{Fault, OpTest, names, same};
    pub(super) use crate::backend::Backend;
    pub(super) use crate::cases::corpus::tokens;
    pub(super) use crate::cases::hash::Source;
    pub(super) use crate::cases::masks::{Mask, garbage};
    pub(super) use crate::cases::random::Draw;
    pub(super) use crate::cases::shapes::{self, Shape, large, small};
    pub(super) use crate::cases::values::{NO_LOGP, NO_WEIGHT, NOT_FINITE, Range};
    pub(super) use crate::cases::{Case, Data, numbered, offsets, pairs, rewards, slot, values};
    pub(super) use crate::expect::{Sum, Want, push_all};
    pub(super) use crate::output::Values;
    pub(super) use crate::outputs::{Captured, NO_SCORE, Outputs, element, raised, row};
    pub(super) use crate::precision::{Allowance, EXP, ROUNDED, SUM64, TERMS, allow};
    pub(super) use lockstep_core::ragged::In;
}

/// An array of [`Data::element`] in which a bad value of a live element must raise the row's alarm, and the
/// bad values to try.
pub type Fault = (usize, &'static [f32]);

/// An op's scalar arguments and everything its tests need.
pub trait OpTest: Copy + Debug + PartialEq + Into<AnyOp> {
    /// Names in core's table of the ops that these arguments cover.
    const OPS: &'static [&'static str];
    /// Tolerances against the oracle; unlisted outputs must be equal.
    const ALLOWED: &'static [Allowance];
    /// The bugs that the cases catch, unless a case says it itself.
    const CATCHES: &'static str = "";
    /// See [`fault_slots`](OpTest::fault_slots).
    const FAULTS: &'static [Fault] = &[];
    /// See [`rows_are_blocks`](OpTest::rows_are_blocks).
    const ROWS_ARE_BLOCKS: bool = false;
    /// Whether all rows have the same length (a matrix), so that no row of another length may precede them.
    const ROWS_ARE_EQUAL: bool = false;

    /// The op's name.
    fn op(&self) -> &'static str {
        Self::OPS[0]
    }

    /// Launches the op on `data`, with outputs that `out` makes.
    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String>;

    /// The oracle's expectation for every output except `alarm`.
    fn expect(&self, data: &Data) -> Vec<Want>;

    /// The stream of the fixed cases. It is that of a name, so that a new op changes no other's values; the
    /// first ops have numbers, on which the digest depends.
    fn stream(root: Source) -> Source {
        root.named(Self::OPS[0])
    }

    /// The fixed cases. Order, labels and values never change for a given source, because the digest depends
    /// on them.
    fn corpus(source: Source) -> Vec<Case>;

    /// A random case of `op`, labelled by the caller.
    fn random(op: &str, draw: &mut Draw) -> Case;

    /// Where a bad value must raise the row's alarm.
    fn fault_slots(&self) -> Vec<Fault> {
        Self::FAULTS.to_vec()
    }

    /// Whether a row is a block of the whole array, so that rows cannot be moved.
    fn rows_are_blocks(&self) -> bool {
        Self::ROWS_ARE_BLOCKS
    }

    /// See [`ROWS_ARE_EQUAL`](OpTest::ROWS_ARE_EQUAL).
    fn rows_are_equal(&self) -> bool {
        Self::ROWS_ARE_EQUAL
    }
}

macro_rules! op_tests {
    ($($variant:ident: $params:ty,)*) => {
        /// Arguments of any op with a file here.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum AnyOp {
            $($variant($params),)*
        }

        $(impl From<$params> for AnyOp {
            fn from(params: $params) -> AnyOp {
                AnyOp::$variant(params)
            }
        })*

        /// See [`OpTest`].
        impl AnyOp {
            pub fn op(&self) -> &'static str {
                match self { $(AnyOp::$variant(params) => params.op(),)* }
            }

            pub fn run(&self, on: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
                match self { $(AnyOp::$variant(params) => params.run(on, data, out),)* }
            }

            pub fn expect(&self, data: &Data) -> Vec<Want> {
                match self { $(AnyOp::$variant(params) => params.expect(data),)* }
            }

            pub fn fault_slots(&self) -> Vec<Fault> {
                match self { $(AnyOp::$variant(params) => params.fault_slots(),)* }
            }

            pub fn rows_are_blocks(&self) -> bool {
                match self { $(AnyOp::$variant(params) => params.rows_are_blocks(),)* }
            }

            pub fn rows_are_equal(&self) -> bool {
                match self { $(AnyOp::$variant(params) => params.rows_are_equal(),)* }
            }

            /// The fixed cases of every op; each file's values depend only on its own ops.
            pub fn corpus(source: Source) -> Vec<Case> {
                let mut cases = Vec::new();
                $(cases.extend(<$params>::corpus(<$params>::stream(source)));)*
                cases
            }

            /// See [`OpTest::random`]; `None` if no file here has that op.
            pub fn random(op: &str, draw: &mut Draw) -> Option<Case> {
                $(if <$params>::OPS.contains(&op) {
                    return Some(<$params>::random(op, draw));
                })*
                None
            }

            /// Every tolerance.
            pub fn allowed() -> impl Iterator<Item = &'static Allowance> {
                let all: &[&'static [Allowance]] = &[$(<$params>::ALLOWED),*];
                all.to_vec().into_iter().flatten()
            }
        }
    };
}

op_tests! {
    TokenRatio: token_ratio::TokenRatio,
    Policy: policy_loss::Policy,
    Kl: kl::KlDivergence,
    Sums: sums::Sums,
    Check: check::Check,
    Group: group::Group,
    Moments: moments::Moments,
    Whiten: whiten::Whiten,
    DiscountedReturn: discounted_return::DiscountedReturn,
    PassAtK: pass_at_k::PassAtK,
    Combine: combine::Combine,
    // --- outcome rewards and advantages of sequences
    Shape: shape::Shape,
    Filter: filter::Filter,
    MaskSequences: mask_sequences::MaskSequences,
    Novelty: novelty::Novelty,
    VarianceIncrease: variance_increase::VarianceIncrease,
    Sharpen: sharpen::Sharpen,
    RoleBaseline: role_baseline::RoleBaseline,
    EntropyBonus: entropy_bonus::EntropyBonus,
    // --- advantages over time
    Gae: gae::Gae,
    VTrace: vtrace::VTrace,
    StepReturn: step_return::StepReturn,
    OptimalTokenBaseline: optimal_token_baseline::OptimalTokenBaseline,
    // --- importance ratios and rollout correction
    Correction: correction::Correction,
    Ratios: ratios::Ratios,
    // --- policy losses
    Gmpo: gmpo::Gmpo,
    SequenceWeight: sequence_weight::SequenceWeight,
    Selection: selection::Selection,
    // --- entropy, values
    ValueLoss: value_loss::ValueLoss,
    Logits: logits::Logits,
    KlImportance: kl_importance::KlImportance,
    // --- exact sums
    ExactSum: exact_sum::ExactSum,
    // --- prefix trees
    Tree: tree::Tree,
    // --- routing replay
    Gating: gating::Gating,
    Balance: balance::Balance,
    // --- more ops on rows of logits
    Sampling: sampling::Sampling,
    LogitsKl: logits_kl::LogitsKl,
    // --- counts and totals of a batch that stay on the device
    Counts: counts::Counts,
    Totals: totals::Totals,
    // --- rows of logits in shards
    VocabParallel: vocab_parallel::VocabParallel,
}

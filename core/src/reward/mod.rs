//! Rewards before they become advantages: shaped, filtered, ranked by novelty, spread for variance. Plain
//! functions that compute a reward are in the crate `lockstep-schedule`.
//!
//! | in the literature | here | then | source |
//! |---|---|---|---|
//! | PSR, NSR, W-REINFORCE | [`Shaping::Signs`], [`Criterion::Equal`] | reward as advantage | 2506.01347 |
//! | DAPO overlong shaping | [`Shaping::Overlong`] | GRPO | 2503.14476 |
//! | DAPO overlong filtering | [`Criterion::AtMost`] on lengths, [`MaskSequences`] | GRPO | 2503.14476 |
//! | DAPO dynamic sampling | [`Criterion::Varied`] | GRPO | 2503.14476 |
//! | FAPO | [`Shaping::Flawed`], `judge::step_reward` trains its detector | GRPO | 2510.22543 |
//! | RAPO reward | [`Combine`](crate::advantage::Combine) with 0.1 and 0.9 | GRPO, ddof 0 | 2509.24107 |
//! | RAPO pruning, step rewards | [`Criterion::SolveRate`], `rapo_reward` | GRPO, ddof 0 | 2509.24107 |
//! | ConciseR-style stage 2 (our reading) | [`Shaping::Brevity`] | GRPO | 2505.21178 |
//! | BRPO (secondary) | [`Shaping::Preferred`], [`Criterion::Balanced`] | reward as advantage | 2506.00103 |
//! | EVOL-RL | [`NoveltyBands`] | GRPO | 2509.15194 |
//! | GRPOVI | [`VarianceIncrease`] | GRPO | 2505.23247 |
//! | MarsRL | `judge::solver`, `judge::verifier` | GRPO in groups of one role and input | 2511.11373 |
//!
//! MarsRL needs no special grouping: the outputs of one role for one identical input form one group of
//! `cu_groups`; different roles or inputs never share a group.

pub mod filter;
pub mod mask_sequences;
pub mod novelty;
pub mod shape;
pub mod variance_increase;

pub use filter::{Criterion, FilterGroups};
pub use mask_sequences::MaskSequences;
pub use novelty::NoveltyBands;
pub use shape::{ShapeRewards, Shaping};
pub use variance_increase::VarianceIncrease;

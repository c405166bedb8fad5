//! Host-side rules. Schedules decide which prompts are sampled and how often, what is kept, what is too
//! stale, and which rank gets what. Other rules compute a few numbers per batch, group or step: weights,
//! baselines, rewards of judges, the coefficient of a KL penalty.
//!
//! These are not ops: nothing here runs on a GPU. They are plain functions of slices without allocation (the
//! caller provides scratch, whose size a function reports), in binary64 with the functions of
//! [`num`](lockstep_core::num) and the counter-based generator of [`random`]. Every machine and every rank
//! makes the same decision, so no decision needs to be broadcast. Ties go to the lower index everywhere.
//!
//! "-style (our reading)" means that the paper's equation could not be read, and formula and parameters are
//! ours.
//!
//! | in the literature | here |
//! |---|---|
//! | APRIL buffer order | [`april`] |
//! | ARRoL-style pruning (our reading) | [`arrol`] |
//! | Karmarkar-Karp load balance over ranks (verl) | [`balance`] |
//! | BroRL mass balance | [`brorl`] |
//! | DAPO dynamic sampling | [`dynamic_sampling`] |
//! | DARS | [`dars`] |
//! | DOTS selection, rollout replay | [`dots`], [`replay`] |
//! | GDRO pair | [`gdro_bins`], [`gdro_prompt`], [`gdro_rollout`], [`square_root_law`] |
//! | LATR | [`latr`], [`overlap`], [`ramp`] |
//! | MarsRL's inputs of the next role | [`marsrl`] |
//! | MASA rewards | [`masa`] |
//! | ReMix's historical data and reincarnation | [`remix`] |
//! | RoRecomp-style batches (our reading) | [`rorecomp`] |
//! | SCOPE-style salvage (our reading) | [`scope`] |
//! | Sol-RL's contrastive subset | [`contrast`] |
//! | stale-synchronous queue, Pangu-style (our reading) | [`stale_queue`] |
//! | staleness: AReaL, verl, ROLL | [`staleness`] |
//! | Swarm SAPO | [`swarm`] |
//! | VADE-style selection (our reading) | [`vade`] |
//! | XRPO-style allocation (our reading) | [`xrpo`] |
//! | random numbers by counter (Philox) | [`random`] |
//!
//! | rules over a batch, a group or a step | here |
//! |---|---|
//! | adaptive KL controller | [`kl_control`] |
//! | entropy law, R = −a·e^H + b | [`entropy_law`] |
//! | FAPO's and MarsRL's judges, BRPO's reference | [`judge`] |
//! | MSSR's tracked values | [`mssr`] |
//! | PF-PPO-style weights (our reading) | [`filtration`] |
//! | RAPO: replay of successes; step rewards, factor of a batch | [`rapo`]; [`rapo_reward`] |
//! | reasoning pattern reward, calibration of noisy rewards | [`reasoning_pattern`] |
//! | returns by the sign of the outcome | [`signed_return`] |
//! | robust baselines | [`robust_baseline`] |
//! | RuscaRL's rubrics and scaffold; Rubric Anchors (our reading) | [`rubric`] |
//! | TRAAC's difficulty and length reward | [`traac`] |
//! | weights by length and difficulty (ROLL) | [`sample_weights`] |
//! | V0.5-style test of a prior (our reading) | [`trust`] |
#![no_std]
#![deny(unsafe_code)]

pub mod april;
pub mod arrol;
pub mod balance;
pub mod brorl;
pub mod contrast;
pub mod dars;
pub mod dots;
pub mod dynamic_sampling;
pub mod entropy_law;
pub mod fifo;
pub mod filtration;
pub mod gdro_bins;
pub mod gdro_prompt;
pub mod gdro_rollout;
pub mod judge;
pub mod kl_control;
pub mod latr;
pub mod marsrl;
pub mod masa;
pub mod mssr;
mod numbers;
pub mod order;
pub mod overlap;
pub mod ramp;
pub mod random;
pub mod rapo;
pub mod rapo_reward;
pub mod reasoning_pattern;
pub mod remix;
pub mod replay;
pub mod robust_baseline;
pub mod rorecomp;
pub mod rounding;
pub mod rubric;
pub mod sample_weights;
pub mod scope;
pub mod signed_return;
pub mod square_root_law;
pub mod stale_queue;
pub mod staleness;
pub mod student_t;
pub mod swarm;
pub mod traac;
pub mod trust;
pub mod vade;
pub mod xrpo;

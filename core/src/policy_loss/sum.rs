//! Index of each statistic in `row_sums`. All except [`LOSS`] are sums over the live tokens of a sequence.

/// W·Σ l: the sequence's share of the loss, including the KL term. Also written to `row_loss`.
pub const LOSS: usize = 0;
/// Policy term: the gate's loss times w.
pub const POLICY: usize = 1;
/// Estimate of the KL to the reference; 0 without a reference.
pub const KL_REF: usize = 2;
/// −d after the guard: the k1 estimate of KL(old ‖ current), verl's `ppo_kl`.
pub const K1: usize = 3;
/// r − 1, which is exact near 1, where a sum of r would round the difference away.
pub const EXCESS: usize = 4;
/// (r − 1)².
pub const EXCESS_SQUARED: usize = 5;
/// Gate weight ([`Gated::weight`](crate::gate::Gated::weight)): the gradient relative to plain
/// importance-weighted REINFORCE.
pub const GATE: usize = 6;
/// Number of tokens at the upper clip.
pub const CLIP_HIGH: usize = 7;
/// Number of tokens at the lower clip.
pub const CLIP_LOW: usize = 8;
/// Number of tokens at the dual clip.
pub const CLIP_DUAL: usize = 9;
/// Number of tokens outside the guard.
pub const GUARDED: usize = 10;
/// Number of tokens whose ratio is in the band, both ends included.
pub const IN_BAND: usize = 11;
/// −logp: a sampled estimate of the entropy.
pub const NEG_LOGP: usize = 12;
/// Number of statistics.
pub const SUMS: usize = 13;

/// Those that are numbers of tokens, as bits.
pub(super) const COUNTS: u32 = 1 << CLIP_HIGH | 1 << CLIP_LOW | 1 << CLIP_DUAL | 1 << GUARDED | 1 << IN_BAND;

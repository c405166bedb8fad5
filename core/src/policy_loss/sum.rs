//! Index of each statistic in `row_sums`. All but the first are sums over live tokens.

/// W·Σ l: the sequence's share of the loss, KL included. Written to `row_loss` without metrics.
pub const LOSS: usize = 0;
/// w·gate loss.
pub const POLICY: usize = 1;
/// KL to the reference (0 without one).
pub const KL_REF: usize = 2;
/// −d, guarded: the k1 estimate of KL(old ‖ current), verl's `ppo_kl`.
pub const K1: usize = 3;
/// r − 1: near 1 the difference is exact, where r itself would drown it.
pub const EXCESS: usize = 4;
/// (r − 1)².
pub const EXCESS_SQUARED: usize = 5;
/// Gate weight: gradient relative to plain importance-weighted REINFORCE.
pub const GATE: usize = 6;
/// Tokens at the upper clip.
pub const CLIP_HIGH: usize = 7;
/// Tokens at the lower clip.
pub const CLIP_LOW: usize = 8;
/// Tokens at the dual clip.
pub const CLIP_DUAL: usize = 9;
/// Tokens outside the guard.
pub const GUARDED: usize = 10;
/// Tokens whose ratio lies in the band, both ends included.
pub const IN_BAND: usize = 11;
/// −logp: a sampled estimate of the entropy.
pub const NEG_LOGP: usize = 12;
/// Their number.
pub const SUMS: usize = 13;

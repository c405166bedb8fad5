//! Levels of an importance ratio: per token, given, or per sequence.
//!
//! | level | r of token t in sequence i | gradient dr/dlogp_t | source |
//! |---|---|---|---|
//! | token | exp(d_t) | r | PPO 1707.06347 |
//! | given | exp(guard(x_t)), x computed elsewhere | r | 2601.22718; docs/maths/correction.md |
//! | sequence | s_i = exp(min(mean d, `log_max`)) | s_i | GSPO-token 2507.18071; docs/maths/gates.md |
//!
//! The mean is over the live tokens of the sequence. The given log-ratios x of 2601.22718 are those of
//! prefixes, segments and minimum prefixes.
//!
//! Here d = logp − logp_old. At sequence level, every live token has the ratio
//! s_i = sg(s_i)·exp(logp − sg(logp)): under seq-mean-token-mean, with one advantage per sequence, the
//! gradient equals that of GSPO's one term per sequence. The mean is a binary64 sum divided by the number of
//! live tokens and rounded once; a sequence without live tokens has no ratio. Where the mean exceeds
//! `log_max` (verl: 10), the gradient is 0, as autograd gives through a clamp. The token guard is not
//! applied.
//!
//! A given log-ratio is treated as logp plus a constant: its dependence on other tokens is not
//! differentiated. The guard is applied.

use crate::Error;
use crate::op::{Arg, Decoder, Encoder};
use crate::require;

/// The level at which an importance ratio is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RatioGranularity {
    /// The ratio of each token.
    Token,
    /// A log-ratio per token that was computed elsewhere and is passed in place of `logp_old`.
    Given,
    /// The geometric mean of the token ratios of the sequence.
    Sequence {
        /// Upper bound on the logarithm of the mean; ∞ = none. verl uses 10.
        log_max: f32,
    },
}

impl RatioGranularity {
    /// verl's upper bound on a sequence's log-ratio, in nats.
    pub const GSPO_LOG_MAX: f32 = 10.0;

    /// Checks the bound of a sequence level.
    ///
    /// Errors: [`Error::Value`] unless `log_max` is positive.
    pub fn check(self) -> Result<(), Error> {
        match self {
            RatioGranularity::Token | RatioGranularity::Given => Ok(()),
            RatioGranularity::Sequence { log_max } => require::bound("ratio.log_max", log_max),
        }
    }
}

// By hand: with the decoder that `launch_args!` generates, PPO's metrics spill registers on sm_100.
#[allow(unsafe_code)]
impl Arg for RatioGranularity {
    const POINTERS: usize = 0;
    const WORDS: usize = 2;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        let (kind, log_max) = match *self {
            RatioGranularity::Token => (0, 0.0),
            RatioGranularity::Sequence { log_max } => (1, log_max),
            RatioGranularity::Given => (2, 0.0),
        };
        to.word(kind);
        log_max.encode(to);
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        let (kind, log_max) = (from.word(), f32::from_bits(from.word() as u32));
        match kind {
            1 => RatioGranularity::Sequence { log_max },
            2 => RatioGranularity::Given,
            _ => RatioGranularity::Token,
        }
    }
}

//! Log-probabilities of decoupled PPO's proximal policy, interpolated instead of computed by a forward pass.
//!
//! **Formula** (AReaL; docs/maths/correction.md), with v the version of the policy that sampled the token,
//! v_θ the current version, and v_θ − 1 the proximal one:
//!
//! ```text
//! α = clip((v_θ − 1 − v) / (v_θ − v), 0, 1) if v ≥ 0 and v_θ > v, else 0
//! loglinear: logp_prox = logp_behave + α (logp − logp_behave)
//! linear:    logp_prox = ln((1 − α) e^logp_behave + α e^logp + 1e-10)
//! ```
//!
//! Staleness 1 gives α = 0 (the proximal policy is the sampler); staleness s gives α = (s − 1)/s.
//!
//! **Shapes**: `versions` `[N]`, −1 for tokens that were not sampled (the prompt); `logp_behave`, `logp`,
//! `logp_prox` `[N]`.
//!
//! **Special cases**: masked tokens write 0. Rounding never makes a log-probability positive.
//!
//! **Gradient**: none; `logp` is a constant here.

use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::flag;
use crate::ragged::{In, Mask, Offsets, Out, Stream};
use crate::team::{Element, Lane, Team};

/// Added to a probability before its logarithm, as AReaL does.
pub const EPS: f32 = f32::from_bits(0x2edb_e6ff); // 1e-10

/// The quantity that is interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Log-probabilities.
    Loglinear,
    /// Probabilities.
    Linear,
}

crate::launch_args!(
    enum Interpolation {
        Loglinear,
        Linear,
    }
);

/// The position α of the proximal policy between the sampler (0) and the current policy (1), for a token of
/// `version`: (s − 1)/s with staleness s = current − version; 0 if the token has no version or s < 1.
#[inline(always)]
pub fn alpha(version: i32, current: i32) -> f64 {
    let stale = f64::from(current) - f64::from(version);
    // A version later than the current one has a negative staleness.
    if version >= 0 && stale > 0.0 { num::div64(stale - 1.0, stale) } else { 0.0 }
}

crate::kernel! {
    /// The op `proximal_logp`: one interpolated log-probability per token.
    pub struct ProximalLogp<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Version that sampled each token, `[N]`; −1 = none.
        pub versions: In<'a, i32> [tokens],
        /// Current version.
        pub current: i32,
        /// The sampler's log-probabilities, `[N]`.
        pub logp_behave: In<'a, f32> [tokens],
        /// The current policy's log-probabilities, `[N]`.
        pub logp: In<'a, f32> [tokens],
        /// The quantity that is interpolated.
        pub interpolation: Interpolation,
        /// The proximal policy's log-probabilities, `[N]`.
        pub logp_prox: Out<'a, f32> [tokens],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input is not a log-probability.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "proximal_logp", over cu_seqlens (tokens, sequences);
}

impl Kernel for ProximalLogp<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask, out) = (self.cu_seqlens.span(row), self.loss_mask, *self.logp_prox);
        let (behave, logp, versions) = (self.logp_behave, self.logp, self.versions);
        let (current, linear) = (self.current, self.interpolation == Interpolation::Linear);
        let swept = team.sweep(span, mask, [Stream::Array(behave), Stream::Array(logp)], [], &Check);
        team.for_each(span, move |i| {
            let (b, p, alpha) = (behave.at(i), logp.at(i), alpha(versions.at(i), current));
            let prox = if linear {
                let (b, p) = (num::exp::<T::Arith>(b), num::exp::<T::Arith>(p));
                let mixed = (1.0 - alpha) * f64::from(b) + alpha * f64::from(p);
                num::ln::<T::Arith>((mixed + f64::from(EPS)) as f32)
            } else {
                (f64::from(b) + alpha * (f64::from(p) - f64::from(b))) as f32
            };
            let prox = num::min(prox, 0.0);
            out.put(i, if mask.at(i) { prox } else { 0.0 });
        });
        if team.leads() {
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

struct Check;

impl Element<2, 0, 0, 0> for Check {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 0, 0> {
        Lane { out: [], sum: [], max: [], alarm: flag::worse(flag::logp(input(0)), flag::logp(input(1))) }
    }
}

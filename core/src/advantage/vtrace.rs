//! V-trace: off-policy value targets and advantages with truncated importance weights.
//!
//! **Formula** (1802.01561 with rlax's λ; docs/maths/advantages.md), with t' the live token after t and
//! ρ_t = exp(logp − logp_rollout):
//!
//! ```text
//! δ_t = min(ρ̄, ρ_t) (r_t + γ V_{t'} − V_t)
//! err_t = δ_t + γ λ min(c̄, ρ_t) err_{t'},    vs_t = V_t + err_t
//! q_t = r_t + γ (λ vs_{t'} + (1 − λ) V_{t'}),    A_t = min(ρ̄_pg, ρ_t) (q_t − V_t)
//! after the last live token:  err = 0,  V = vs = bootstrap of a truncated sequence, 0 of a terminated one
//! ```
//!
//! **Shapes**: `logp`, `logp_rollout`, `rewards`, `values`, `vs`, `advantage` `[N]`; `bootstrap`, `truncated`
//! `[S]`; `cu_seqlens` `[S+1]`.
//!
//! **Special cases**: a masked token is skipped (err passes over it undiscounted); it receives the vs of the
//! next live token, and advantage 0. A ratio that overflows is truncated like any other; a bound of ∞
//! truncates nothing. On-policy, with all bounds at least 1, vs is the λ-return of [`Gae`](super::Gae).
//!
//! **Accuracy**: ρ in `f32` (1 ULP of [`exp`](crate::num::exp())), the rest in binary64, rounded once.
//!
//! **Gradient**: none; both results are constants in the losses of the policy and the critic.
//!
//! **Variants**: as in rlax, λ multiplies c and not ρ̄. c̄ is 1 in both; IMPALA's paper takes ρ̄ ≥ c̄.

use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::team::{Affine, Recurrence, Step, Team};

crate::kernel! {
    /// The op `vtrace`: a value target and an advantage per token.
    pub struct VTrace<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Log-probabilities under the target policy, whose values are estimated, `[N]`.
        pub logp: In<'a, f32> [tokens],
        /// Log-probabilities under the behaviour policy, which sampled the tokens, `[N]`.
        pub logp_rollout: In<'a, f32> [tokens],
        /// Per-token rewards, `[N]`.
        pub rewards: In<'a, f32> [tokens],
        /// The critic's values, `[N]`.
        pub values: In<'a, f32> [tokens],
        /// Value after the last live token, `[S]`; absent = 0.
        pub bootstrap: Option<In<'a, f32>> [sequences],
        /// Truncated sequences, whose bootstrap is used, `[S]`.
        pub truncated: Mask<'a> [sequences],
        /// Discount γ per live token, 0 to 1.
        pub gamma: f64 where unit,
        /// λ, 0 to 1.
        pub lambda: f64 where unit,
        /// ρ̄: upper bound of the weight of a TD error; ∞ = none.
        pub rho_bar: f64 where bound,
        /// ρ̄_pg: upper bound of the weight of an advantage; ∞ = none.
        pub rho_pg: f64 where bound,
        /// c̄: upper bound of the weight that propagates later errors back; ∞ = none.
        pub c_bar: f64 where bound,
        /// Value targets vs for the critic, `[N]`.
        pub vs: Out<'a, f32> [tokens],
        /// Advantages A, `[N]`.
        pub advantage: Out<'a, f32> [tokens],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input, a bootstrap in use, or a result is
        /// invalid.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "vtrace", over cu_seqlens (tokens, sequences);
}

impl Kernel for VTrace<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let bootstrap = match self.bootstrap {
            Some(bootstrap) if self.truncated.at(row) => bootstrap.at(row),
            _ => 0.0,
        };
        let ins = [self.logp, self.logp_rollout, self.rewards, self.values].map(Stream::Array);
        let outs = [Some(*self.vs), Some(*self.advantage)];
        let trace = Trace {
            gamma: self.gamma,
            lambda: self.lambda,
            rho_bar: self.rho_bar,
            rho_pg: self.rho_pg,
            c_bar: self.c_bar,
        };
        let alarm = team.recur(self.cu_seqlens.span(row), self.loss_mask, ins, outs, bootstrap, trace);
        if team.leads() {
            self.row_alarm.put(row, flag::worse(alarm, flag::finite(bootstrap)));
        }
    }
}

#[derive(Clone, Copy)]
struct Trace {
    gamma: f64,
    lambda: f64,
    rho_bar: f64,
    rho_pg: f64,
    c_bar: f64,
}

/// The smaller of `bound` and `ratio`.
#[inline(always)]
fn truncated(bound: f64, ratio: f32) -> f64 {
    let ratio = f64::from(ratio);
    if ratio < bound { ratio } else { bound }
}

impl Recurrence<4, 2, 2> for Trace {
    const Y_NEXT: bool = true;

    #[inline(always)]
    fn ready<A: Arith>(self, [logp, logp_rollout, reward, value]: [f32; 4]) -> ([f32; 2], f32, u32) {
        let ratio = num::exp::<A>(logp - logp_rollout);
        let policies = flag::worse(flag::logp(logp), flag::logp(logp_rollout));
        let alarm = flag::worse(policies, flag::worse(flag::finite(reward), flag::finite(value)));
        ([ratio, reward], value, alarm)
    }

    #[inline(always)]
    fn map(self, [ratio, reward]: [f32; 2], value: f32, next: f32) -> Affine {
        let delta = (f64::from(reward) + self.gamma * f64::from(next)) - f64::from(value);
        Affine {
            rate: (self.gamma * self.lambda) * truncated(self.c_bar, ratio),
            offset: truncated(self.rho_bar, ratio) * delta,
        }
    }

    #[inline(always)]
    fn out(self, step: Step<2>) -> [f32; 2] {
        let [ratio, reward] = step.own;
        let (value, next) = (f64::from(step.value), f64::from(step.next));
        // λ vs + (1 − λ) V = V + λ err
        let q = f64::from(reward) + self.gamma * (next + self.lambda * step.y_next);
        let advantage = truncated(self.rho_pg, ratio) * (q - value);
        [(value + step.y) as f32, if step.live { advantage as f32 } else { 0.0 }]
    }
}

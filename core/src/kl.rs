//! Per-token estimators of KL(policy ‖ reference) and their gradients.
//!
//! **Formula** (Schulman's estimators; docs/maths/kl.md), x = logp − logp_ref, u = −x:
//!
//! | name | value | d/dlogp | remark |
//! |---|---|---|---|
//! | `k1` | x | 1 | unbiased, signed |
//! | `abs` | \|x\| | sgn(x), sgn(0) = 0 | |
//! | `k2` | x²/2 | x | biased value; on-policy its gradient is the sampled gradient of the KL |
//! | `k3` | eᵘ − u − 1 | 1 − eᵘ | unbiased, ≥ 0, low variance |
//!
//! **Clamps**: x is clamped to ±`clamp_in`, the value to ±`clamp_out`; the gradient is 0 where a clamp is
//! active. ∞ switches a clamp off.
//!
//! With `clamp_out` = 10, `clamp_in` = 20 changes no value of k3, since u = −20 already has k3 = 19. Clamps
//! by framework (presets: [`Kl::LOW_VAR_KL`], [`Kl::UNCLAMPED_K3`]):
//!
//! | framework | name | clamps |
//! |---|---|---|
//! | verl | `low_var_kl`, `k3` | in 20, out 10; k1, k2: none |
//! | NeMo RL | `k1`, `k2`, `k3` | in 20, out 10 by default |
//! | OpenRLHF, AReaL | `k1`, `k2`, `k3` | out 10 |
//! | slime | `low_var_kl` | out 10 |
//! | slime | `k1`, `k2`, `k3` | none |
//! | TRL | the only one | none |
//!
//! The [policy losses](crate::policy_loss) clamp only k3: clamps of the other estimators need registers that
//! those kernels do not have, so they are available in the ops `kl` and
//! [`kl_importance`](crate::kl_importance) only.
//!
//! The penalty in the reward, r_t − β·k1 under the policy that sampled, is the same estimate without its
//! gradient; for r·k3 see [`kl_importance`](crate::kl_importance).
//!
//! **Straight-through** (verl's `k1+`, `k3+`): the value of the estimator with the gradient of k2.
//!
//! **Accuracy**: k3 is computed with `expm1mx` and its gradient with `expm1`, so there is no cancellation for
//! small u.

use crate::Error;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag, sink};
use crate::require;
use crate::team::{Element, Lane, Team};

/// The estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlFormula {
    /// x.
    K1,
    /// |x|.
    Abs,
    /// x²/2.
    K2,
    /// eᵘ − u − 1.
    K3,
}

crate::launch_args!(
    enum KlFormula {
        K1,
        Abs,
        K2,
        K3,
    }
);

/// An estimator with its clamps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    /// The estimator.
    pub estimator: KlFormula,
    /// Bound on |x|; ∞ for none. verl: 20, for k3.
    pub clamp_in: f32,
    /// Bound on |value|; ∞ for none. verl: 10, for k3.
    pub clamp_out: f32,
    /// Whether to use the gradient of k2 instead of the estimator's own.
    pub straight_through: bool,
}

crate::launch_args!(Kl { estimator, clamp_in, clamp_out, straight_through });

impl Kl {
    /// verl's clamp of the log-ratio before k3's exponential.
    pub const K3_IN: f32 = 20.0;
    /// verl's clamp of k3's value.
    pub const K3_OUT: f32 = 10.0;

    /// k3 with clamps 20 and 10: verl, NeMo RL. slime's `low_var_kl` has the second alone, with the same
    /// results.
    pub const LOW_VAR_KL: Kl = Kl::guarded(KlFormula::K3);
    /// k3 without clamps: TRL, slime's `k3`.
    pub const UNCLAMPED_K3: Kl = Kl::new(KlFormula::K3);

    /// The estimator without clamps.
    pub const fn new(estimator: KlFormula) -> Self {
        Kl { estimator, clamp_in: f32::INFINITY, clamp_out: f32::INFINITY, straight_through: false }
    }

    /// The estimator with the clamps of verl and NeMo RL.
    pub const fn guarded(estimator: KlFormula) -> Self {
        Kl { estimator, clamp_in: Self::K3_IN, clamp_out: Self::K3_OUT, straight_through: false }
    }

    /// Value and d/dlogp of one token.
    #[inline(always)]
    pub fn token<A: Arith>(&self, logp: f32, logp_ref: f32) -> (f32, f32) {
        let x = logp - logp_ref;
        let own = match self.estimator {
            KlFormula::K1 => self.clamped(x, |x| (x, 1.0)),
            KlFormula::Abs => self.clamped(x, abs),
            KlFormula::K2 => self.clamped(x, k2),
            KlFormula::K3 => self.k3::<A>(-x),
        };
        self.passed(x, own)
    }

    /// [`token`](Kl::token) for the estimators without an exponential; see [`free_linear`](Kl::free_linear).
    #[inline(always)]
    pub(crate) fn linear(&self, logp: f32, logp_ref: f32) -> (f32, f32) {
        let x = logp - logp_ref;
        self.passed(x, self.clamped(x, |x| self.any_linear(x)))
    }

    /// Applies an estimator without an exponential between the clamps.
    #[inline(always)]
    fn clamped(&self, x: f32, estimate: impl Fn(f32) -> (f32, f32)) -> (f32, f32) {
        let (x, beyond) = within(x, self.clamp_in);
        let (value, gradient) = estimate(x);
        self.bounded(value, if beyond { 0.0 } else { gradient })
    }

    /// Clamps a value to ±`clamp_out`; the gradient is 0 where that clamp is active.
    #[inline(always)]
    pub(crate) fn bounded(&self, value: f32, gradient: f32) -> (f32, f32) {
        let (value, beyond) = within(value, self.clamp_out);
        (value, if beyond { 0.0 } else { gradient })
    }

    /// The same estimator without `clamp_out`.
    #[inline(always)]
    pub(crate) fn unbounded(self) -> Kl {
        Kl { clamp_out: f32::INFINITY, ..self }
    }

    /// Whether a clamp is set that only the stand-alone KL ops support: one of an estimator other than k3.
    pub fn clamps_apart(&self) -> bool {
        self.estimator != KlFormula::K3 && (self.clamp_in.is_finite() || self.clamp_out.is_finite())
    }

    /// The estimate that the fused op can measure: without such clamps.
    pub fn measured(self) -> Kl {
        if self.clamps_apart() {
            Kl { clamp_in: f32::INFINITY, clamp_out: f32::INFINITY, ..self }
        } else {
            self
        }
    }

    /// [`token`](Kl::token) where [`clamps_apart`](Kl::clamps_apart) is false.
    #[inline(always)]
    pub(crate) fn free<A: Arith>(&self, logp: f32, logp_ref: f32) -> (f32, f32) {
        let x = logp - logp_ref;
        let own = match self.estimator {
            KlFormula::K1 => (x, 1.0),
            KlFormula::Abs => abs(x),
            KlFormula::K2 => k2(x),
            KlFormula::K3 => self.k3::<A>(-x),
        };
        self.passed(x, own)
    }

    /// [`free`](Kl::free) for the estimators without an exponential, by bit masks: on a CPU a three-way
    /// choice becomes a branch and the loop around it stays scalar (measured: 9.7 ns a token, against 1.0
    /// with masks). On AMD the masks need scalar registers that are not available.
    #[inline(always)]
    pub(crate) fn free_linear(&self, logp: f32, logp_ref: f32) -> (f32, f32) {
        let x = logp - logp_ref;
        self.passed(x, self.any_linear(x))
    }

    #[inline(always)]
    fn any_linear(&self, x: f32) -> (f32, f32) {
        let mask = |on: bool| 0u32.wrapping_sub(u32::from(on));
        let (is_abs, is_k2) = (mask(self.estimator == KlFormula::Abs), mask(self.estimator == KlFormula::K2));
        let either = |by_abs: f32, by_k2: f32, by_k1: f32| {
            let others = !(is_abs | is_k2) & by_k1.to_bits();
            f32::from_bits((is_abs & by_abs.to_bits()) | (is_k2 & by_k2.to_bits()) | others)
        };
        let ((size, sign), (half_square, slope)) = (abs(x), k2(x));
        (either(size, half_square, x), either(sign, slope, 1.0))
    }

    /// [`token`](Kl::token) for k3.
    #[inline(always)]
    pub(crate) fn token_k3<A: Arith>(&self, logp: f32, logp_ref: f32) -> (f32, f32) {
        let x = logp - logp_ref;
        self.passed(x, self.k3::<A>(-x))
    }

    /// Applies straight-through: replaces the gradient at x by k2's if it is set.
    #[inline(always)]
    fn passed(&self, x: f32, (value, gradient): (f32, f32)) -> (f32, f32) {
        (value, if self.straight_through { k2(x).1 } else { gradient })
    }

    #[inline(always)]
    fn k3<A: Arith>(&self, raw: f32) -> (f32, f32) {
        let low = if raw < -self.clamp_in { -self.clamp_in } else { raw };
        let u = if low > self.clamp_in { self.clamp_in } else { low };
        let k3 = num::expm1mx::<A>(u);
        let value = if k3 > self.clamp_out { self.clamp_out } else { k3 };
        let clamped = (raw < -self.clamp_in) | (raw > self.clamp_in) | (k3 > self.clamp_out);
        (value, if clamped { 0.0 } else { -num::expm1::<A>(u) })
    }

    /// Checks that the clamps are in their domain.
    ///
    /// Errors: a clamp that is NaN or not positive.
    pub fn check(&self) -> Result<(), Error> {
        require::bound("kl.clamp_in", self.clamp_in)?;
        require::bound("kl.clamp_out", self.clamp_out)
    }
}

/// Clamps x to ±bound, and tells whether it was beyond.
#[inline(always)]
fn within(x: f32, bound: f32) -> (f32, bool) {
    let beyond = x.abs() > bound;
    (if beyond { bound.copysign(x) } else { x }, beyond)
}

/// |x| and its derivative.
#[inline(always)]
fn abs(x: f32) -> (f32, f32) {
    let below = if x < 0.0 { -1.0 } else { 0.0 };
    (x.abs(), if x > 0.0 { 1.0 } else { below })
}

/// x²/2 and its derivative.
#[inline(always)]
fn k2(x: f32) -> (f32, f32) {
    (0.5 * (x * x), x)
}

crate::kernel! {
    /// The op `kl`: value and gradient of a KL estimator for each token.
    pub struct KlDivergence<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Log-probabilities of the policy, `[N]`.
        pub logp: In<'a, f32> [tokens],
        /// Log-probabilities of the reference policy, `[N]`.
        pub logp_ref: In<'a, f32> [tokens],
        /// Estimator and clamps.
        pub kl: Kl where valid,
        /// Value of the estimator, `[N]`.
        pub value: Option<Out<'a, f32>> [tokens],
        /// d value / d logp, `[N]`.
        pub gradient: Option<Out<'a, f32>> [tokens],
        /// Sum of the value over live tokens, `[S]`.
        pub row_sum: Out<'a, f64> [sequences],
        /// Above [`flag::LIMIT`] if a live input or result is bad, `[S]`.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "kl", over cu_seqlens (tokens, sequences);
}

impl KlDivergence<'_> {
    #[inline(always)]
    fn sweep<T: Team>(&self, team: &T, row: usize, estimator: KlFormula) {
        let swept = team.sweep(
            self.cu_seqlens.span(row),
            self.loss_mask,
            [Stream::Array(self.logp), Stream::Array(self.logp_ref)],
            [sink(&self.value), sink(&self.gradient)],
            &Token(Kl { estimator, ..self.kl }),
        );
        if team.leads() {
            self.row_sum.put(row, swept.sums[0]);
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

struct Token(Kl);

impl Element<2, 2, 1, 0> for Token {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<2, 1, 0> {
        let (logp, logp_ref) = (input(0), input(1));
        let inputs = flag::worse(flag::logp(logp), flag::logp(logp_ref));
        let (value, gradient) = self.0.token::<A>(logp, logp_ref);
        let results = flag::worse(flag::finite(value), flag::finite(gradient));
        Lane { out: [value, gradient], sum: [value], max: [], alarm: flag::worse(inputs, results) }
    }
}

impl Kernel for KlDivergence<'_> {
    crate::row_by_variant!(0, 1, 2; 3);

    #[inline(always)]
    fn variant(&self) -> usize {
        self.kl.estimator as usize
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        // One sweep per estimator, so that k1, k2 and abs do not include k3's exponential.
        self.sweep(team, row, const { [KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3][V] });
    }
}

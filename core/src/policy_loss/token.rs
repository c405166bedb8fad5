//! The computation for one token of a policy loss.

use super::{SECOND, sum};
use crate::gate::{self, Gate, Gated, Sample};
use crate::kl::Kl;
use crate::num::{self, Arith};
use crate::ragged::flag;
use crate::ratio::Guard;
use crate::team::{Element, Lane};

/// Outputs: coefficients only.
pub(super) const COEF: u8 = 0;
/// Coefficients and losses.
pub(super) const LOSS: u8 = 1;
/// Coefficients, losses and metrics.
pub(super) const METRICS: u8 = 2;

/// Rows: any.
pub(super) const GENERAL: u8 = 0;
/// The most common call: ratios of tokens, no weights, one advantage per row, and a guard that is a narrow
/// clamp.
pub(super) const NARROW: u8 = 1;
/// The same as [`NARROW`], without a guard.
pub(super) const OPEN: u8 = 2;

/// KL term: none.
pub(super) const NONE: u8 = 0;
/// Any estimator, chosen inside the loop, where every token then pays for all of them (measured: 3.9 ns per
/// token).
pub(super) const ANY: u8 = 1;
/// An estimator without an exponential.
pub(super) const LINEAR: u8 = 2;
/// The estimator k3.
pub(super) const K3: u8 = 3;

/// The computation for one token; the fields are constant over a row.
///
/// KL is [`NONE`], [`ANY`], [`LINEAR`] or [`K3`]; ROWS is [`GENERAL`], [`NARROW`] or [`OPEN`]; WANT is
/// [`COEF`], [`LOSS`] or [`METRICS`].
#[derive(Clone, Copy)]
pub(super) struct Token<G, const KL: u8, const ROWS: u8, const WANT: u8> {
    pub(super) gate: G,
    /// The log-ratio of the row, at sequence level.
    pub(super) sequence: Option<Sequence>,
    /// Whether input 1 is the log-ratio.
    pub(super) given: bool,
    pub(super) guard: Guard,
    pub(super) kl: Kl,
    pub(super) kl_coef: f32,
    /// Whether the KL term is multiplied by the token's weight.
    pub(super) kl_weighted: bool,
    /// Aggregation weight W of the row.
    pub(super) weight: f32,
    /// Advantage of the row, unless there is one per token.
    pub(super) advantage: f32,
    pub(super) band: [f32; 2],
}

/// A log-ratio that all tokens of a row share, and whether it was within its bound.
#[derive(Clone, Copy)]
pub(super) struct Sequence {
    pub(super) log_ratio: f32,
    pub(super) inside: bool,
}

impl Sequence {
    /// Computes it from the sum of the log-ratios of `tokens` live tokens.
    #[inline(always)]
    pub(super) fn of(sum: f64, tokens: u64, log_max: f32) -> Self {
        let mean = num::div64(sum, if tokens > 1 { tokens as f64 } else { 1.0 }) as f32;
        // A NaN is not inside.
        Sequence { log_ratio: if mean > log_max { log_max } else { mean }, inside: mean <= log_max }
    }
}

/// Sums log-ratios. CHECKED adds the alarms of the log-probabilities, for when no later sweep reads them.
pub(super) struct LogRatio<const CHECKED: bool>;

impl<const CHECKED: bool> Element<2, 0, 1, 0> for LogRatio<CHECKED> {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        let alarm = if CHECKED { flag::worse(flag::logp(input(0)), flag::logp(input(1))) } else { 0 };
        Lane { out: [], sum: [input(0) - input(1)], max: [], alarm }
    }
}

/// A row whose tokens all have the same results: a ratio per sequence, one advantage, and no other per-token
/// input.
///
/// The caller raises the row's alarm, because a constant alarm here keeps LLVM from vectorising. A NaN must
/// therefore be canonical already.
#[derive(Clone, Copy)]
pub(super) struct Uniform {
    pub(super) coef: f32,
    pub(super) loss: f32,
}

impl Element<1, 2, 1, 0> for Uniform {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], _input: impl Fn(usize) -> f32) -> Lane<2, 1, 0> {
        Lane { out: [self.coef, self.loss], sum: [self.loss], max: [], alarm: 0 }
    }
}

/// The results for one token, from which the outputs are selected.
struct Computed {
    coef: f32,
    loss: f32,
    policy: f32,
    kl: f32,
    log_ratio: f32,
    inside: bool,
    gate: Gated,
    alarm: u32,
}

impl<G: Gate, const KL: u8, const ROWS: u8, const WANT: u8> Token<G, KL, ROWS, WANT> {
    /// Whether the ratio is a stage; if the gate does not read it, only the metrics need it.
    const RATIO: bool = G::RATIO || WANT == METRICS;

    const STAGES: usize = Self::RATIO as usize + G::STAGED as usize;

    #[inline(always)]
    fn advantage(&self, input: &impl Fn(usize) -> f32) -> f32 {
        if ROWS == GENERAL { input(2) } else { self.advantage }
    }

    #[inline(always)]
    fn sample<A: Arith>(&self, ratio: f32, input: &impl Fn(usize) -> f32) -> Sample {
        let (logp, logp_old) = (input(0), input(1));
        let logp_second = if G::SECOND { input(SECOND) } else { 0.0 };
        let own_ratio = match (G::READS_OWN, ROWS) {
            (false, _) => 1.0,
            (true, NARROW) => ratio,
            (true, _) => num::exp_normal::<A>(Guard::clamp(gate::OWN_BOUND).apply_as::<A>(logp - logp_old).0),
        };
        let finite = ROWS == NARROW;
        Sample { ratio, finite, advantage: self.advantage(input), logp, logp_old, logp_second, own_ratio }
    }

    /// The token's own log-ratio.
    #[inline(always)]
    fn own(&self, input: &impl Fn(usize) -> f32) -> f32 {
        if ROWS == GENERAL && self.given { input(1) } else { input(0) - input(1) }
    }

    /// The log-ratio to exponentiate for a token whose own is `d`, and whether it was within its bound.
    #[inline(always)]
    fn log_ratio<A: Arith>(&self, d: f32) -> (f32, bool) {
        let given = if ROWS == GENERAL { self.sequence.map(|of| (of.log_ratio, of.inside)) } else { None };
        // Bounded in any case, so that LLVM makes no branch of it.
        if !A::BOUNDS {
            let own = self.guard.apply(d);
            return given.unwrap_or(own);
        }
        // REINFORCE's metrics fill the registers of 16 warps: with the other instructions `ptxas` spills.
        given.unwrap_or_else(|| if G::RATIO { self.guard.apply_as::<A>(d) } else { self.guard.apply(d) })
    }

    /// Stage 0 is the ratio, stage 1 the gate's.
    #[inline(always)]
    fn stage<A: Arith>(&self, number: usize, staged: [f32; 2], input: impl Fn(usize) -> f32) -> (f32, u32) {
        if number == 1 {
            let value = self.gate.stage::<A>(self.sample::<A>(staged[0], &input));
            return (value, if G::STAGE_FINITE { 0 } else { flag::finite(value) });
        }
        let alarm = self.faults(&input);
        let own = self.own(&input);
        if ROWS == OPEN {
            return (num::exp::<A>(own), alarm);
        }
        if ROWS == NARROW && WANT == COEF && !G::SCORE {
            // Outside the guard the gradient is 0 (except of a score gate). Without losses, which need the
            // ratio itself, a ratio of 0 achieves that: it saves the clamp, and the element's guard.
            let ratio = num::exp_normal::<A>(own);
            return (if self.guard.holds(own) { ratio } else { 0.0 }, alarm);
        }
        let (d, _) = self.log_ratio::<A>(own);
        // The same bits in half the operations.
        (if ROWS == NARROW { num::exp_normal::<A>(d) } else { num::exp::<A>(d) }, alarm)
    }

    /// The alarm for the log-probabilities.
    #[inline(always)]
    fn faults(&self, input: &impl Fn(usize) -> f32) -> u32 {
        let second = input(1);
        let fault = if ROWS == GENERAL && self.given { flag::finite(second) } else { flag::logp(second) };
        let mut alarm = flag::worse(flag::logp(input(0)), fault);
        if G::SECOND {
            alarm = flag::worse(alarm, self.gate.second_fault(input(SECOND)));
        }
        alarm
    }

    #[inline(always)]
    fn compute<A: Arith>(&self, [ratio, of_gate]: [f32; 2], input: impl Fn(usize) -> f32) -> Computed {
        let d = self.own(&input);
        let (guarded, inside) = match (ROWS, WANT) {
            (NARROW, COEF) => (0.0, true),
            // As everywhere else, a NaN is not inside.
            (OPEN, _) => (0.0, !d.is_nan()),
            (NARROW, LOSS) => (0.0, self.guard.holds(d)),
            _ => self.log_ratio::<A>(d),
        };
        // Statistics of log-ratios are per token, at every level.
        let log_ratio = if self.sequence.is_some() { d } else { guarded };
        let gate = self.gate.gate_staged::<A>(self.sample::<A>(ratio, &input), of_gate);
        let gradient = match self.sequence {
            _ if G::SCORE => gate.gradient,
            None if ROWS == GENERAL => self.guard.gradient(gate.gradient, inside),
            // No other guard keeps the gradient outside.
            _ if inside => gate.gradient,
            _ => 0.0,
        };
        let mut alarm = if Self::RATIO { 0 } else { self.faults(&input) };
        let (policy, policy_gradient) = if ROWS != GENERAL {
            (gate.loss, gradient)
        } else {
            let weight = input(3);
            // Checked even where it does not reach a result: a clipped token's coefficient is 0 whatever its
            // advantage.
            alarm = flag::worse(alarm, flag::worse(flag::weight(weight), flag::finite(input(2))));
            (weight * gate.loss, weight * gradient)
        };
        let (mut loss, mut total, mut kl) = (policy, policy_gradient, 0.0);
        if KL != NONE {
            let logp_ref = input(4);
            alarm = flag::worse(alarm, flag::logp(logp_ref));
            let (value, kl_gradient) = match KL {
                LINEAR => self.kl.free_linear(input(0), logp_ref),
                K3 => self.kl.token_k3::<A>(input(0), logp_ref),
                _ => self.kl.free::<A>(input(0), logp_ref),
            };
            kl = value;
            let coef =
                if ROWS == GENERAL && self.kl_weighted { self.kl_coef * input(3) } else { self.kl_coef };
            loss = A::fma(coef, value, policy);
            total = A::fma(coef, kl_gradient, policy_gradient);
        }
        // + 0: a coefficient is never −0, however it became 0.
        let coef = self.weight * total + 0.0;
        alarm = flag::worse(alarm, flag::finite(coef));
        if WANT != COEF && ROWS == GENERAL {
            alarm = flag::worse(alarm, flag::finite(loss));
        }
        Computed { coef, loss, policy, kl, log_ratio, inside, gate, alarm }
    }
}

impl<G: Gate, const J: usize, const KL: u8, const ROWS: u8> Element<J, 1, 0, 0> for Token<G, KL, ROWS, COEF> {
    const SHORT_OFFSETS: bool = G::SHORT_OFFSETS;
    const STAGES: usize = Self::STAGES;

    #[inline(always)]
    fn stage<A: Arith>(&self, number: usize, staged: [f32; 2], input: impl Fn(usize) -> f32) -> (f32, u32) {
        self.stage::<A>(number, staged, input)
    }

    #[inline(always)]
    fn element<A: Arith>(&self, staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let t = self.compute::<A>(staged, &input);
        Lane { out: [t.coef], sum: [], max: [], alarm: t.alarm }
    }
}

/// What is written for a token: its coefficient, and its loss if M is 2. A loss that is only summed is not
/// checked here: one that is not finite makes the sum not finite, which the row checks.
#[inline(always)]
fn written<const M: usize>(coef: f32, loss: f32) -> [f32; M] {
    core::array::from_fn(|m| if m == 0 { coef } else { loss })
}

impl<G: Gate, const J: usize, const M: usize, const KL: u8, const ROWS: u8> Element<J, M, 1, 0>
    for Token<G, KL, ROWS, LOSS>
{
    const SHORT_OFFSETS: bool = G::SHORT_OFFSETS;
    const STAGES: usize = Self::STAGES;

    #[inline(always)]
    fn stage<A: Arith>(&self, number: usize, staged: [f32; 2], input: impl Fn(usize) -> f32) -> (f32, u32) {
        self.stage::<A>(number, staged, input)
    }

    #[inline(always)]
    fn element<A: Arith>(&self, staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<M, 1, 0> {
        let t = self.compute::<A>(staged, &input);
        Lane { out: written(t.coef, t.loss), sum: [t.loss], max: [], alarm: t.alarm }
    }
}

impl<G: Gate, const J: usize, const M: usize, const KL: u8, const ROWS: u8> Element<J, M, { sum::SUMS }, 2>
    for Token<G, KL, ROWS, METRICS>
{
    const COUNTS: u32 = sum::COUNTS | (G::SWITCH as u32) << sum::GATE;
    const SHORT_OFFSETS: bool = G::SHORT_OFFSETS;
    const STAGES: usize = Self::STAGES;

    #[inline(always)]
    fn stage<A: Arith>(&self, number: usize, staged: [f32; 2], input: impl Fn(usize) -> f32) -> (f32, u32) {
        self.stage::<A>(number, staged, input)
    }

    #[inline(always)]
    fn element<A: Arith>(&self, staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<M, { sum::SUMS }, 2> {
        let t = self.compute::<A>(staged, &input);
        let ratio = staged[0];
        let excess = ratio - 1.0;
        let clip = |bit| num::count(t.gate.clipped & bit != 0);
        let in_band = (ratio >= self.band[0]) & (ratio <= self.band[1]);
        let sum = [
            t.loss,
            // Without a KL term, the row copies the sum of the losses.
            if KL == NONE { 0.0 } else { t.policy },
            t.kl,
            -t.log_ratio,
            excess,
            excess * excess,
            t.gate.weight,
            clip(gate::CLIP_HIGH),
            clip(gate::CLIP_LOW),
            clip(gate::CLIP_DUAL),
            num::count(!t.inside),
            num::count(in_band),
            -input(0),
        ];
        Lane { out: written(t.coef, t.loss), sum, max: [ratio, -ratio], alarm: t.alarm }
    }
}

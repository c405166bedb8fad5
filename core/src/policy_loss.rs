//! The fused policy loss: ratio → gate → weight → aggregation, with dL/dlogp in closed form.
//!
//! **Formula** (maths.md §0.3, §1.1, §2): with r = exp(guard(logp − logp_old)), l = w·gate(r, A) + kl_coef·kl and the
//! aggregation weight W of the sequence,
//!
//! ```text
//! L = Σ W·l          coef[t] = dL/dlogp[t] = W·(w·dgate/dlogp + kl_coef·dkl/dlogp)
//! ```
//!
//! A and w are constants; no gradient flows through them, through W, or through `logp_old` and `logp_ref`. w multiplies
//! *after* clipping (verl, TRL, AReaL and slime agree).
//!
//! **Shapes**: per token `[N]`, per sequence `[S]`; `row_sums` `[SUMS][S]`, `row_maxima` `[2][S]`. Each token is read once
//! and its coefficient written once; loss per token and metrics are optional.
//!
//! **Special cases**: masked tokens have coef 0 and enter nothing. A = 0 gives 0 exactly. Outside the guard the gradient is
//! the guard's. Bad inputs of live tokens raise the row's [alarm](flag); nothing else is promised of that row.

use crate::Error;
use crate::aggregate::Weight;
use crate::gate::{self, Gate, Gated};
use crate::kl::{Estimator, Kl};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Sink, Stream, flag};
use crate::ratio::Guard;
use crate::ratio::token::Ratio;
use crate::team::{Element, Lane, Team};

/// Index of each statistic in `row_sums`. All but the first are sums over live tokens.
pub mod sum {
    /// W·Σ l: the sequence's share of the loss, KL included. Written with or without metrics.
    pub const LOSS: usize = 0;
    /// w·gate loss.
    pub const POLICY: usize = 1;
    /// KL to the reference (0 without one).
    pub const KL_REF: usize = 2;
    /// −d, guarded: the k1 estimate of KL(old ‖ current), verl's `ppo_kl`.
    pub const K1: usize = 3;
    /// r.
    pub const RATIO: usize = 4;
    /// r².
    pub const RATIO_SQUARED: usize = 5;
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
}

/// The KL term of a policy loss.
#[derive(Clone, Copy, Debug)]
pub struct KlTerm<'a> {
    /// Log-probabilities of the reference, `[N]`.
    pub logp_ref: In<'a, f32>,
    /// Estimator and guards.
    pub kl: Kl,
    /// β; the term is β·kl.
    pub coef: f32,
}

/// Where metrics go.
#[derive(Clone, Copy, Debug)]
pub struct MetricsOut<'a> {
    /// `[SUMS][S]`, see [`sum`]; entry [`sum::LOSS`] is written to `row_loss` instead.
    pub row_sums: Out<'a, f64>,
    /// max r and max −r, `[2][S]`.
    pub row_maxima: Out<'a, f32>,
    /// Band of [`sum::IN_BAND`], as ratios.
    pub band: [f32; 2],
}

/// The ops `policy_loss_*`, one per gate.
#[derive(Clone, Copy, Debug)]
pub struct PolicyLoss<'a, G> {
    /// Offsets of sequences, `[S+1]`.
    pub cu_seqlens: Offsets<'a>,
    /// Which tokens take part, `[N]`.
    pub loss_mask: Mask<'a>,
    /// Log-probabilities of the current policy, `[N]`; the only differentiable input.
    pub logp: In<'a, f32>,
    /// Log-probabilities of the proximal policy, `[N]`.
    pub logp_old: In<'a, f32>,
    /// Advantage, `[S]` or `[N]`.
    pub advantage: In<'a, f32>,
    /// Whether `advantage` has one entry per token.
    pub advantage_per_token: bool,
    /// Rollout-correction weights, `[N]`; absent = 1.
    pub weights: Option<In<'a, f32>>,
    /// Guard of the log-ratio.
    pub guard: Guard,
    /// The gate.
    pub gate: G,
    /// KL to a reference, if any.
    pub kl: Option<KlTerm<'a>>,
    /// Aggregation.
    pub weight: Weight,
    /// dL/dlogp, `[N]`.
    pub coef: Out<'a, f32>,
    /// l per token, without W, `[N]`.
    pub token_loss: Sink<'a>,
    /// W·Σ l, `[S]`.
    pub row_loss: Out<'a, f64>,
    /// Live tokens, `[S]`.
    pub row_tokens: Out<'a, u32>,
    /// Above [`flag::LIMIT`] where a live input or result is bad, `[S]`.
    pub row_alarm: Out<'a, u32>,
    /// Metrics, if wanted.
    pub metrics: Option<MetricsOut<'a>>,
}

impl<G: Gate> PolicyLoss<'_, G> {
    #[inline(always)]
    fn sweep<
        T: Team,
        const KL: bool,
        const K: usize,
        const E: usize,
        const METRICS: bool,
        const NARROW: bool,
    >(
        &self,
        team: &T,
        row: usize,
        band: [f32; 2],
    ) where
        Token<G, KL, METRICS, NARROW>: Element<5, 2, K, E>,
    {
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let tokens = team.count(span, mask);
        let weight = self.weight.of(tokens);
        let advantage = if self.advantage_per_token {
            Stream::Array(self.advantage)
        } else {
            Stream::Constant(self.advantage.at(row))
        };
        let [logp, logp_old] = [Stream::Array(self.logp), Stream::Array(self.logp_old)];
        let logp_ref = Stream::or(self.kl.map(|term| term.logp_ref), 0.0);
        let ins = [logp, logp_old, advantage, Stream::or(self.weights, 1.0), logp_ref];
        let (kl, kl_coef) = self.kl.map_or((Kl::new(Estimator::K1), 0.0), |term| (term.kl, term.coef));
        let token = Token { gate: self.gate, guard: self.guard, kl, kl_coef, weight: weight as f32, band };
        let swept = team.sweep(span, mask, ins, [Some(self.coef), self.token_loss], &token);
        team.leader(|| {
            let rows = self.cu_seqlens.rows();
            self.row_loss.put(row, weight * swept.sums[sum::LOSS]);
            // A row has fewer than 2³² tokens: its offsets are u32.
            self.row_tokens.put(row, tokens as u32);
            self.row_alarm.put(row, swept.alarm);
            if let Some(metrics) = self.metrics {
                for (k, &value) in swept.sums.iter().enumerate() {
                    metrics.row_sums.put(k * rows + row, if k == sum::LOSS { weight * value } else { value });
                }
                for (k, &value) in swept.maxima.iter().enumerate() {
                    metrics.row_maxima.put(k * rows + row, value);
                }
            }
        });
    }

    /// Whether the scalar parameters are in their domain.
    pub fn check(&self) -> Result<(), Error> {
        self.gate.check()?;
        self.guard.check()?;
        if let Some(term) = &self.kl {
            term.kl.check()?;
            gate::check_scalar("kl.coef", term.coef, term.coef.is_finite(), "a finite number")?;
        }
        Ok(())
    }
}

impl<G: Gate> Kernel for PolicyLoss<'_, G> {
    const NAME: &'static str = G::POLICY_LOSS;

    fn rows(&self) -> usize {
        self.cu_seqlens.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_seqlens.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        // A sweep for each need, so that who wants coefficients only pays for nothing else.
        match (self.kl.is_some(), self.metrics) {
            (false, None) if self.guard.is_narrow() => {
                self.sweep::<T, false, 1, 0, false, true>(team, row, [0.0; 2]);
            }
            (false, None) => self.sweep::<T, false, 1, 0, false, false>(team, row, [0.0; 2]),
            (true, None) => self.sweep::<T, true, 1, 0, false, false>(team, row, [0.0; 2]),
            (false, Some(m)) => self.sweep::<T, false, { sum::SUMS }, 2, true, false>(team, row, m.band),
            (true, Some(m)) => self.sweep::<T, true, { sum::SUMS }, 2, true, false>(team, row, m.band),
        }
    }
}

/// One token of a row, with or without the KL term and the metrics; NARROW: the guard is.
#[derive(Clone, Copy)]
struct Token<G, const KL: bool, const METRICS: bool, const NARROW: bool> {
    gate: G,
    guard: Guard,
    kl: Kl,
    kl_coef: f32,
    /// W of the row.
    weight: f32,
    band: [f32; 2],
}

/// What is computed of one token before anything is selected for output.
struct Computed {
    coef: f32,
    loss: f32,
    policy: f32,
    kl: f32,
    ratio: Ratio,
    gate: Gated,
    alarm: u32,
}

impl<G: Gate, const KL: bool, const METRICS: bool, const NARROW: bool> Token<G, KL, METRICS, NARROW> {
    #[inline(always)]
    fn ratio<A: Arith>(&self, input: impl Fn(usize) -> f32) -> (f32, u32) {
        let (logp, logp_old) = (input(0), input(1));
        let alarm = flag::worse(flag::logp(logp), flag::logp(logp_old));
        let (d, _) = self.guard.apply(logp - logp_old);
        // The same bits either way.
        (if NARROW { num::exp_normal::<A>(d) } else { num::exp::<A>(d) }, alarm)
    }

    #[inline(always)]
    fn compute<A: Arith>(&self, ratio: f32, input: impl Fn(usize) -> f32) -> Computed {
        let mut alarm = 0;
        let (log_ratio, inside) = self.guard.apply(input(0) - input(1));
        let ratio = Ratio { log_ratio, ratio, inside };
        let gate = self.gate.gate::<A>(ratio.ratio, input(2));
        let weight = input(3);
        let (policy, gradient) =
            (weight * gate.loss, weight * self.guard.gradient(gate.gradient, ratio.inside));
        alarm = flag::worse(alarm, flag::weight(weight));
        let (mut loss, mut total, mut kl) = (policy, gradient, 0.0);
        if KL {
            let logp_ref = input(4);
            alarm = flag::worse(alarm, flag::logp(logp_ref));
            let (value, kl_gradient) = self.kl.token::<A>(input(0), logp_ref);
            kl = value;
            loss = A::fma(self.kl_coef, value, policy);
            total = A::fma(self.kl_coef, kl_gradient, gradient);
        }
        let coef = self.weight * total;
        // An advantage that is not finite shows here.
        alarm = flag::worse(alarm, flag::worse(flag::finite(coef), flag::finite(loss)));
        Computed { coef, loss, policy, kl, ratio, gate, alarm }
    }
}

impl<G: Gate, const KL: bool, const NARROW: bool> Element<5, 2, 1, 0> for Token<G, KL, false, NARROW> {
    const STAGED: bool = true;

    #[inline(always)]
    fn stage<A: Arith>(&self, input: impl Fn(usize) -> f32) -> (f32, u32) {
        self.ratio::<A>(input)
    }

    #[inline(always)]
    fn element<A: Arith>(&self, staged: f32, input: impl Fn(usize) -> f32) -> Lane<2, 1, 0> {
        let t = self.compute::<A>(staged, &input);
        Lane { out: [t.coef, t.loss], sum: [t.loss], max: [], alarm: t.alarm }
    }
}

impl<G: Gate, const KL: bool, const NARROW: bool> Element<5, 2, { sum::SUMS }, 2>
    for Token<G, KL, true, NARROW>
{
    const STAGED: bool = true;

    #[inline(always)]
    fn stage<A: Arith>(&self, input: impl Fn(usize) -> f32) -> (f32, u32) {
        self.ratio::<A>(input)
    }

    #[inline(always)]
    fn element<A: Arith>(&self, staged: f32, input: impl Fn(usize) -> f32) -> Lane<2, { sum::SUMS }, 2> {
        let t = self.compute::<A>(staged, &input);
        let Ratio { log_ratio, ratio, inside } = t.ratio;
        let clip = |bit| num::count(t.gate.clipped & bit != 0);
        let in_band = (ratio >= self.band[0]) & (ratio <= self.band[1]);
        let sum = [
            t.loss,
            t.policy,
            t.kl,
            -log_ratio,
            ratio,
            ratio * ratio,
            t.gate.weight,
            clip(gate::CLIP_HIGH),
            clip(gate::CLIP_LOW),
            clip(gate::CLIP_DUAL),
            num::count(!inside),
            num::count(in_band),
            -input(0),
        ];
        Lane { out: [t.coef, t.loss], sum, max: [ratio, -ratio], alarm: t.alarm }
    }
}

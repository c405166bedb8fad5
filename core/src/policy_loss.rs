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
//! the guard's. Bad inputs of live tokens set a [`flag`]; nothing else is promised of that row.

use crate::Error;
use crate::aggregate::Weight;
use crate::gate::{self, Gate};
use crate::kl::Kl;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Sink, Stream};
use crate::ratio::{Guard, token::token_ratio};
use crate::team::{Lane, Swept, Team};

/// Bits that a row reports about the arguments of its live tokens.
pub mod flag {
    /// `logp` has a value that is no log-probability.
    pub const LOGP: u32 = 1;
    /// `logp_old` has one.
    pub const LOGP_OLD: u32 = 2;
    /// `logp_ref` has one.
    pub const LOGP_REF: u32 = 4;
    /// `advantage` has a value that is not finite.
    pub const ADVANTAGE: u32 = 8;
    /// `weights` has a value that is not finite or below 0.
    pub const WEIGHTS: u32 = 16;
    /// `values` has a value that is not finite.
    pub const VALUES: u32 = 32;
    /// A result is not finite.
    pub const RESULT: u32 = 64;

    /// `bit` unless x is finite and at most 0.
    #[inline(always)]
    pub fn bad_logp(x: f32, bit: u32) -> u32 {
        // One comparison pair; a NaN fails both.
        if (x <= 0.0) & (x >= f32::MIN) { 0 } else { bit }
    }

    /// `bit` unless x is finite.
    #[inline(always)]
    pub fn not_finite(x: f32, bit: u32) -> u32 {
        if x.abs() <= f32::MAX { 0 } else { bit }
    }
}

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
    /// [`flag`] bits, `[S]`.
    pub row_flags: Out<'a, u32>,
    /// Metrics, if wanted.
    pub metrics: Option<MetricsOut<'a>>,
}

/// What is computed of one token before anything is selected for output.
#[derive(Clone, Copy)]
struct Token {
    loss: f32,
    coef: f32,
    flags: u32,
    policy: f32,
    kl: f32,
    log_ratio: f32,
    ratio: f32,
    inside: bool,
    gate: gate::Gated,
}

impl<G: Gate> PolicyLoss<'_, G> {
    #[inline(always)]
    fn token<T: Team>(&self, x: [f32; 4], row_weight: f32, kl_term: Option<(Kl, f32, f32)>) -> Token {
        let [logp, logp_old, advantage, weight] = x;
        let r = token_ratio::<T::Arith>(logp, logp_old, self.guard);
        let gate = self.gate.gate::<T::Arith>(r.ratio, advantage);
        let gradient = self.guard.gradient(gate.gradient, r.inside);
        let (policy, policy_gradient) = (weight * gate.loss, weight * gradient);
        let mut flags = flag::bad_logp(logp, flag::LOGP)
            | flag::bad_logp(logp_old, flag::LOGP_OLD)
            | flag::not_finite(advantage, flag::ADVANTAGE)
            | if weight >= 0.0 { flag::not_finite(weight, flag::WEIGHTS) } else { flag::WEIGHTS };
        let (mut loss, mut total, mut kl) = (policy, policy_gradient, 0.0);
        if let Some((estimator, coef, logp_ref)) = kl_term {
            let (value, gradient) = estimator.token::<T::Arith>(logp, logp_ref);
            kl = value;
            loss = <T::Arith as num::Arith>::fma(coef, value, policy);
            total = <T::Arith as num::Arith>::fma(coef, gradient, policy_gradient);
            flags |= flag::bad_logp(logp_ref, flag::LOGP_REF);
        }
        let coef = row_weight * total;
        flags |= flag::not_finite(coef, flag::RESULT) | flag::not_finite(loss, flag::RESULT);
        Token {
            loss,
            coef,
            flags,
            policy,
            kl,
            log_ratio: r.log_ratio,
            ratio: r.ratio,
            inside: r.inside,
            gate,
        }
    }

    /// Coefficients and loss only.
    #[inline(always)]
    fn plain(t: Token) -> Lane<2, 1, 0> {
        Lane { out: [t.coef, t.loss], sum: [t.loss], max: [], flags: t.flags }
    }

    /// Coefficients, loss and every metric.
    #[inline(always)]
    fn measured(t: Token, logp: f32, [low, high]: [f32; 2]) -> Lane<2, { sum::SUMS }, 2> {
        let clip = |bit| num::count(t.gate.clipped & bit != 0);
        let in_band = (t.ratio >= low) & (t.ratio <= high);
        let sums = [
            t.loss,
            t.policy,
            t.kl,
            -t.log_ratio,
            t.ratio,
            t.ratio * t.ratio,
            t.gate.weight,
            clip(gate::CLIP_HIGH),
            clip(gate::CLIP_LOW),
            clip(gate::CLIP_DUAL),
            num::count(!t.inside),
            num::count(in_band),
            -logp,
        ];
        Lane { out: [t.coef, t.loss], sum: sums, max: [t.ratio, -t.ratio], flags: t.flags }
    }

    #[inline(always)]
    fn finish<T: Team, const K: usize, const E: usize>(
        &self,
        team: &T,
        row: usize,
        (tokens, weight): (u64, f64),
        swept: Swept<K, E>,
    ) {
        team.leader(|| {
            let rows = self.cu_seqlens.rows();
            self.row_loss.put(row, weight * swept.sums[sum::LOSS]);
            // A row has fewer than 2³² tokens: its offsets are u32.
            self.row_tokens.put(row, tokens as u32);
            self.row_flags.put(row, swept.flags);
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
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let tokens = team.count(span, mask);
        let weight = self.weight.of(tokens);
        let (at, w) = ((tokens, weight), weight as f32);
        let advantage = if self.advantage_per_token {
            Stream::Array(self.advantage)
        } else {
            Stream::Constant(self.advantage.at(row))
        };
        let [logp, logp_old] = [Stream::Array(self.logp), Stream::Array(self.logp_old)];
        let weights = Stream::or(self.weights, 1.0);
        let outs = [Some(self.coef), self.token_loss];
        // Four sweeps, so that who wants coefficients only pays for nothing else.
        match (self.kl, self.metrics) {
            (None, None) => {
                let ins = [logp, logp_old, advantage, weights];
                let swept = team.sweep(span, mask, ins, outs, |x| Self::plain(self.token::<T>(x, w, None)));
                self.finish(team, row, at, swept);
            }
            (None, Some(metrics)) => {
                let ins = [logp, logp_old, advantage, weights];
                let swept = team.sweep(span, mask, ins, outs, |x| {
                    Self::measured(self.token::<T>(x, w, None), x[0], metrics.band)
                });
                self.finish(team, row, at, swept);
            }
            (Some(term), None) => {
                let ins = [logp, logp_old, advantage, weights, Stream::Array(term.logp_ref)];
                let swept = team.sweep(span, mask, ins, outs, |[a, b, c, d, logp_ref]| {
                    Self::plain(self.token::<T>([a, b, c, d], w, Some((term.kl, term.coef, logp_ref))))
                });
                self.finish(team, row, at, swept);
            }
            (Some(term), Some(metrics)) => {
                let ins = [logp, logp_old, advantage, weights, Stream::Array(term.logp_ref)];
                let swept = team.sweep(span, mask, ins, outs, |[a, b, c, d, logp_ref]| {
                    let token = self.token::<T>([a, b, c, d], w, Some((term.kl, term.coef, logp_ref)));
                    Self::measured(token, a, metrics.band)
                });
                self.finish(team, row, at, swept);
            }
        }
    }
}

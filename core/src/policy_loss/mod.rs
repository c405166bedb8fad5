//! The fused policy loss: ratio → gate → weight → aggregation, with dL/dlogp in closed form.
//!
//! **Formula** (`conventions.md`, `aggregation.md` and `gates.md` in docs/maths), with the ratio
//! r = exp(guard(logp − logp_old)) (or the ratio of another [`RatioGranularity`]), the token loss
//! l = w·gate(r, A) + kl_coef·kl, and the aggregation weight W of the sequence:
//!
//! ```text
//! L = Σ W·l          coef[t] = dL/dlogp[t] = W·(w·dgate/dlogp + kl_coef·dkl/dlogp)
//! ```
//!
//! A and w are constants: no gradient flows through them, through W, or through `logp_old` and `logp_ref`. w
//! multiplies *after* clipping (verl, TRL, AReaL and slime agree).
//!
//! **Shapes**: per token `[N]`, per sequence `[S]`; `row_sums` `[SUMS][S]`, `row_maxima` `[2][S]`.
//! Log-probabilities are in nats. Each token is read once and its coefficient written once; token losses and
//! metrics are optional.
//!
//! **Special cases**: masked tokens have a coefficient of 0 and enter no sum. A = 0 gives exactly 0 for the
//! policy term. Outside the guard's bound, the [guard](Guard) decides the gradient. Invalid inputs of live
//! tokens raise the row's [alarm](crate::ragged::flag); the other outputs of that row are then unspecified.

pub mod gmpo;
pub mod sequence_weight;
pub mod sum;
mod token;
mod variants;

pub use gmpo::PolicyLossGmpo;
pub use sequence_weight::{SequenceRule, SequenceWeight};

use crate::Error;
use crate::aggregate::{Weight, WeightFrom};
use crate::gate::{Gate, Sample};
use crate::kl::{Kl, KlFormula};
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span, Stream, flag, sink};
use crate::ratio::{Guard, RatioGranularity};
use crate::require;
use crate::team::{Element, Team};
use token::{LogRatio, Sequence, Token, Uniform};
use variants::{NARROW_LOSS, SECOND};

/// The KL term of a policy loss.
#[derive(Clone, Copy, Debug)]
pub struct KlTerm<'a> {
    /// Log-probabilities of the reference, `[N]`.
    pub logp_ref: In<'a, f32>,
    /// Estimator of the KL and its guards.
    pub kl: Kl,
    /// Coefficient β (kl_coef); the term is β·kl.
    pub coef: f32,
    /// Whether the term is multiplied by the token's weight w, as the policy term is.
    pub weighted: bool,
}

crate::launch_args!(KlTerm<'_> { logp_ref, kl, coef, weighted });

/// The loss outputs of a policy loss.
#[derive(Debug)]
pub struct LossOut<'a> {
    /// Loss l of each token, without W, `[N]`.
    pub token_loss: Option<Out<'a, f32>>,
    /// Loss W·Σ l of each sequence, `[S]`.
    pub row_loss: Out<'a, f64>,
}

crate::launch_args!(LossOut<'_> { token_loss, row_loss });

/// The metric outputs of a policy loss.
#[derive(Debug)]
pub struct MetricsOut<'a> {
    /// Statistics of each sequence, `[SUMS][S]`; see [`sum`].
    pub row_sums: Out<'a, f64>,
    /// max r and max −r, `[2][S]`.
    pub row_maxima: Out<'a, f32>,
    /// Lower and upper bound of the ratios counted by [`sum::IN_BAND`].
    pub band: [f32; 2],
}

crate::launch_args!(MetricsOut<'_> { row_sums, row_maxima, band });

impl MetricsOut<'_> {
    fn check_bounds(&self, sequences: usize) -> Result<(), Error> {
        crate::lengths!(self; sum::SUMS * sequences => row_sums; 2 * sequences => row_maxima);
        Ok(())
    }
}

crate::kernel! {
    /// The ops `policy_loss_*`, one per gate: a gradient coefficient per token, and optional losses and
    /// metrics.
    pub struct PolicyLoss<'a, G: Gate> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Log-probabilities of the current policy, `[N]`; the only differentiable input.
        pub logp: In<'a, f32> [tokens],
        /// Log-probabilities of the proximal policy, `[N]`; at [`RatioGranularity::Given`], the log-ratios
        /// themselves.
        pub logp_old: In<'a, f32> [tokens],
        /// Log-probabilities of the second policy, or another array that the gate reads in their place,
        /// `[N]`; absent = `logp_old`.
        pub logp_second: Option<In<'a, f32>> [tokens],
        /// Advantage, `[S]` or `[N]`.
        pub advantage: In<'a, f32> [advantages],
        /// Whether `advantage` has one entry per token.
        pub advantage_per_token: bool,
        /// Rollout-correction weights, `[N]`; absent = 1.
        pub weights: Option<In<'a, f32>> [tokens],
        /// The level at which the ratio is taken.
        pub level: RatioGranularity where valid,
        /// Guard of the token log-ratio.
        pub guard: Guard where valid,
        /// The gate.
        pub gate: G where valid,
        /// KL to a reference, if any.
        pub kl: Option<KlTerm<'a>>,
        /// Aggregation weight W of a sequence.
        pub weight: Weight,
        /// Numbers of the aggregation that are read from memory.
        pub weight_from: WeightFrom<'a>,
        /// Gradient dL/dlogp, `[N]`.
        pub coef: Out<'a, f32> [tokens],
        /// Losses, if requested.
        pub loss: Option<LossOut<'a>>,
        /// Number of live tokens, `[S]`.
        pub row_tokens: Out<'a, u32> [sequences],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input or a result is invalid.
        pub row_alarm: Out<'a, u32> [sequences],
        /// Metrics, if requested; they require the losses.
        pub metrics: Option<MetricsOut<'a>>,
    }
    unsafe G::POLICY_LOSS, over cu_seqlens (tokens, sequences),
        require |k| k.check_terms(),
        let advantages = |k| if k.advantage_per_token { tokens } else { sequences },
        check |k| k.check_parts(tokens, sequences);
}

impl<G: Gate> PolicyLoss<'_, G> {
    fn check_parts(&self, tokens: usize, sequences: usize) -> Result<(), Error> {
        if let Some(kl) = &self.kl {
            crate::lengths!(kl; tokens => logp_ref);
        }
        if let Some(loss) = &self.loss {
            crate::lengths!(loss; tokens => token_loss; sequences => row_loss);
        }
        self.metrics.as_ref().map_or(Ok(()), |metrics| metrics.check_bounds(sequences))
    }

    #[inline(always)]
    fn sweep<
        T,
        const J: usize,
        const M: usize,
        const K: usize,
        const E: usize,
        const KL: u8,
        const ROWS: u8,
        const WANT: u8,
    >(
        &self,
        team: &T,
        row: usize,
    ) where
        T: Team,
        Token<G, KL, ROWS, WANT>: Element<J, M, K, E>,
    {
        // The general loops have sums only where losses and metrics are asked for. Tested once, so that a GPU
        // keeps no answer in registers during the sweep.
        if ROWS == token::GENERAL && ((K > 0 && self.loss.is_none()) || (K > 1 && self.metrics.is_none())) {
            return;
        }
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let tokens = team.count(span, mask);
        let weight = self.weight_from.fill(team, self.weight).of(tokens);
        let own = if self.advantage_per_token { 0.0 } else { self.advantage.at(row) };
        let advantage =
            if self.advantage_per_token { Stream::Array(self.advantage) } else { Stream::Constant(own) };
        let [logp, logp_old] = [Stream::Array(self.logp), Stream::Array(self.logp_old)];
        let logp_ref = Stream::or(self.kl.map(|term| term.logp_ref), 0.0);
        let no_kl = (Kl::new(KlFormula::K1), 0.0, false);
        let (kl, kl_coef, kl_weighted) = self.kl.map_or(no_kl, |term| (term.kl, term.coef, term.weighted));
        let token = Token {
            gate: self.gate,
            sequence: if ROWS == token::GENERAL { self.sequence(team, span, tokens) } else { None },
            given: ROWS == token::GENERAL && !G::READS_OLD && self.level == RatioGranularity::Given,
            guard: self.guard,
            kl,
            kl_coef,
            kl_weighted,
            weight: weight as f32,
            advantage: own,
            band: self.metrics.as_ref().map_or([0.0; 2], |metrics| metrics.band),
        };
        let token_loss = self.loss.as_ref().and_then(|loss| sink(&loss.token_loss));
        let mut outs = [token_loss; M];
        outs[0] = Some(*self.coef);
        let mut ins = [Stream::Constant(0.0); J];
        (ins[0], ins[1], ins[2]) = (logp, logp_old, advantage);
        (ins[3], ins[4]) = (Stream::or(self.weights, 1.0), logp_ref);
        if J > SECOND {
            ins[J - 1] = Stream::Array(self.logp_second.unwrap_or(self.logp_old));
        }
        let mut swept = team.sweep(span, mask, ins, outs, &token);
        if KL == token::NONE && K > sum::POLICY {
            swept.sums[sum::POLICY] = swept.sums[sum::LOSS];
        }
        if team.leads() {
            let rows = self.cu_seqlens.rows();
            // A row has fewer than 2³² tokens: its offsets are u32.
            self.row_tokens.put(row, tokens as u32);
            let mut alarm = swept.alarm;
            // The general loop checks each token's advantage, and its loss if losses are asked for.
            if tokens > 0 && (ROWS == token::OPEN || (ROWS == token::NARROW && K > 0)) {
                // A binary64 sum of finite binary32 numbers is finite.
                let lost = self.loss.is_some() && swept.sums.first().is_some_and(|loss| !loss.is_finite());
                alarm = flag::worse(alarm, flag::worse(flag::finite(own), if lost { u32::MAX } else { 0 }));
            }
            self.row_alarm.put(row, alarm);
            if let (Some(loss), Some(sum)) = (&self.loss, swept.sums.first()) {
                loss.row_loss.put(row, num::canonical64(weight * sum));
            }
            if let Some(metrics) = &self.metrics {
                for (k, &value) in swept.sums.iter().enumerate() {
                    let value = if k == sum::LOSS { num::canonical64(weight * value) } else { value };
                    metrics.row_sums.put(k * rows + row, value);
                }
                for (k, &value) in swept.maxima.iter().enumerate() {
                    metrics.row_maxima.put(k * rows + row, value);
                }
            }
        }
    }

    /// The log-ratio that all tokens of a sequence share, at sequence level.
    #[inline(always)]
    fn sequence<T: Team>(&self, team: &T, span: Span, tokens: u64) -> Option<Sequence> {
        let RatioGranularity::Sequence { log_max } = self.level else { return None };
        let ins = [Stream::Array(self.logp), Stream::Array(self.logp_old)];
        // Bad inputs raise the alarm of the sweep that follows.
        let swept = team.sweep_apart(span, self.loss_mask, ins, [], &LogRatio::<false>);
        Some(Sequence::of(swept.sums[0], tokens, log_max))
    }

    /// Whether all tokens of a row have the same coefficient and loss.
    #[inline(always)]
    fn uniform(&self) -> bool {
        let own = G::SCORE || G::SECOND || G::READS_OLD || self.kl.is_some() || self.metrics.is_some();
        matches!(self.level, RatioGranularity::Sequence { .. }) && self.plain() && !own
    }

    /// Runs a row whose tokens are [`uniform`](Self::uniform). The results have the same bits as the general
    /// sweep's, but ratio and gate are computed once per row.
    #[inline(always)]
    fn uniform_row<T: Team>(&self, team: &T, row: usize) {
        let RatioGranularity::Sequence { log_max } = self.level else { return };
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let tokens = team.count(span, mask);
        let weight = self.weight_from.fill(team, self.weight).of(tokens);
        let ins = [Stream::Array(self.logp), Stream::Array(self.logp_old)];
        let moved = team.sweep(span, mask, ins, [], &LogRatio::<true>);
        let sequence = Sequence::of(moved.sums[0], tokens, log_max);
        let advantage = self.advantage.at(row);
        let ratio = num::exp::<T::Arith>(sequence.log_ratio);
        let [logp, logp_old, logp_second] = [0.0; 3];
        let sample = Sample { ratio, finite: false, advantage, logp, logp_old, logp_second, own_ratio: 1.0 };
        let gate = self.gate.gate::<T::Arith>(sample);
        let gradient = if sequence.inside { gate.gradient } else { 0.0 };
        let coef = num::canonical(weight as f32 * gradient + 0.0);
        let one = Uniform { coef, loss: num::canonical(gate.loss) };
        let token_loss = self.loss.as_ref().and_then(|loss| sink(&loss.token_loss));
        let swept = team.sweep(span, mask, [Stream::Constant(0.0)], [Some(*self.coef), token_loss], &one);
        if team.leads() {
            // A row has fewer than 2³² tokens: its offsets are u32.
            self.row_tokens.put(row, tokens as u32);
            let loss = if self.loss.is_some() { flag::finite(one.loss) } else { 0 };
            let own = flag::worse(flag::finite(advantage), flag::worse(flag::finite(one.coef), loss));
            self.row_alarm.put(row, flag::worse(moved.alarm, if tokens == 0 { 0 } else { own }));
            if let Some(loss) = &self.loss {
                loss.row_loss.put(row, num::canonical64(weight * swept.sums[0]));
            }
        }
    }

    /// Whether there are no weights, and one advantage per row.
    #[inline(always)]
    fn plain(&self) -> bool {
        self.weights.is_none() && !self.advantage_per_token
    }

    /// Whether token losses are written.
    #[inline(always)]
    fn written(&self) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.token_loss.is_some())
    }

    /// Refuses KL clamps that the fused loss does not have, [`RatioGranularity::Given`] with a gate that
    /// reads `logp_old`, a `logp_second` that the gate does not read, and metrics without losses.
    fn check_terms(&self) -> Result<(), Error> {
        self.weight_from.check(&self.weight)?;
        if let Some(term) = &self.kl {
            term.kl.check()?;
            if term.kl.clamps_apart() {
                let expected =
                    "the fused loss clamps only k3: to clamp k1, abs or k2, use the op kl or kl_importance";
                return Err(Error::Combination { argument: "kl", expected });
            }
            require::finite("kl.coef", term.coef)?;
        }
        if self.level == RatioGranularity::Given
            && (G::READS_OLD || (G::SECOND && self.logp_second.is_none()))
        {
            return Err(Error::Combination {
                argument: "ratio.level",
                expected: "given log-ratios replace logp_old, which this gate reads: use level token",
            });
        }
        if self.logp_second.is_some() && !G::SECOND {
            return Err(Error::Combination {
                argument: "logp_second",
                expected: "given, but this gate reads no second policy: leave it out",
            });
        }
        if self.metrics.is_some() && self.loss.is_none() {
            return Err(Error::Combination {
                argument: "metrics",
                expected: "metrics need the loss: request both",
            });
        }
        Ok(())
    }
}

impl<G: Gate> Kernel for PolicyLoss<'_, G> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        self.choose(team, row);
    }

    #[inline(always)]
    fn variant(&self) -> usize {
        let narrow = self.narrow();
        match (self.kl.is_some(), self.loss.is_some(), self.metrics.is_some()) {
            (false, false, _) => usize::from(!narrow),
            (true, false, _) => 2,
            (false, true, metrics) if narrow && !self.written() => NARROW_LOSS + usize::from(metrics),
            (kl, true, metrics) => 3 + usize::from(kl) + 2 * usize::from(metrics),
        }
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        if G::SECOND {
            self.with_streams::<6, V, T>(team, row)
        } else {
            self.with_streams::<5, V, T>(team, row)
        }
    }
}

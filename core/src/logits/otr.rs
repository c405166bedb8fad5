//! Exact one-token rollout (OTR): each label position as a one-step RL problem, solved in expectation.
//!
//! **Formula** (OTR 2509.26313, via reviews; docs/maths/correction.md; the *exact mode*, which needs no
//! samples, is ours), with π = softmax(z), the constant π' = softmax(z/κ), the label x, and a reward of 1 for
//! the label and β for every other token:
//!
//! ```text
//! L_t = −[ π'(x) ln π(x) + β Σ_{a≠x} π'(a) ln π(a) ]
//! dL_t/dz_v = −[ q_v − p_v Σ_a q_a ],   q_a = π'(a)·(1 if a = x, else β)
//! ```
//!
//! It is the expectation of the paper's −(1/K') Σ_j R(a_j) ln π(a_j) over candidates a_j ~ π', so its
//! variance is 0 and it needs no random numbers. At κ = 1 the gradient is −(1−β)·π(x)·∂ln π(x)/∂z: SFT
//! weighted by the model's own probability.
//!
//! **Shapes**: logits and gradient `[rows · vocab]`; labels, coefficients and losses `[rows]`. `coef` is
//! dL/dL_t, which is 1/T for the mean over T unmasked label positions.
//!
//! **Defaults**: κ 1.3, β 0 or −0.1 (recalled).
//!
//! **Special cases**: an entry of −∞ gets gradient 0 and adds nothing to the loss. A masked row has loss 0
//! and gradient 0. A label at −∞ or outside the vocabulary, a row without a finite maximum, and results that
//! overflow raise the row's [alarm](crate::ragged::flag).
//!
//! **Accuracy**: the label's own entry is −[π'(x)·(1 − π(x)) − β·π(x)·(1 − π'(x))], with each 1 − p computed
//! as (Z − e)/Z, so that nothing cancels near a certain token or near an impossible one.

use super::{LogitRows, Scale, check_temperature, inverse, ln_total, weight};
use crate::Error;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span, Stream, flag};
use crate::require;
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `otr_exact`: the loss and gradient of each row of logits.
    pub struct OtrExact<'a> {
        /// Logits, and which rows take part.
        pub rows: LogitRows<'a> where valid,
        /// Label of each row, `[rows]`.
        pub labels: In<'a, u32> [rows],
        /// Temperature κ of the candidates, 1e-6 to 1e6.
        pub kappa: f32,
        /// Reward β of a token that is not the label, at most 1.
        pub beta: f32,
        /// dL/dL_t, `[rows]`.
        pub coef: In<'a, f32> [rows],
        /// Losses L_t, `[rows]`.
        pub loss: Out<'a, f32> [rows],
        /// dL/dz, `[rows · vocab]`.
        pub gradient: Option<Out<'a, f32>> [logits],
        /// Row alarm, `[rows]`: above [`flag::LIMIT`] if the row cannot be used or a result is invalid.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "otr_exact", over rows (logits, rows),
        require |k| {
            check_temperature("kappa", k.kappa)?;
            check_beta(k.beta)
        };
}

/// Checks the reward of the other tokens.
pub(super) fn check_beta(beta: f32) -> Result<(), Error> {
    let expected = "a finite number of at most 1, the label's reward";
    require::scalar("beta", beta.is_finite() && beta <= 1.0, expected, beta)
}

/// The sums Z, Z' and Σ e'·y.
struct Totals {
    plain: Scale,
    tempered: Scale,
}

impl Element<1, 0, 3, 0> for Totals {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 3, 0> {
        let z = input(0);
        let y = self.plain.exponent(z);
        let candidate = weight::<A>(self.tempered.exponent(z));
        let product = if candidate == 0.0 { 0.0 } else { candidate * y };
        Lane { out: [], sum: [weight::<A>(y), candidate, product], max: [], alarm: 0 }
    }
}

/// The gradient of every entry except the label's.
#[derive(Clone, Copy)]
struct Other {
    totals: (Scale, Scale),
    /// coef·Σ q / Z.
    of_policy: f32,
    /// coef·β / Z'.
    of_candidates: f32,
    on: bool,
}

impl Element<1, 1, 0, 0> for Other {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let z = input(0);
        let (plain, tempered) = self.totals;
        let policy = weight::<A>(plain.exponent(z)) * self.of_policy;
        let candidate = weight::<A>(tempered.exponent(z)) * self.of_candidates;
        // + 0: a gradient is never −0.
        let gradient = if self.on { policy - candidate + 0.0 } else { 0.0 };
        Lane { out: [gradient], sum: [], max: [], alarm: flag::finite(gradient) }
    }
}

impl Kernel for OtrExact<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, live) = (self.rows.span(row), self.rows.live_span(row));
        let on = !live.is_empty();
        let (largest, _) = self.rows.top(team, live);
        let plain = Scale { largest, inverse: 1.0 };
        let tempered = Scale { largest, inverse: inverse(self.kappa) };
        let ins = [Stream::Array(self.rows.logits)];
        let swept = team.sweep(live, Mask::all(), ins, [], &Totals { plain, tempered });
        let [total, candidates, product] = swept.sums;

        let given = self.labels.at(row) as usize;
        let label = span.start + if given < self.rows.vocab { given } else { 0 };
        let z = self.rows.logits.at(label);
        let own = f64::from(weight::<T::Arith>(plain.exponent(z)));
        let own_candidate = f64::from(weight::<T::Arith>(tempered.exponent(z)));
        let (coef, beta) = (f64::from(self.coef.at(row)), f64::from(self.beta));
        let hit = num::div64(own_candidate, candidates);
        let rewards = beta + (1.0 - beta) * hit;
        let mut alarm = 0;
        if let Some(gradient) = &self.gradient {
            let other = Other {
                totals: (plain, tempered),
                of_policy: num::div64(coef * rewards, total) as f32,
                of_candidates: num::div64(coef * beta, candidates) as f32,
                on,
            };
            // The entries before the label, then those after it; the leader alone writes the label's entry.
            let (mut from, mut to) = (span.start, label);
            while from < span.end {
                let swept = team.sweep(Span::new(from, to), Mask::all(), ins, [Some(**gradient)], &other);
                alarm = flag::worse(alarm, swept.alarm);
                (from, to) = (to + 1, span.end);
            }
        }
        if team.leads() {
            let ln_z = f64::from(ln_total::<T::Arith>(total));
            let logp = f64::from(plain.exponent(z)) - ln_z;
            let loss = -((1.0 - beta) * hit * logp + beta * (num::div64(product, candidates) - ln_z));
            let (miss, missed) =
                (num::div64(total - own, total), num::div64(candidates - own_candidate, candidates));
            let score = hit * miss - beta * num::div64(own, total) * missed;
            let (loss, slope) = (loss as f32, (0.0 - coef * score) as f32 + 0.0);
            let known = (given < self.rows.vocab) & (z > f32::NEG_INFINITY) & largest.is_finite();
            let fault = flag::worse(flag::finite(loss), flag::finite(slope));
            alarm = flag::worse(alarm, if known { fault } else { u32::MAX });
            self.loss.put(row, if on { num::canonical(loss) } else { 0.0 });
            if let Some(gradient) = &self.gradient {
                gradient.put(label, if on { num::canonical(slope) } else { 0.0 });
            }
            self.row_alarm.put(row, if on { alarm } else { 0 });
        }
    }
}

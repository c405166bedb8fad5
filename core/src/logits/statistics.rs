//! Statistics of a row of logits and its label: log-probability, entropy, and norm of the score.
//!
//! **Formula** (`entropy.md` and `correction.md` in docs/maths; notation of [`logits`](super)), for the label
//! a of a row:
//!
//! ```text
//! logp = y_a − ln Z                        log π(a), at temperature T
//! lse  = max z/T + ln Z                    logsumexp of z/T
//! H    = ln Z − Σ e_v y_v / Z              entropy, ≥ 0
//! collision  = Σ p_v² = Σ e_v² / Z²
//! score_norm = 1 − 2 p_a + Σ p_v²          ‖∂logp/∂(z/T)‖², verl's proxy for a squared gradient norm
//! top  = the first v with the largest z
//! ```
//!
//! verl uses `score_norm` as a proxy for the squared gradient norm of a sequence. It is computed as
//! ((Z − e_a)/Z)² + (Σ e_v² − e_a²)/Z², because near a certain token 1 − 2p + Σp² would be nothing but
//! rounding error. Its absolute error is about 2⁻⁵².
//!
//! **Shapes**: logits `[rows · vocab]`, labels and outputs `[rows]`, `state` `[3][rows]`: max z, Z and H for
//! [`LogitsGradient`](super::LogitsGradient), which then needs only one pass. Log-probabilities and entropies
//! are in nats.
//!
//! **Special cases**: a masked row gives 0 everywhere. An entry of −∞ has probability 0. A label at such an
//! entry, a label outside the vocabulary, or a row without a finite maximum raises the row's
//! [alarm](crate::ragged::flag).
//!
//! **Accuracy**: the terms of logp, H and both sums have one sign, so no digits cancel: the error is a few
//! units of 2⁻²⁴ of (1 + |y|) times the value (conformance measures it against the oracle in binary64).

use super::{LogitRows, Scale, check_temperature, factors, inverse, ln_total, weight};
use crate::Error;
use crate::num::{self, Arith, Storage};
use crate::op::Kernel;
use crate::ragged::{Cells, In, Mask, Out, Stream, flag};
use crate::team::{Element, Lane, Team};

/// Number of entries of `state` per row.
pub const STATE: usize = 3;
/// Index in `state` of the largest logit.
pub const LARGEST: usize = 0;
/// Index in `state` of Z.
pub const TOTAL: usize = 1;
/// Index in `state` of the entropy H, which is 0 if no moments were requested.
pub const ENTROPY: usize = 2;

/// The optional outputs of `logits_statistics`, which need two more sums.
#[derive(Debug)]
pub struct LogitsMoments<'a> {
    /// Entropy H in nats, `[rows]`.
    pub entropy: Out<'a, f32>,
    /// Collision probability Σ p², `[rows]`.
    pub collision: Out<'a, f32>,
    /// Squared norm of the score, 1 − 2 p_a + Σ p², `[rows]`.
    pub score_norm: Out<'a, f32>,
}

crate::launch_args!(LogitsMoments<'_> { entropy, collision, score_norm });

/// The results of `logits_statistics`.
#[derive(Debug)]
pub struct LogitsResults<'a> {
    /// Log-probability of the label, `[rows]`.
    pub logp: Out<'a, f32>,
    /// logsumexp of z/T, `[rows]`.
    pub lse: Out<'a, f32>,
    /// The most probable token, `[rows]`; the first one of a tie.
    pub top: Out<'a, u32>,
    /// Entropy and sums of squares, if requested.
    pub moments: Option<LogitsMoments<'a>>,
    /// State for [`LogitsGradient`](super::LogitsGradient), `[3][rows]`: max z, Z and H.
    pub state: Out<'a, f64>,
    /// Row alarm, `[rows]`: above [`flag::LIMIT`] if the row cannot be used.
    pub row_alarm: Out<'a, u32>,
}

crate::launch_args!(LogitsResults<'_> { logp, lse, top, moments, state, row_alarm });

/// What the results of a row are computed from.
pub(super) struct RowResult {
    /// Whether the row takes part.
    pub(super) live: bool,
    /// The largest logit, and its token.
    pub(super) largest: f32,
    pub(super) top: u32,
    /// The label's logit; NaN if the label is outside the vocabulary.
    pub(super) label: f32,
    /// Z.
    pub(super) total: f64,
    /// Σ e·y and Σ e², if moments are requested.
    pub(super) product: f64,
    pub(super) squares: f64,
}

impl LogitsResults<'_> {
    pub(super) fn check_bounds(&self, rows: usize) -> Result<(), Error> {
        crate::lengths!(self; rows => logp, lse, top, row_alarm; 3 * rows => state);
        if let Some(moments) = &self.moments {
            crate::lengths!(moments; rows => entropy, collision, score_norm);
        }
        Ok(())
    }

    /// Writes the results of row `row` of `rows`. The leader calls this.
    #[inline(always)]
    pub(super) fn put<A: Arith>(&self, rows: usize, row: usize, scale: Scale, found: &RowResult) {
        let RowResult { live, largest, top, label, total, product, squares } = *found;
        let usable = live & largest.is_finite();
        let y = scale.exponent(label);
        let ln_z = ln_total::<A>(total);
        let logp = y - ln_z;
        let own = f64::from(weight::<A>(y));
        let entropy = f64::from(ln_z) - num::div64(product, total);
        // A masked row gives 0; a row that cannot be used gives NaN.
        let put = move |out: Cells<'_, f32>, value: f64| {
            let value = if usable { value as f32 } else { f32::NAN };
            out.put(row, if live { num::canonical(value) } else { 0.0 });
        };
        put(*self.logp, f64::from(logp));
        put(*self.lse, f64::from(largest * scale.inverse + ln_z));
        self.top.put(row, if usable { top } else { 0 });
        if let Some(moments) = &self.moments {
            let (rest, squared) = (num::div64(total - own, total), f64::from((own as f32) * (own as f32)));
            let others = num::div64(squares - squared, total * total);
            put(*moments.entropy, entropy);
            put(*moments.collision, num::div64(squares, total * total));
            put(*moments.score_norm, rest * rest + if others > 0.0 { others } else { 0.0 });
        }
        let state = [f64::from(largest), total, if self.moments.is_some() { entropy } else { 0.0 }];
        for (k, value) in state.into_iter().enumerate() {
            let value = if usable { value } else { f64::NAN };
            let value = if live { num::canonical64(value) } else { 0.0 };
            self.state.put(k * rows + row, value);
        }
        let fault = flag::worse(flag::finite(largest), flag::finite(logp));
        self.row_alarm.put(row, if live { fault } else { 0 });
    }
}

crate::kernel! {
    /// The ops `logits_statistics` (`f32`), `logits_statistics_bf16` and `logits_statistics_f16`: statistics
    /// of each row of logits.
    pub struct LogitsStatistics<'a, S: Storage = f32> {
        /// Logits, and which rows take part.
        pub rows: LogitRows<'a, S> where valid,
        /// Label of each row, `[rows]`.
        pub labels: In<'a, u32> [rows],
        /// Temperature T, 1e-6 to 1e6.
        pub temperature: f32,
        /// The results.
        pub results: LogitsResults<'a>,
    }
    unsafe S::SUFFIX.of(["logits_statistics", "logits_statistics_bf16", "logits_statistics_f16"]),
        over rows (_, rows),
        require |k| check_temperature("temperature", k.temperature), check |k| k.results.check_bounds(rows);
}

struct Total(Scale);

impl Element<1, 0, 1, 0> for Total {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        Lane { out: [], sum: [weight::<A>(self.0.exponent(input(0)))], max: [], alarm: 0 }
    }
}

struct Moments(Scale);

impl Element<1, 0, 3, 0> for Moments {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 3, 0> {
        let (e, y) = factors::<A>(self.0.exponent(input(0)));
        Lane { out: [], sum: [e, e * y, e * e], max: [], alarm: 0 }
    }
}

impl<S: Storage> Kernel for LogitsStatistics<'_, S> {
    crate::row_by_variant!(0; 1);

    #[inline(always)]
    fn variant(&self) -> usize {
        usize::from(self.results.moments.is_some())
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let span = self.rows.live_span(row);
        let (largest, top) = self.rows.top(team, span);
        let scale = Scale { largest, inverse: inverse(self.temperature) };
        let ins = [Stream::Array(self.rows.logits)];
        let [total, product, squares] = if V == 0 {
            [team.sweep(span, Mask::all(), ins, [], &Total(scale)).sums[0], 0.0, 0.0]
        } else {
            team.sweep(span, Mask::all(), ins, [], &Moments(scale)).sums
        };
        if team.leads() {
            let live = !span.is_empty();
            let label = self.labels.at(row);
            let known = (label as usize) < self.rows.vocab;
            let label = if live & known {
                self.rows.logits.at(span.start + label as usize).widen()
            } else {
                f32::NAN
            };
            let found = RowResult { live, largest, top, label, total, product, squares };
            self.results.put::<T::Arith>(self.rows.rows, row, scale, &found);
        }
    }
}

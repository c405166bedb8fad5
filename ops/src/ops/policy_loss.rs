//! The fused policy loss.

mod gmpo;
mod second_kl;

pub use gmpo::{GmpoParams, gmpo};
#[doc(hidden)]
pub use second_kl::add_kl_values;
pub use second_kl::{add_kl, add_kl_importance};

use super::aggregate::fold_rows;
use super::kl::KlOutput;
use super::locate::{self, Checked, Domain};
use super::ratio::fold_maxima;
use super::select::Selection;
use crate::{Batch, Compiled, Counts, Device, Error, Metrics};
use lockstep_core::Error as Argument;
use lockstep_core::aggregate::{Weight, WeightFrom};
use lockstep_core::gate::Gate;
use lockstep_core::kl::Kl;
use lockstep_core::policy_loss::{KlTerm, LossOut, MetricsOut, PolicyLoss, sum};
use lockstep_core::ragged::{In, Out, flag};
use lockstep_core::ratio::{Guard, RatioGranularity};

/// Advantages, which are constants in differentiation.
#[derive(Clone, Copy, Debug)]
pub enum Advantage<'a> {
    /// One per sequence, `[S]`, shared by its tokens.
    PerSequence(&'a [f32]),
    /// One per token, `[N]`.
    PerToken(&'a [f32]),
}

/// Which optional results to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// The loss, in total and per sequence.
    pub loss: bool,
    /// Loss per token; implies `loss`.
    pub token_loss: bool,
    /// Metrics; implies `loss`.
    pub metrics: bool,
}

impl Outputs {
    /// Everything.
    pub const ALL: Outputs = Outputs { loss: true, token_loss: true, metrics: true };
    /// Only the coefficients; the fastest choice.
    pub const COEF: Outputs = Outputs { loss: false, token_loss: false, metrics: false };
}

/// The inputs of a policy loss. Only `logp` is differentiated.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInput<'a> {
    /// Log-probabilities of the current policy, `[N]`.
    pub logp: &'a [f32],
    /// Log-probabilities of the proximal policy (recomputed at the start of the step), `[N]`.
    pub logp_old: &'a [f32],
    /// Advantages.
    pub advantage: Advantage<'a>,
    /// Second input of a gate besides `logp_old`, `[N]`: log-probabilities of the sampler (MiniRL, DPPO) or
    /// of the latest policy (ReMix), or divergences. Required, and allowed, only with such a gate.
    pub logp_second: Option<&'a [f32]>,
    /// Log-ratios computed elsewhere, `[N]`; required, and allowed, only at [`RatioGranularity::Given`].
    pub log_ratio: Option<&'a [f32]>,
    /// Log-probabilities of the frozen reference, `[N]`; required, and allowed, only with a KL term.
    pub logp_ref: Option<&'a [f32]>,
    /// Rollout-correction weights, `[N]`, multiplied after the gate; `None` = 1.
    pub weights: Option<&'a [f32]>,
    /// Which optional results to compute.
    pub outputs: Outputs,
}

impl<'a> PolicyInput<'a> {
    /// The three inputs that every policy loss needs, with all outputs requested.
    pub fn new(logp: &'a [f32], logp_old: &'a [f32], advantage: Advantage<'a>) -> Self {
        PolicyInput {
            logp,
            logp_old,
            advantage,
            logp_second: None,
            log_ratio: None,
            logp_ref: None,
            weights: None,
            outputs: Outputs::ALL,
        }
    }
}

/// The outputs of a policy loss.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PolicyOutput {
    /// dL/dlogp, `[N]`; 0 where masked.
    pub coef: Vec<f32>,
    /// l per token before the aggregation's weights, `[N]`; empty if not requested.
    pub token_loss: Vec<f32>,
    /// Σ W·l of each sequence, `[S]`: the loss of any set of sequences is the sum of theirs. Empty if not
    /// requested.
    pub row_loss: Vec<f64>,
    /// The loss L, if requested.
    pub loss: Option<f64>,
    /// Counts of this batch.
    pub counts: Counts,
    /// Metrics, if requested.
    pub metrics: Option<Metrics>,
    scratch: Scratch,
    spare: Spare,
}

/// Buffers of the ops that a recipe launches besides the fused one, kept between calls; not part of the
/// result.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct Spare {
    free: Vec<Vec<f32>>,
    pub selection: Selection,
    pub kl: KlOutput,
    /// Buffers of an additional term.
    term: Option<Box<PolicyOutput>>,
}

impl Spare {
    /// A buffer of any length and content.
    #[doc(hidden)]
    pub fn take(&mut self) -> Vec<f32> {
        self.free.pop().unwrap_or_default()
    }

    /// Keeps a buffer.
    #[doc(hidden)]
    pub fn give(&mut self, buffer: Option<Vec<f32>>) {
        self.free.extend(buffer);
    }

    /// Buffers of a policy loss, of any content.
    fn term(&mut self) -> Box<PolicyOutput> {
        self.term.take().unwrap_or_default()
    }

    /// Keeps the buffers of a policy loss.
    fn keep_term(&mut self, term: Box<PolicyOutput>) {
        self.term = Some(term);
    }
}

impl PartialEq for Spare {
    fn eq(&self, _other: &Spare) -> bool {
        true
    }
}

impl PolicyOutput {
    /// Buffers for the ops that run before the fused one.
    #[doc(hidden)]
    pub fn spare(&mut self) -> &mut Spare {
        &mut self.spare
    }

    /// Replaces the KL sums that the op measured with `row_sum`, sums of another KL over the live tokens of
    /// each sequence; `tokens` is the number of live tokens. Does nothing without metrics.
    #[doc(hidden)]
    pub fn measure_kl(&mut self, device: &Device, row_sum: &[f64], tokens: u64) -> Result<(), Error> {
        let rows = row_sum.len();
        let Some(metrics) = &mut self.metrics else { return Ok(()) };
        self.scratch.sums[sum::KL_REF * rows..][..rows].copy_from_slice(row_sum);
        let total = fold_rows(device, row_sum, rows)?.first().copied().unwrap_or(0.0);
        metrics.kl_ref_mean = total / tokens.max(1) as f64;
        Ok(())
    }

    /// Sums `[SUMS][S]` and maxima `[2][S]` of the rows; empty without metrics.
    #[doc(hidden)]
    pub fn partials(&self) -> (&[f64], &[f32]) {
        (&self.scratch.sums, &self.scratch.maxima)
    }

    /// Sets the sums and maxima that a plan has measured.
    #[doc(hidden)]
    pub fn set_partials(&mut self, row_sums: Vec<f64>, row_maxima: Vec<f32>) {
        (self.scratch.sums, self.scratch.maxima) = (row_sums, row_maxima);
    }
}

/// Per-row buffers, kept between calls.
#[derive(Clone, Debug, Default, PartialEq)]
struct Scratch {
    tokens: Vec<u32>,
    alarm: Vec<u32>,
    sums: Vec<f64>,
    maxima: Vec<f32>,
}

/// The scalar parameters of a policy loss: one choice per stage.
#[derive(Clone, Copy, Debug)]
pub struct PolicyParams<G> {
    /// Gate.
    pub gate: G,
    /// Level at which the ratio is computed.
    pub level: RatioGranularity,
    /// Guard of the token log-ratio.
    pub guard: Guard,
    /// KL term and its coefficient β.
    pub kl: Option<(Kl, f32)>,
    /// Whether the KL term is multiplied by the weights, as the policy term is.
    pub kl_weighted: bool,
    /// Aggregation weight.
    pub weight: Weight,
    /// Band of the parity statistic, as ratios.
    pub band: [f32; 2],
}

/// Computes the loss and dL/dlogp into `out`, whose buffers are reused; formula:
/// [`lockstep_core::policy_loss`].
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0, an advantage that
/// is not finite or a weight below 0 (argument, index); parameters out of their domain; an optional input
/// that is missing or not allowed; a result that is not finite (index). `out` is unspecified after an error.
#[doc(alias("PPO", "GSPO", "SAPO", "CISPO", "DAPO", "clipped surrogate"))]
pub fn policy_loss<G: Gate>(
    device: &Device,
    batch: &Batch<'_>,
    input: &PolicyInput<'_>,
    params: &PolicyParams<G>,
    out: &mut PolicyOutput,
) -> Result<(), Error>
where
    for<'a> PolicyLoss<'a, G>: Compiled,
{
    check_lengths(batch, input)?;
    let kl = match (params.kl, input.logp_ref) {
        (None, None) => None,
        (Some((kl, coef)), Some(logp_ref)) => {
            Some(KlTerm { logp_ref: In::new(logp_ref), kl, coef, weighted: params.kl_weighted })
        }
        (term, _) => return Err(unmatched_ref(term.is_some())),
    };
    if G::SECOND && input.logp_second.is_none() {
        let expected = "needed by this gate: the sampler's for MiniRL and DPPO, the latest policy's for \
                        ReMix, or the divergences";
        return Err(Argument::Combination { argument: "logp_second", expected }.into());
    }
    if (params.level == RatioGranularity::Given) != input.log_ratio.is_some() {
        let expected = "needed with ratio.level given, and not allowed otherwise";
        return Err(Argument::Combination { argument: "log_ratio", expected }.into());
    }
    let Outputs { loss, token_loss, metrics } = out.make_room(batch, input.outputs);
    let scratch = &mut out.scratch;
    let (advantage, advantage_per_token) = input.advantage.values();
    device.run(&PolicyLoss {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(input.logp),
        logp_old: In::new(input.log_ratio.unwrap_or(input.logp_old)),
        logp_second: input.logp_second.map(In::new),
        advantage: In::new(advantage),
        advantage_per_token,
        weights: input.weights.map(In::new),
        level: params.level,
        guard: params.guard,
        gate: params.gate,
        kl,
        weight: params.weight,
        weight_from: WeightFrom::ABSENT,
        coef: Out::new(&mut out.coef),
        loss: loss.then(|| LossOut {
            token_loss: token_loss.then(|| Out::new(&mut out.token_loss)),
            row_loss: Out::new(&mut out.row_loss),
        }),
        row_tokens: Out::new(&mut scratch.tokens),
        row_alarm: Out::new(&mut scratch.alarm),
        metrics: metrics.then(|| MetricsOut {
            row_sums: Out::new(&mut scratch.sums),
            row_maxima: Out::new(&mut scratch.maxima),
            band: params.band,
        }),
    })?;
    let weight = params.gate.second_fault(1.0) <= flag::LIMIT;
    let second = if weight { Domain::Weight } else { Domain::LogProbability };
    finish(device, batch, (input, second), out)
}

/// The error of a KL term without a reference, or of a reference without a KL term.
#[doc(hidden)]
pub fn unmatched_ref(term: bool) -> Error {
    let expected = match term {
        true => "needed by the KL term",
        false => "given, but there is no KL term: add one (coef = 0 only measures) or leave it out",
    };
    Argument::Combination { argument: "logp_ref", expected }.into()
}

impl<'a> Advantage<'a> {
    /// The values, and whether they are per token.
    pub(crate) fn values(&self) -> (&'a [f32], bool) {
        match *self {
            Advantage::PerSequence(values) => (values, false),
            Advantage::PerToken(values) => (values, true),
        }
    }

    /// Errors unless there is one value per token or sequence.
    #[doc(hidden)]
    pub fn check(&self, batch: &Batch<'_>, argument: &'static str) -> Result<(), Error> {
        match self {
            Advantage::PerSequence(values) => batch.check_sequences(argument, values.len()),
            Advantage::PerToken(values) => batch.check_tokens(argument, values.len()),
        }
    }
}

impl PolicyOutput {
    /// Resizes the buffers for `outputs`; returns them with the outputs that they imply.
    fn make_room(&mut self, batch: &Batch<'_>, outputs: Outputs) -> Outputs {
        let (tokens, rows) = (batch.tokens(), batch.sequences());
        let Outputs { loss, token_loss, metrics } = outputs;
        let loss = loss || token_loss || metrics;
        self.coef.resize(tokens, 0.0);
        self.token_loss.resize(if token_loss { tokens } else { 0 }, 0.0);
        self.row_loss.resize(if loss { rows } else { 0 }, 0.0);
        let scratch = &mut self.scratch;
        scratch.tokens.resize(rows, 0);
        scratch.alarm.resize(rows, 0);
        scratch.sums.resize(if metrics { rows * sum::SUMS } else { 0 }, 0.0);
        scratch.maxima.resize(if metrics { rows * 2 } else { 0 }, 0.0);
        Outputs { loss, token_loss, metrics }
    }
}

/// Reports errors and folds the rows after the launch.
fn finish(
    device: &Device,
    batch: &Batch<'_>,
    (input, second): (&PolicyInput<'_>, Domain),
    out: &mut PolicyOutput,
) -> Result<(), Error> {
    let token_loss = (!out.token_loss.is_empty()).then_some(&out.token_loss[..]);
    let results = [Checked::finite("coef", &out.coef[..]), Checked::finite("token_loss", token_loss)];
    let hint = "a ratio or weight overflowed: choose a guard for the log-ratio, or the KL clamps";
    locate::check(batch, &out.scratch.alarm, &arguments(input, second), &results, hint)?;
    let rows = batch.sequences();
    out.counts = Counts::of_rows(&out.scratch.tokens);
    let Outputs { loss, token_loss, metrics } = input.outputs;
    out.loss = match loss || token_loss || metrics {
        true => Some(fold_rows(device, &out.row_loss, rows)?[0]),
        false => None,
    };
    out.metrics = match metrics {
        true => {
            let totals = fold_rows(device, &out.scratch.sums, rows)?;
            Some(Metrics::new(out.counts.tokens, &totals, fold_maxima(&out.scratch.maxima, rows)))
        }
        false => None,
    };
    Ok(())
}

fn check_lengths(batch: &Batch<'_>, input: &PolicyInput<'_>) -> Result<(), Error> {
    // The domains do not matter here.
    locate::lengths(batch, &arguments(input, Domain::Finite))?;
    let Advantage::PerSequence(advantage) = input.advantage else { return Ok(()) };
    batch.check_sequences("advantage", advantage.len())?;
    locate::each_finite("advantage", advantage)
}

/// The arrays with one entry per token; `second` is the domain of `logp_second`.
fn arguments<'a>(input: &PolicyInput<'a>, second: Domain) -> [Checked<'a>; 7] {
    let (advantage, per_token) = input.advantage.values();
    [
        Checked::logp("logp", input.logp),
        Checked::logp("logp_old", input.logp_old),
        Checked::logp("logp_ref", input.logp_ref),
        Checked::new("logp_second", second, input.logp_second),
        Checked::finite("log_ratio", input.log_ratio),
        Checked::new("weights", Domain::Weight, input.weights),
        Checked::finite("advantage", per_token.then_some(advantage)),
    ]
}

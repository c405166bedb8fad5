//! Rows of logits.

use super::{Arrays, On, copy, launch, on};
use lockstep::Device;
use lockstep::core::logits::kl::Direction;
use lockstep::core::logits::statistics::{LogitsMoments, LogitsResults, STATE};
use lockstep::core::logits::{DrawTokens, LogitRows, LogitsGradient, LogitsKl, LogitsStatistics};
use lockstep::core::num::{Bf16, F16, Storage};
use lockstep::core::op::Launch;
use lockstep::core::ragged::In;
use lockstep::core::require;
use lockstep::ops::locate;
use lockstep::ops::logits::{self as ops, Logits, TwoRows};
use lockstep::plan::{Plain, Queue};
use lockstep::{Error, core::Error as Argument};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Returns the rows of `vocab` logits in `logits`; `loss_mask` selects the rows that take part.
pub(super) fn rows<S: Storage>(arrays: &Arrays, vocab: usize) -> Result<LogitRows<'static, S>, Error> {
    let logits = arrays.input::<S>("logits")?;
    let rows = logits.len() / vocab.max(1);
    let found = LogitRows { logits, rows, vocab, live: arrays.mask("loss_mask", rows)? };
    found.check()?;
    Ok(found)
}

/// Returns the label of each row.
pub(super) fn labels(arrays: &Arrays, rows: usize) -> Result<In<'static, u32>, Error> {
    let labels = arrays.input::<u32>("labels")?;
    require::length("labels", rows, "one per row of logits", labels.len())?;
    Ok(labels)
}

/// The arrays that take the statistics of `rows` rows.
pub(super) fn results(arrays: &Arrays, rows: usize) -> Result<LogitsResults<'static>, Error> {
    let moments = match arrays.wanted("entropy", rows)? {
        None => None,
        Some(entropy) => Some(LogitsMoments {
            entropy,
            collision: arrays.output("collision", rows)?,
            score_norm: arrays.output("score_norm", rows)?,
        }),
    };
    Ok(LogitsResults {
        logp: arrays.output("logp", rows)?,
        lse: arrays.output("lse", rows)?,
        top: arrays.output("top", rows)?,
        moments,
        state: arrays.output("state", STATE * rows)?,
        row_alarm: arrays.output("alarm", rows)?,
    })
}

/// Host copies for the checks of the ops over slices, which name the entry that raised a row's alarm.
struct Host<S> {
    logits: Vec<S>,
    labels: Vec<u32>,
    loss_mask: Option<Vec<u8>>,
}

impl<S: Storage + Plain> Host<S> {
    fn new(queue: &Queue, rows: &LogitRows<'_, S>, labels: Option<In<'_, u32>>) -> Result<Host<S>, Error> {
        let labels = labels.map_or(Ok(vec![0; rows.rows]), |labels| copy!(queue, labels))?;
        let loss_mask = rows.live.bytes().map(|bytes| copy!(queue, bytes)).transpose()?;
        Ok(Host { logits: copy!(queue, rows.logits)?, labels, loss_mask })
    }

    fn view(&self) -> Logits<'_, S> {
        Logits { logits: &self.logits, labels: &self.labels, loss_mask: self.loss_mask.as_deref() }
    }
}

/// Evaluates an expression in which `$storage` is the type that `$format` names.
macro_rules! in_format {
    ($format:expr, |$storage:ident| $body:expr) => {
        match $format {
            "f32" => {
                type $storage = f32;
                $body
            }
            "bf16" => {
                type $storage = Bf16;
                $body
            }
            "f16" => {
                type $storage = F16;
                $body
            }
            other => Err(PyValueError::new_err(format!("format is {other:?}: expected f32, bf16 or f16"))),
        }
    };
}
pub(super) use in_format;

/// Computes log-probability, logsumexp and top token of rows of logits in `format`, and the state for their
/// gradient; also `entropy`, `collision` and `score_norm`, if those arrays are given. Without `wait`, a GPU
/// is not waited for, and a bad row is not an error.
#[pyfunction]
pub(crate) fn logits_statistics(
    py: Python<'_>,
    at: On,
    format: &str,
    vocab: usize,
    temperature: f32,
    wait: bool,
    arrays: Arrays,
) -> PyResult<()> {
    in_format!(format, |S| on(py, at, |queue| {
        let rows = rows::<S>(&arrays, vocab)?;
        let n = rows.rows;
        let labels = labels(&arrays, n)?;
        let kernel = LogitsStatistics { rows, labels, temperature, results: results(&arrays, n)? };
        launch(queue, &kernel, *kernel.results.row_alarm, wait, || {
            let host = Host::new(queue, &rows, Some(labels))?;
            ops::logits_statistics(&Device::cpu(), &host.view(), temperature, false).map(drop)
        })
    }))
}

/// Computes dL/dlogits in `format` from dL/dlogp `coef` and, if given, dL/dH `coef_entropy`, with the `state`
/// of `logits_statistics`; or with that of `vocab_parallel_statistics`, for a shard of the vocabulary that
/// begins at `vocab_start`. On a GPU `gradient` may be the array `logits`. `wait` as for `logits_statistics`.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // Python's.
pub(crate) fn logits_gradient(
    py: Python<'_>,
    at: On,
    format: &str,
    vocab: usize,
    vocab_start: Option<u32>,
    temperature: f32,
    wait: bool,
    arrays: Arrays,
) -> PyResult<()> {
    in_format!(format, |S| on(py, at, |queue| {
        let rows = rows::<S>(&arrays, vocab)?;
        let n = rows.rows;
        let of_rows = |name: &'static str, array: In<'static, f32>| {
            require::length(name, n, "one per row of logits", array.len()).map(|()| array)
        };
        let labels = labels(&arrays, n)?;
        let coef = of_rows("coef", arrays.input("coef")?)?;
        let coef_entropy = arrays.given("coef_entropy")?;
        let coef_entropy = coef_entropy.map(|array| of_rows("coef_entropy", array)).transpose()?;
        let kernel = LogitsGradient {
            rows,
            labels,
            vocab_start,
            temperature,
            state: arrays.input("state")?,
            coef,
            coef_entropy,
            gradient: arrays.output("gradient", rows.logits.len())?,
            row_alarm: arrays.output("alarm", n)?,
        };
        kernel.check()?;
        // Empty arrays have no addresses that could differ.
        let in_place = n > 0 && kernel.gradient.as_ptr().cast_const() == rows.logits.as_ptr();
        if in_place && queue.is_cpu() {
            let expected = "memory separate from `logits` on a CPU";
            return Err(Argument::Combination { argument: "gradient", expected }.into());
        }
        launch(queue, &kernel, *kernel.row_alarm, wait, || {
            let coef: Vec<f32> = copy!(queue, coef)?;
            let coef_entropy: Option<Vec<f32>> = coef_entropy.map(|array| copy!(queue, array)).transpose()?;
            if in_place || vocab_start.is_some() {
                // The logits are gone, or those of other shards are not here; `statistics` has accepted them.
                locate::each_finite("coef", &coef)?;
                return locate::each_finite("coef_entropy", coef_entropy.as_deref().unwrap_or_default());
            }
            let host = Host::new(queue, &rows, Some(labels))?;
            let (cpu, of_entropy) = (Device::cpu(), coef_entropy.as_deref());
            let statistics = ops::logits_statistics(&cpu, &host.view(), temperature, of_entropy.is_some())?;
            ops::logits_gradient(&cpu, &host.view(), &statistics, &coef, of_entropy).map(drop)
        })
    }))
}

/// Computes the KL divergence `value` of rows of `logits` and `reference`, over `policy` or `reference`; with
/// `gradient`, also dL/dlogits from dL/dKL `coef`.
#[pyfunction]
pub(crate) fn logits_kl(
    py: Python<'_>,
    at: On,
    vocab: usize,
    temperature: f32,
    over: &str,
    arrays: Arrays,
) -> PyResult<()> {
    let direction = match over {
        "policy" => Direction::Policy,
        "reference" => Direction::Reference,
        _ => return Err(PyValueError::new_err(format!("over is {over:?}: expected policy or reference"))),
    };
    on(py, at, |queue| {
        let rows = rows::<f32>(&arrays, vocab)?;
        let n = rows.rows;
        let kernel = LogitsKl {
            rows,
            reference: arrays.input("reference")?,
            direction,
            temperature,
            coef: arrays.input("coef")?,
            value: arrays.output("value", n)?,
            gradient: arrays.wanted("gradient", rows.logits.len())?,
            row_alarm: arrays.output("alarm", n)?,
        };
        launch(queue, &kernel, *kernel.row_alarm, true, || {
            let host = Host::new(queue, &rows, None)?;
            let (reference, coef): (Vec<f32>, Vec<f32>) =
                (copy!(queue, kernel.reference)?, copy!(queue, kernel.coef)?);
            let Logits { logits, loss_mask, .. } = host.view();
            let pair = TwoRows { logits, reference: &reference, vocab, loss_mask };
            ops::logits_kl(&Device::cpu(), &pair, direction, temperature, Some(&coef)).map(drop)
        })
    })
}

/// Draws `draws` tokens from each row into `tokens`.
#[pyfunction]
pub(crate) fn draw_tokens(
    py: Python<'_>,
    at: On,
    vocab: usize,
    temperature: f32,
    draws: usize,
    seed: u64,
    arrays: Arrays,
) -> PyResult<()> {
    on(py, at, |queue| {
        let rows = rows::<f32>(&arrays, vocab)?;
        let n = rows.rows;
        let kernel = DrawTokens {
            rows,
            temperature,
            draws,
            seed,
            first: 0,
            tokens: arrays.output("tokens", n * draws)?,
            row_alarm: arrays.output("alarm", n)?,
        };
        launch(queue, &kernel, *kernel.row_alarm, true, || {
            let host = Host::new(queue, &rows, None)?;
            ops::draw_tokens(&Device::cpu(), &host.view(), temperature, draws, seed).map(drop)
        })
    })
}

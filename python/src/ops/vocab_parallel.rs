//! Rows of logits whose vocabulary is spread over ranks.

use super::logits::{in_format, labels, results, rows};
use super::{Arrays, On, copy, launch, on};
use lockstep::Device;
use lockstep::core::Error as Argument;
use lockstep::core::logits::vocab_parallel::SUMS;
use lockstep::core::logits::{VocabParallelStatistics, VocabParallelSums, VocabParallelTop};
use lockstep::core::num::{Bf16, F16};
use lockstep::core::op::Launch;
use lockstep::ops::logits::vocab_parallel as ops;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Finds the largest entry of each row of a shard of the vocabulary, and its token: `largest`, int64, whose
/// maximum over ranks is that of the row.
#[pyfunction]
pub(crate) fn vocab_parallel_top(
    py: Python<'_>,
    at: On,
    format: &str,
    vocab: usize,
    vocab_start: u32,
    arrays: Arrays,
) -> PyResult<()> {
    in_format!(format, |S| on(py, at, |queue| {
        let rows = rows::<S>(&arrays, vocab)?;
        let kernel = VocabParallelTop { rows, vocab_start, top: arrays.output("largest", rows.rows)? };
        kernel.check()?;
        // SAFETY: the arrays are memory of the queue's device (see `Arrays`). Torch gives memory back in the
        // order of its stream, so they outlive the launch.
        unsafe { queue.launch(&kernel) }
    }))
}

/// Sums over each row of a shard of the vocabulary, for rows whose largest entries are `largest`: `sums`,
/// float64, `[4, rows]`, or `[8, rows]` with moments.
#[pyfunction]
pub(crate) fn vocab_parallel_sums(
    py: Python<'_>,
    at: On,
    format: &str,
    vocab: usize,
    vocab_start: u32,
    temperature: f32,
    arrays: Arrays,
) -> PyResult<()> {
    in_format!(format, |S| on(py, at, |queue| {
        let rows = rows::<S>(&arrays, vocab)?;
        let n = rows.rows;
        let moments = arrays.find::<f64>("sums")?.is_some_and(|(_, len)| len == SUMS[1] * n);
        let kernel = VocabParallelSums {
            rows,
            vocab_start,
            labels: labels(&arrays, n)?,
            top: arrays.input("largest")?,
            temperature,
            moments,
            sums: arrays.output("sums", SUMS[usize::from(moments)] * n)?,
            row_alarm: arrays.output("alarm", n)?,
        };
        launch(queue, &kernel, *kernel.row_alarm, true, || {
            let expected = "the maximum of vocab_parallel_top over all shards";
            Err(Argument::Combination { argument: "largest", expected }.into())
        })
    }))
}

/// Computes the statistics of whole rows from `largest`, the maximum over ranks, and `sums`, the sum over
/// ranks; also `entropy`, `collision` and `score_norm`, if those arrays are given.
#[pyfunction]
pub(crate) fn vocab_parallel_statistics(
    py: Python<'_>,
    at: On,
    temperature: f32,
    arrays: Arrays,
) -> PyResult<()> {
    on(py, at, |queue| {
        let (top, sums) = (arrays.input::<i64>("largest")?, arrays.input::<f64>("sums")?);
        let rows = top.len();
        let live = arrays.mask("loss_mask", rows)?;
        let kernel =
            VocabParallelStatistics { rows, live, top, sums, temperature, results: results(&arrays, rows)? };
        launch(queue, &kernel, *kernel.results.row_alarm, true, || {
            let (top, sums): (Vec<i64>, Vec<f64>) = (copy!(queue, top)?, copy!(queue, sums)?);
            let live: Option<Vec<u8>> = live.bytes().map(|bytes| copy!(queue, bytes)).transpose()?;
            ops::vocab_parallel_statistics(&Device::cpu(), &top, &sums, live.as_deref(), temperature)
                .map(drop)
        })
    })
}

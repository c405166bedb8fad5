//! The load of experts: how often each one ran.

use crate::Error;
use lockstep_core::routing::Trace;

/// The sum of the loads of all experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSum {
    /// 1: assignments over all assignments (Switch, GShard, Megatron).
    One,
    /// K: assignments over tokens (Hugging Face).
    TopK,
}

/// Computes the load f_e of each expert, `[experts]`, from a trace, over all layers of the view together.
/// Rows without a record do not count; if no row has a record, all loads are 0.
///
/// Errors: an entry that is not an expert (token, layer and entry).
pub fn load(trace: &Trace<'_>, experts: usize, sum: LoadSum) -> Result<Vec<f32>, Error> {
    trace.validate(trace.tokens(), experts)?;
    let mut counts = vec![0u64; experts];
    let mut rows = 0;
    for row in (0..trace.rows()).filter(|row| !trace.is_absent(*row)) {
        let first = trace.position(row);
        (first..first + trace.top_k()).for_each(|at| counts[trace.at(at) as usize] += 1);
        rows += 1;
    }
    let per_row = if sum == LoadSum::One { trace.top_k() } else { 1 };
    let whole = (rows * per_row).max(1) as f64;
    Ok(counts.into_iter().map(|n| (n as f64 / whole) as f32).collect())
}

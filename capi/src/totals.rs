//! Exact sums of parts of a batch, merged over ranks and micro-batches in any order.

use crate::error::{Refusal, enter, ls_status};
use crate::results::{fill, ls_output};
use crate::text::{given, given_mut, hand_out, host, list, take_back};
use lockstep::PolicyTotals;
use lockstep::ops::exact::Limbs;

/// A rank's or micro-batch's exact contribution to the loss and metrics of the whole batch. However a batch
/// is split, and in whatever order the totals of its parts are merged, loss and metrics are the same, bit for
/// bit.
pub struct ls_totals {
    own: PolicyTotals,
}

/// Number of bytes that `ls_totals_to_bytes` writes.
pub const LS_TOTALS_BYTES: usize = 4016;
const _: () = assert!(LS_TOTALS_BYTES == PolicyTotals::BYTES);
/// Number of integers that `ls_totals_to_limbs` writes.
pub const LS_TOTALS_LIMBS: usize = 999;
const _: () = assert!(LS_TOTALS_LIMBS == PolicyTotals::LIMBS);

/// Makes totals of no rows, to merge others into.
///
/// # Safety
/// `out` is null or points to a pointer, which is null after a failure. Free the totals with
/// `ls_totals_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_new(out: *mut *mut ls_totals) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe { hand_out(out, || Ok(ls_totals { own: PolicyTotals::default() })) })
}

/// Makes the totals of a loss. For parts to add up, the loss must have had the whole batch's `counts` as a
/// column.
///
/// # Safety
/// `output` is null or open; `out` as for `ls_totals_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_of(output: *const ls_output, out: *mut *mut ls_totals) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe { hand_out(out, || Ok(ls_totals { own: given(output, "output")?.own.totals() })) })
}

/// Reads totals from the bytes of `ls_totals_to_bytes`.
///
/// # Safety
/// `bytes` is null or has `len` bytes; `out` as for `ls_totals_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_from_bytes(
    bytes: *const u8,
    len: usize,
    out: *mut *mut ls_totals,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        hand_out(out, || {
            let bytes = host(bytes, len, "bytes")?;
            Ok(ls_totals { own: PolicyTotals::from_bytes(bytes)? })
        })
    })
}

/// Writes the totals as bytes. Equal totals give equal bytes on every machine. `capacity` is at least
/// `LS_TOTALS_BYTES`.
///
/// # Safety
/// `totals` is null or open; `out` is null or has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_to_bytes(
    totals: *const ls_totals,
    out: *mut u8,
    capacity: usize,
) -> ls_status {
    enter(|| {
        // SAFETY: the caller upholds it.
        let totals = unsafe { given(totals, "totals")? };
        if capacity < LS_TOTALS_BYTES {
            let says = format!("has room for {capacity} bytes: expected LS_TOTALS_BYTES, {LS_TOTALS_BYTES}");
            return Err(Refusal::new(ls_status::Argument, "out", says));
        }
        // SAFETY: the caller upholds it.
        unsafe { list(totals.own.to_bytes(), out, capacity, "out")? };
        Ok(())
    })
}

/// Writes the totals as integers to sum over ranks element by element (`MPI_INT64_T`, `MPI_SUM`), and two
/// numbers to reduce with the maximum (`MPI_DOUBLE`, `MPI_MAX`). `capacity` is at least `LS_TOTALS_LIMBS`.
///
/// # Safety
/// `totals` is null or open; `limbs` is null or has room for `capacity` integers; `maxima` is null or has
/// room for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_to_limbs(
    totals: *const ls_totals,
    limbs: *mut i64,
    capacity: usize,
    maxima: *mut f64,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let (totals, to_maxima) = (given(totals, "totals")?, given_mut(maxima.cast::<[f64; 2]>(), "maxima")?);
        if capacity < LS_TOTALS_LIMBS {
            let says =
                format!("has room for {capacity} integers: expected LS_TOTALS_LIMBS, {LS_TOTALS_LIMBS}");
            return Err(Refusal::new(ls_status::Argument, "limbs", says));
        }
        let (own, maxima) = totals.own.to_limbs();
        list(own, limbs, capacity, "limbs")?;
        *to_maxima = maxima;
        Ok(())
    })
}

/// Makes the totals of all ranks from the reduced limbs and maxima. Equal, bit for bit, to merging them all
/// with `ls_totals_merge`, for at most 2^31 ranks.
///
/// # Safety
/// `limbs` is null or has `len` integers; `maxima` is null or has two numbers; `out` as for `ls_totals_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_from_limbs(
    limbs: *const i64,
    len: usize,
    maxima: *const f64,
    out: *mut *mut ls_totals,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        hand_out(out, || {
            let (limbs, maxima) = (host(limbs, len, "limbs")?, given(maxima.cast::<[f64; 2]>(), "maxima")?);
            Ok(ls_totals { own: PolicyTotals::from_limbs(limbs, *maxima)? })
        })
    })
}

/// Adds the rows of `other` to `totals`.
///
/// # Safety
/// Both are null or open; nobody else uses `totals`. They may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_merge(totals: *mut ls_totals, other: *const ls_totals) -> ls_status {
    enter(|| {
        // SAFETY: the caller upholds it; copied, because the two may be the same.
        let other = unsafe { given(other, "other")? }.own.clone();
        // SAFETY: the caller upholds it.
        unsafe { given_mut(totals, "totals")? }.own.merge(&other);
        Ok(())
    })
}

/// The error for a result that a part was computed without.
fn absent(what: &str) -> Refusal {
    Refusal::new(ls_status::Absent, what, "is absent: a part was computed without it")
}

/// Writes the loss over all rows, rounded once. `LS_STATUS_ABSENT` if a part was computed without its loss.
///
/// # Safety
/// `totals` is null or open; `out` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_loss(totals: *const ls_totals, out: *mut f64) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let (totals, out) = (given(totals, "totals")?, given_mut(out, "out")?);
        *out = totals.own.loss().ok_or_else(|| absent("loss"))?;
        Ok(())
    })
}

/// Writes the number of live tokens, of sequences with a live token, and of sequences, over all rows.
///
/// # Safety
/// `totals` is null or open; `out` is null or has room for three numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_counts(totals: *const ls_totals, out: *mut u64) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let (counts, out) =
            (given(totals, "totals")?.own.counts(), given_mut(out.cast::<[u64; 3]>(), "out")?);
        *out = [counts.tokens, counts.nonempty, counts.sequences];
        Ok(())
    })
}

/// Writes the metrics over all rows; `ls_metric_name_at` gives their names. `LS_STATUS_ABSENT` if a part was
/// computed without metrics.
///
/// # Safety
/// `totals` is null or open; `out` is null or has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_metrics(
    totals: *const ls_totals,
    out: *mut f64,
    capacity: usize,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let metrics = given(totals, "totals")?.own.metrics().ok_or_else(|| absent("metrics"))?;
        fill(&metrics, out, capacity)
    })
}

/// Frees totals; does nothing if they are null.
///
/// # Safety
/// `totals` is null, or open totals that are not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_free(totals: *mut ls_totals) {
    // SAFETY: the caller upholds it.
    unsafe { take_back(totals) }
}

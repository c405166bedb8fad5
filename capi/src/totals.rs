//! Exact sums of parts of a batch, merged over ranks and micro-batches in any order.

use crate::error::{Refusal, enter, ls_status};
use crate::results::{fill, ls_output};
use crate::text::{given, given_mut, hand_out, host, list, take_back};
use lockstep::PolicyTotals;
use lockstep::ops::exact::Limbs;

/// What a rank or micro-batch knows of loss and metrics of the whole batch, exactly: merged in any order, the totals of any parts of a
/// batch have the same loss and metrics, bit for bit.
pub struct ls_totals {
    own: PolicyTotals,
}

/// Bytes of `ls_totals_to_bytes`.
pub const LS_TOTALS_BYTES: usize = 4016;
const _: () = assert!(LS_TOTALS_BYTES == PolicyTotals::BYTES);
/// Integers of `ls_totals_to_limbs`.
pub const LS_TOTALS_LIMBS: usize = 999;
const _: () = assert!(LS_TOTALS_LIMBS == PolicyTotals::LIMBS);

/// Totals of no rows, to merge others into.
///
/// # Safety
/// `out` is null or that of a pointer. `ls_totals_free` frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_new(out: *mut *mut ls_totals) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe { hand_out(out, || Ok(ls_totals { own: PolicyTotals::default() })) })
}

/// The totals of a loss. `counts` of the whole batch was its column, so that the parts add up.
///
/// # Safety
/// `output` is null or open; `out` as for `ls_totals_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_of(output: *const ls_output, out: *mut *mut ls_totals) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe { hand_out(out, || Ok(ls_totals { own: given(output, "output")?.own.totals() })) })
}

/// The totals that these bytes are.
///
/// # Safety
/// `bytes` is null or has `len` bytes; `out` as for `ls_totals_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_from_bytes(
    bytes: *const u8,
    len: usize,
    out: *mut *mut ls_totals,
) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe {
        hand_out(out, || {
            let bytes = host(bytes, len, "bytes")?;
            Ok(ls_totals { own: PolicyTotals::from_bytes(bytes)? })
        })
    })
}

/// Writes the totals as bytes, the same for equal totals on every machine. `capacity` is at least `LS_TOTALS_BYTES`.
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
        // SAFETY: the caller's.
        let totals = unsafe { given(totals, "totals")? };
        if capacity < LS_TOTALS_BYTES {
            let says = format!("has room for {capacity} bytes: expected LS_TOTALS_BYTES, {LS_TOTALS_BYTES}");
            return Err(Refusal::new(ls_status::Argument, "out", says));
        }
        // SAFETY: the caller's.
        unsafe { list(totals.own.to_bytes(), out, capacity, "out")? };
        Ok(())
    })
}

/// Writes the totals as integers that the ranks add element by element (`MPI_INT64_T`, `MPI_SUM`), and two numbers of which they take the
/// maximum (`MPI_DOUBLE`, `MPI_MAX`). `capacity` is at least `LS_TOTALS_LIMBS`.
///
/// # Safety
/// `totals` is null or open; `limbs` is null or has room for `capacity` integers; `maxima` is null or that of two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_to_limbs(
    totals: *const ls_totals,
    limbs: *mut i64,
    capacity: usize,
    maxima: *mut f64,
) -> ls_status {
    // SAFETY: the caller's.
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

/// What the ranks know together, from the sums of their limbs and the maxima; equal to `ls_totals_merge` of all, bit for bit, for at most
/// 2^31 ranks.
///
/// # Safety
/// `limbs` is null or has `len` integers; `maxima` is null or that of two numbers; `out` as for `ls_totals_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_from_limbs(
    limbs: *const i64,
    len: usize,
    maxima: *const f64,
    out: *mut *mut ls_totals,
) -> ls_status {
    // SAFETY: the caller's.
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
        // SAFETY: the caller's; copied, because the two may be the same.
        let other = unsafe { given(other, "other")? }.own.clone();
        // SAFETY: the caller's.
        unsafe { given_mut(totals, "totals")? }.own.merge(&other);
        Ok(())
    })
}

/// What a part was run without.
fn absent(what: &str) -> Refusal {
    Refusal::new(ls_status::Absent, what, "is not there: a part was run without it")
}

/// The loss over all rows, rounded once. `LS_STATUS_ABSENT` if a part was run without.
///
/// # Safety
/// `totals` is null or open; `out` is null or that of a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_loss(totals: *const ls_totals, out: *mut f64) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe {
        let (totals, out) = (given(totals, "totals")?, given_mut(out, "out")?);
        *out = totals.own.loss().ok_or_else(|| absent("loss"))?;
        Ok(())
    })
}

/// Live tokens, sequences with a live token, and sequences of all rows.
///
/// # Safety
/// `totals` is null or open; `out` is null or that of three numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_counts(totals: *const ls_totals, out: *mut u64) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe {
        let (counts, out) =
            (given(totals, "totals")?.own.counts(), given_mut(out.cast::<[u64; 3]>(), "out")?);
        *out = [counts.tokens, counts.nonempty, counts.sequences];
        Ok(())
    })
}

/// The metrics over all rows, whose names `ls_metric_name_at` gives. `LS_STATUS_ABSENT` if a part was run without.
///
/// # Safety
/// `totals` is null or open; `out` is null or has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_metrics(
    totals: *const ls_totals,
    out: *mut f64,
    capacity: usize,
) -> ls_status {
    // SAFETY: the caller's.
    enter(|| unsafe {
        let metrics = given(totals, "totals")?.own.metrics().ok_or_else(|| absent("metrics"))?;
        fill(&metrics, out, capacity)
    })
}

/// Frees totals; null is nothing.
///
/// # Safety
/// `totals` is null, or open totals that nothing uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_totals_free(totals: *mut ls_totals) {
    // SAFETY: the caller's.
    unsafe { take_back(totals) }
}

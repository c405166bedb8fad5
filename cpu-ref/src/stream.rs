//! Non-temporal stores, which bypass the caches: a line that is written whole need not be read first.
#![cfg(target_arch = "x86_64")]

use core::cell::Cell;

/// Writes `values` to `to` with streaming stores. Call [`drain`] before another thread reads them.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn stream(to: &[Cell<f32>], values: &[f32]) {
    use core::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
    let first = to.as_ptr();
    if to.len() != values.len() || !to.len().is_multiple_of(4) || !first.addr().is_multiple_of(16) {
        return to.iter().zip(values).for_each(|(cell, value)| cell.set(*value));
    }
    for i in (0..values.len()).step_by(4) {
        // SAFETY: both have four numbers from `i` on; `first` is 16-byte aligned, and so is every fourth
        // number after it. A cell may be written through a shared reference and has its content's layout.
        unsafe { _mm_stream_ps(first.add(i).cast::<f32>().cast_mut(), _mm_loadu_ps(values.as_ptr().add(i))) };
    }
}

/// Orders what [`stream`] wrote before this thread's later stores.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn drain() {
    // SAFETY: SSE is part of x86-64.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_arrive_wherever_they_go() {
        let values: Vec<f32> = (0..64).map(|i| 1.0 + i as f32).collect();
        for (first, length) in [(0, 64), (1, 48), (2, 13), (3, 0), (4, 32), (8, 4)] {
            let to = vec![Cell::new(0.0f32); 80];
            stream(&to[first..first + length], &values[..length]);
            drain();
            for (i, cell) in to.iter().enumerate() {
                let inside = i >= first && i < first + length;
                assert_eq!(cell.get(), if inside { values[i - first] } else { 0.0 }, "{first} {length} {i}");
            }
        }
    }
}

//! Transposes between rows in vectors and vectors with a lane for each row, for AVX-512.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use core::arch::x86_64::*;
use core::cell::Cell;
use lockstep_core::team::{PAIRED, PICKS, ROWS};

/// Transposes slots j·16 + r to r·8 + j.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn put_rows(slots: &[f32; ROWS * PICKS], to: &[Cell<f32>]) {
    assert!(to.len() == ROWS * PICKS, "a number for each pick");
    let x = |j: usize| {
        // SAFETY: 16 numbers of slot j, which is below 8.
        unsafe { _mm512_loadu_ps(slots.as_ptr().add(j * ROWS)) }
    };
    let low = quarters(x(0), x(1), x(2), x(3));
    let high = quarters(x(4), x(5), x(6), x(7));
    let order = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let later = _mm512_or_si512(order, _mm512_set1_epi64(4));
    let first = to.as_ptr().cast::<f32>().cast_mut();
    for c in 0..4 {
        let (a, b) = (_mm512_castps_pd(low[c]), _mm512_castps_pd(high[c]));
        for (half, order) in [order, later].into_iter().enumerate() {
            let two = _mm512_permutex2var_pd(a, order, b);
            let row = 8 * half + c;
            // SAFETY: rows `row` and `row + 4` are below 16 and have 8 numbers; a cell may be written through
            // a shared reference.
            unsafe {
                _mm256_storeu_pd(first.add(row * PICKS).cast(), _mm512_castpd512_pd256(two));
                _mm256_storeu_pd(first.add((row + 4) * PICKS).cast(), _mm512_extractf64x4_pd::<1>(two));
            }
        }
    }
}

/// Transposes slots r·8 + j to j·16 + r.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(crate) fn take_rows(from: &[f32; ROWS * PICKS]) -> [f32; ROWS * PICKS] {
    let mut slots = [0.0f32; ROWS * PICKS];
    // Each quarter holds four slots of one of the rows i, i + 4, i + 8 and i + 12.
    let rows = |i: usize, half: usize| {
        let four = |q: usize| {
            // SAFETY: 4 numbers of a row below 16, because i and q are below 4.
            unsafe { _mm_loadu_ps(from.as_ptr().add((4 * q + i) * PICKS + 4 * half)) }
        };
        let x = _mm512_insertf32x4::<1>(_mm512_castps128_ps512(four(0)), four(1));
        _mm512_insertf32x4::<3>(_mm512_insertf32x4::<2>(x, four(2)), four(3))
    };
    for half in 0..2 {
        let of_slot = quarters(rows(0, half), rows(1, half), rows(2, half), rows(3, half));
        for (j, x) in of_slot.into_iter().enumerate() {
            // SAFETY: 16 numbers of slot 4·half + j.
            unsafe { _mm512_storeu_ps(slots.as_mut_ptr().add((4 * half + j) * ROWS), x) };
        }
    }
    slots
}

/// The largest and the second largest number of several lanes, at the same places.
#[derive(Clone, Copy)]
struct Pair(__m512, __m512);

impl Pair {
    /// Returns the two largest of both.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn with(self, other: Pair) -> Pair {
        let second = _mm512_max_ps(_mm512_min_ps(self.0, other.0), _mm512_max_ps(self.1, other.1));
        Pair(_mm512_max_ps(self.0, other.0), second)
    }
}

/// Merges two groups, in half of the lanes each, into one vector with half as many lanes each. `M` selects
/// halves (1), quarters (2) or numbers of a quarter (3: halves, 4: single numbers).
#[inline]
#[target_feature(enable = "avx512f")]
fn folded<const M: i32>(a: Pair, b: Pair) -> Pair {
    let pd = _mm512_castps_pd;
    let split = |a: __m512, b: __m512| match M {
        1 => (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b)),
        2 => (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b)),
        3 => (
            _mm512_castpd_ps(_mm512_unpacklo_pd(pd(a), pd(b))),
            _mm512_castpd_ps(_mm512_unpackhi_pd(pd(a), pd(b))),
        ),
        _ => (_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b)),
    };
    let ((first, first2), (second, second2)) = (split(a.0, b.0), split(a.1, b.1));
    Pair(first, second).with(Pair(first2, second2))
}

/// Sums the two largest of each of 128 groups of finite numbers; −0 becomes +0.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn pairs_of_rows(keys: &[f32]) -> [f32; ROWS * PICKS] {
    assert!(keys.len() == ROWS * PICKS * PAIRED, "eight groups in each of sixteen rows");
    let mut sums = [0.0f32; ROWS * PICKS];
    for (i, sums) in sums.chunks_exact_mut(16).enumerate() {
        let group = |g: usize| {
            // SAFETY: 32 numbers of group 16·i + g, which is below 128.
            let (a, b) = unsafe {
                let first = keys.as_ptr().add((16 * i + g) * PAIRED);
                (_mm512_loadu_ps(first), _mm512_loadu_ps(first.add(PAIRED / 2)))
            };
            Pair(_mm512_max_ps(a, b), _mm512_min_ps(a, b))
        };
        // Quarter q: group 4·q + l.
        let four = |l: usize| {
            folded::<2>(folded::<1>(group(l), group(4 + l)), folded::<1>(group(8 + l), group(12 + l)))
        };
        let all = folded::<4>(folded::<3>(four(0), four(1)), folded::<3>(four(2), four(3)));
        let sum = _mm512_add_ps(_mm512_add_ps(all.0, all.1), _mm512_setzero_ps());
        // SAFETY: 16 numbers.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), sum) };
    }
    sums
}

/// Transposes the quarters of four rows: quarter L of result c holds element 4·L + c of each.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarters(a: __m512, b: __m512, c: __m512, d: __m512) -> [__m512; 4] {
    let (low, high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    let (low2, high2) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    let pd = _mm512_castps_pd;
    [
        _mm512_castpd_ps(_mm512_unpacklo_pd(pd(low), pd(low2))),
        _mm512_castpd_ps(_mm512_unpackhi_pd(pd(low), pd(low2))),
        _mm512_castpd_ps(_mm512_unpacklo_pd(pd(high), pd(high2))),
        _mm512_castpd_ps(_mm512_unpackhi_pd(pd(high), pd(high2))),
    ]
}

/// Transposes sixteen vectors: the i-th result holds the i-th number of each.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn transposed(x: [__m512; 16]) -> [__m512; 16] {
    let a = quarters(x[0], x[1], x[2], x[3]);
    let b = quarters(x[4], x[5], x[6], x[7]);
    let c = quarters(x[8], x[9], x[10], x[11]);
    let d = quarters(x[12], x[13], x[14], x[15]);
    let mut y = [_mm512_setzero_ps(); 16];
    for i in 0..4 {
        let (even, odd) =
            (_mm512_shuffle_f32x4::<0x88>(a[i], b[i]), _mm512_shuffle_f32x4::<0xdd>(a[i], b[i]));
        let (even2, odd2) =
            (_mm512_shuffle_f32x4::<0x88>(c[i], d[i]), _mm512_shuffle_f32x4::<0xdd>(c[i], d[i]));
        y[i] = _mm512_shuffle_f32x4::<0x88>(even, even2);
        y[4 + i] = _mm512_shuffle_f32x4::<0x88>(odd, odd2);
        y[8 + i] = _mm512_shuffle_f32x4::<0xdd>(even, even2);
        y[12 + i] = _mm512_shuffle_f32x4::<0xdd>(odd, odd2);
    }
    y
}

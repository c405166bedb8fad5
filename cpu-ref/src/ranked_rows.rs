//! The eight largest of each of sixteen rows, for AVX-512: what [`ranked`](crate::ranked) does for one row,
//! but with a lane for each row during sorting.
//!
//! ```text
//! heads        the largest value in each of 16 columns of a row (element e is in column e mod 16)
//! floor        the eighth largest head: at least 8 values of the row reach it, and few more do
//! candidates   those values as names, contiguous in memory: the last bits of each hold a number of its
//!              element, larger for the lower element
//! ```
//!
//! Heads and candidates of sixteen rows are transposed, so that vector i holds the i-th of each row. A
//! comparator is then two instructions for sixteen rows instead of three for one (a step of `ranked` also
//! permutes); of 20 steps for each row 4 are left, most of them in the transposes. The candidates of a row
//! are stored as whole vectors, each overwriting the unused rest of the one before, and are read back after
//! all rows are done.
//!
//! Names order as values do, except where values differ in the last bits only. A row is left to `ranked` if
//! its picks are not in descending order, or if a candidate after the last pick has the same name but for
//! these bits and a larger value. So is a row with more than 16 candidates, an alarm, or a candidate that is
//! 0 or too small to name (−0 equals 0, but its name differs).
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use crate::pick::Candidates;
use crate::transpose::transposed;
use core::arch::x86_64::*;
use core::cell::Cell;
use core::mem::MaybeUninit;
use lockstep_core::ragged::flag;
use lockstep_core::team::{Near, PICKS, PickedRows, ROWS};

/// Lanes of a vector: one for each row.
const LANES: usize = ROWS;

/// Elements of the longest row.
const MOST: usize = 256;

/// Candidates of sixteen rows, each row's starting on a cache line, plus room for what the last row writes
/// past its own.
#[repr(C, align(64))]
struct Names([f32; ROWS * LANES + MOST]);

/// Picks for the 16 rows of `E` values at the start of `values`. Returns a bit for each row left to do; of
/// those rows only the alarm is valid. Without `ALARMS`, `picked` already holds the alarms.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,popcnt,bmi1")]
pub(crate) fn rows<const E: usize, const ALARMS: bool, const NEAR: bool>(
    values: &[f32],
    near: Option<Near>,
    chosen: &[Cell<u8>],
    picked: &mut PickedRows,
    candidates: Option<&mut Candidates>,
) -> u32 {
    const { assert!(E.is_power_of_two() && E >= LANES && E <= MOST) };
    assert!(values.len() >= ROWS * E && chosen.len() == ROWS * PICKS, "sixteen rows");
    let first = values.as_ptr();
    let value = |r: usize, v: usize| {
        // SAFETY: element r·E + v·16 and the 15 after it are in the rows, because every call has r below 16
        // and v below E/16.
        unsafe { _mm512_loadu_ps(first.add(r * E + v * LANES)) }
    };

    let (mut heads, mut worst) = ([_mm512_setzero_ps(); ROWS], [_mm512_setzero_ps(); ROWS]);
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    for r in 0..ROWS {
        let mut head = value(r, 0);
        let mut most = _mm512_and_si512(_mm512_castps_si512(head), magnitude);
        for v in 1..E / LANES {
            let x = value(r, v);
            head = _mm512_max_ps(head, x);
            if ALARMS {
                most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(x), magnitude));
            }
        }
        heads[r] = head;
        worst[r] = _mm512_castsi512_ps(most);
        if ALARMS {
            for line in (0..E).step_by(LANES) {
                // A hint: it may name any address.
                _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add((ROWS + r) * E + line).cast());
            }
        }
    }
    let mut floors = eighth(transposed(heads));
    if let (true, Some(near)) = (NEAR, near) {
        floors = _mm512_sub_ps(floors, _mm512_set1_ps(near.below));
    }
    if ALARMS {
        let worst = transposed(worst);
        let mut alarm = _mm512_castps_si512(worst[0]);
        for i in 1..LANES {
            alarm = _mm512_max_epu32(alarm, _mm512_castps_si512(worst[i]));
        }
        // SAFETY: 16 numbers are 64 bytes.
        unsafe { _mm512_storeu_si512(picked.alarms.as_mut_ptr().cast(), alarm) };
    }
    // SAFETY: as above.
    let alarm = unsafe { _mm512_loadu_si512(picked.alarms.as_ptr().cast()) };
    let limit = _mm512_set1_epi32(flag::LIMIT as i32);
    let mut left = _mm512_cmpgt_epu32_mask(alarm, limit);

    let number = _mm512_set1_epi32(E as i32 - 1);
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let least = _mm512_set1_ps(f32::NEG_INFINITY);
    // −∞ as a name.
    let nothing = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(least), number));
    let mut names = MaybeUninit::<Names>::uninit();
    let names: *mut f32 = names.as_mut_ptr().cast();
    let (mut found, mut floor) = ([0u32; ROWS], [0.0f32; ROWS]);
    // SAFETY: 16 numbers are 64 bytes.
    unsafe { _mm512_storeu_ps(floor.as_mut_ptr(), floors) };
    for r in 0..ROWS {
        let floor = _mm512_set1_ps(floor[r]);
        let mut count = 0;
        for v in 0..E / LANES {
            let x = value(r, v);
            let above = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, floor);
            let element = _mm512_sub_epi32(_mm512_set1_epi32((E - 1 - v * LANES) as i32), lane);
            let name = _mm512_ternarylogic_epi32::<0xca>(number, element, _mm512_castps_si512(x));
            let name = _mm512_mask_compress_ps(nothing, above, _mm512_castsi512_ps(name));
            // SAFETY: `count` is at most 16·v, so the store ends at 16·r + E or before, in bounds. What
            // spills into the next row is overwritten, because a row's last vector ends past its sixteenth
            // slot.
            unsafe { _mm512_storeu_ps(names.add(r * LANES + count), name) };
            count += above.count_ones() as usize;
        }
        found[r] = count as u32;
    }

    let mut x = [_mm512_setzero_ps(); ROWS];
    for r in 0..ROWS {
        // SAFETY: 16 numbers from 16·r on were written, and start on a 64-byte boundary.
        x[r] = unsafe { _mm512_load_ps(names.add(r * LANES)) };
    }
    let x = transposed(x);
    // Reverses the element number in negative names, so that the lower element is the larger there too.
    let own = |x: __m512| {
        let sign = _mm512_srai_epi32::<31>(_mm512_castps_si512(x));
        _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0x78>(_mm512_castps_si512(x), sign, number))
    };
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = x;
    let above = sorted([own(a), own(b), own(c), own(d), own(e), own(f), own(g), own(h)]);
    let below = sorted([own(i), own(j), own(k), own(l), own(m), own(n), own(o), own(p)]);
    let (mut best, mut rest) = ([least; PICKS], [least; PICKS]);
    for i in 0..PICKS {
        best[i] = _mm512_max_ps(above[i], below[PICKS - 1 - i]);
        rest[i] = _mm512_min_ps(above[i], below[PICKS - 1 - i]);
    }
    let best = merged(best);

    let start = _mm512_mullo_epi32(lane, _mm512_set1_epi32(E as i32));
    let at = |name: __m512| {
        let bits = _mm512_castps_si512(name);
        // (bits ^ !sign) & number
        _mm512_ternarylogic_epi32::<0x90>(number, bits, _mm512_srai_epi32::<31>(bits))
    };
    let key = |at: __m512i| {
        // SAFETY: the index of an element below E in row `lane`: `at` masks it.
        unsafe { _mm512_i32gather_ps::<4>(_mm512_add_epi32(start, at), first) }
    };
    let (mut elements, mut keys) = ([lane; PICKS], [least; PICKS]);
    for i in 0..PICKS {
        elements[i] = at(best[i]);
        keys[i] = key(elements[i]);
    }
    // SAFETY: 16 numbers are 64 bytes.
    let found = unsafe { _mm512_loadu_si512(found.as_ptr().cast()) };
    left |= _mm512_cmpgt_epu32_mask(found, _mm512_set1_epi32(LANES as i32));
    for i in 1..PICKS {
        left |= _mm512_cmp_ps_mask::<_CMP_LT_OQ>(keys[i - 1], keys[i]);
    }
    if let (true, Some(near), Some(candidates)) = (NEAR, near, candidates) {
        let last = keys[PICKS - 1];
        left |= !(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(last, _mm512_set1_ps(near.from))
            & _mm512_cmp_ps_mask::<_CMP_LE_OQ>(last, _mm512_set1_ps(near.to)));
        let rest = merged(rest);
        let mut before = last;
        for i in 0..PICKS {
            let there = _mm512_cmpgt_epu32_mask(found, _mm512_set1_epi32((PICKS + i) as i32));
            let element = at(rest[i]);
            let own = key(element);
            left |= _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(there, before, own);
            before = own;
            // SAFETY: 16 numbers of slot i and of slot 8 + i.
            unsafe {
                let (values, at) = (candidates.values.as_mut_ptr(), candidates.at.as_mut_ptr());
                _mm512_store_ps(values.add(i * ROWS), keys[i]);
                _mm512_store_si512(at.add(i * ROWS).cast(), elements[i]);
                _mm512_store_ps(values.add((PICKS + i) * ROWS), own);
                _mm512_store_si512(at.add((PICKS + i) * ROWS).cast(), element);
            }
        }
        // SAFETY: 16 numbers.
        unsafe { _mm512_storeu_si512(candidates.found.as_mut_ptr().cast(), found) };
    } else {
        // Candidates whose name equals the last pick's except for the element number.
        let same = |a: __m512, b: __m512| {
            let differ = _mm512_xor_si512(_mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_cmple_epu32_mask(differ, number)
        };
        let next = [
            _mm512_max_ps(_mm512_max_ps(rest[0], rest[1]), _mm512_max_ps(rest[2], rest[3])),
            _mm512_max_ps(_mm512_max_ps(rest[4], rest[5]), _mm512_max_ps(rest[6], rest[7])),
        ];
        if same(best[PICKS - 1], _mm512_max_ps(next[0], next[1])) != 0 {
            for i in 0..PICKS {
                let close = same(best[PICKS - 1], rest[i]);
                left |= _mm512_mask_cmp_ps_mask::<_CMP_GT_OQ>(close, key(at(rest[i])), keys[PICKS - 1]);
            }
        }
    }
    if _mm512_cmp_ps_mask::<_CMP_LE_OQ>(floors, _mm512_setzero_ps()) != 0 {
        for i in 0..PICKS {
            for x in [best[i], rest[i]] {
                left |=
                    _mm512_testn_epi32_mask(_mm512_castps_si512(x), _mm512_andnot_si512(number, magnitude));
            }
        }
    }
    // SAFETY: 16 numbers each.
    unsafe {
        for i in 0..PICKS {
            _mm512_storeu_ps(picked.keys.as_mut_ptr().add(i * ROWS), keys[i]);
        }
    }
    put(chosen, &elements);
    u32::from(left)
}

/// Writes elements as bytes, row by row.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(chosen: &[Cell<u8>], at: &[__m512i; PICKS]) {
    let four = |a, b, c, d| {
        let (b, c, d) = (_mm512_slli_epi32::<8>(b), _mm512_slli_epi32::<16>(c), _mm512_slli_epi32::<24>(d));
        _mm512_or_si512(_mm512_ternarylogic_epi32::<0xfe>(a, b, c), d)
    };
    let (low, high) = (four(at[0], at[1], at[2], at[3]), four(at[4], at[5], at[6], at[7]));
    let order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let later = _mm512_or_si512(order, _mm512_set1_epi32(8));
    let to = chosen.as_ptr().cast::<u8>().cast_mut();
    assert!(chosen.len() == ROWS * PICKS, "a byte for each pick");
    // SAFETY: 128 bytes; a cell may be written through a shared reference and has its content's layout.
    unsafe {
        _mm512_storeu_si512(to.cast(), _mm512_permutex2var_epi32(low, order, high));
        _mm512_storeu_si512(to.add(64).cast(), _mm512_permutex2var_epi32(low, later, high));
    }
}

/// Orders two vectors, the larger number first, lane by lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(x: &mut [__m512; 8], i: usize, j: usize) {
    (x[i], x[j]) = (_mm512_max_ps(x[i], x[j]), _mm512_min_ps(x[i], x[j]));
}

/// Sorts eight numbers in each lane, largest first, with 19 comparators.
#[inline]
#[target_feature(enable = "avx512f")]
fn sorted(mut x: [__m512; 8]) -> [__m512; 8] {
    let x_ = &mut x;
    for (i, j) in [(0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3)] {
        pair(x_, i, j);
    }
    for (i, j) in [(4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6)] {
        pair(x_, i, j);
    }
    x
}

/// Sorts eight numbers that rise and then fall, or fall and then rise.
#[inline]
#[target_feature(enable = "avx512f")]
fn merged(mut x: [__m512; 8]) -> [__m512; 8] {
    for half in [4, 2, 1] {
        for i in 0..8 {
            if i & half == 0 {
                pair(&mut x, i, i + half);
            }
        }
    }
    x
}

/// Returns the eighth largest of sixteen numbers in each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn eighth(x: [__m512; 16]) -> __m512 {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = x;
    let (above, below) = (sorted([a, b, c, d, e, f, g, h]), sorted([i, j, k, l, m, n, o, p]));
    let mut least = _mm512_max_ps(above[0], below[7]);
    for i in 1..8 {
        least = _mm512_min_ps(least, _mm512_max_ps(above[i], below[7 - i]));
    }
    least
}

//! Picks by rank, for AVX-512.
//!
//! ```text
//! heads                  the largest key of each of 16 columns (element e is in column e mod 16)
//! floor                  the count-th largest head: at least `count` elements have a key of at least that, and few more
//! candidates             those elements, in their order
//! rank of a candidate    15 less the number of candidates (of 16, missing ones included) that it is above
//! ```
//!
//! No branch depends on data but one, on more than 16 candidates (many equal keys): of scores in no order 8 picks of 128 elements leave 10.6
//! candidates on average (draws from 16 columns until 8 were seen).
//!
//! By hand and not as loops, for LLVM makes no vectors of loops over 16 lanes: it unrolls them first (measured for a row of 128: 1.1 to 1.4
//! times as long as picks one by one; docs/decisions/0009-routing-and-trees.md).
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use crate::pick::{Aligned, Elements, Keys};
use core::arch::x86_64::*;
use lockstep_core::team::order::LEAST;

/// Lanes of a vector.
const LANES: usize = 16;

/// The elements with the `count` largest keys, the first of them last in `rising`; `false` where there are too many to choose from.
#[inline]
#[target_feature(enable = "avx512f,popcnt,bmi1")]
pub(crate) fn picks<const N: usize>(keys: &Keys<N>, count: usize, rising: &mut Elements) -> bool {
    if count > LANES {
        return false;
    }
    let vector = |v: usize| {
        let part: &[i32; LANES] = keys.0.as_chunks().0.get(v).unwrap_or(&[LEAST; LANES]);
        // SAFETY: 16 integers are 64 bytes.
        unsafe { _mm512_loadu_si512(part.as_ptr().cast()) }
    };
    if count <= 2 && N <= 8 * LANES {
        // One by one: the maximum, and the first that has it.
        let mut taken = 0u128;
        for j in 0..count {
            let mut heads = _mm512_set1_epi32(LEAST);
            for v in 0..N / LANES {
                let live = !((taken >> (v * LANES)) as u16);
                heads = _mm512_mask_max_epi32(heads, live, heads, vector(v));
            }
            let best = _mm512_set1_epi32(_mm512_reduce_max_epi32(heads));
            let mut equal = 0u128;
            for v in 0..N / LANES {
                equal |= u128::from(_mm512_cmpeq_epi32_mask(vector(v), best)) << (v * LANES);
            }
            let at = (equal & !taken).trailing_zeros();
            taken |= 1u128.checked_shl(at).unwrap_or(0);
            rising[LANES - 1 - j] = at;
        }
        return true;
    }
    let mut heads = vector(0);
    for v in 1..N / LANES {
        heads = _mm512_max_epi32(heads, vector(v));
    }
    let mut each = Aligned([0i32; LANES]);
    // SAFETY: as above.
    unsafe { _mm512_store_si512(each.0.as_mut_ptr().cast(), heads) };
    let (one, mut above) = (_mm512_set1_epi32(1), _mm512_setzero_si512());
    for head in each.0 {
        let below = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(head), heads);
        above = _mm512_mask_add_epi32(above, below, above, one);
    }
    let upper = _mm512_cmplt_epi32_mask(above, _mm512_set1_epi32(count as i32));
    let floor = _mm512_set1_epi32(_mm512_mask_reduce_min_epi32(upper, heads));

    let mut elements = Aligned([0u32; 2 * LANES]);
    let mut orders = Aligned([0i32; 2 * LANES]);
    let mut found = 0;
    let mut element = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for v in 0..N / LANES {
        let own = vector(v);
        let candidates = _mm512_cmpge_epi32_mask(own, floor);
        let first = if found < LANES { found } else { LANES };
        // SAFETY: 16 places from at most the 16th of 32 on.
        unsafe {
            let (to, order) = (elements.0.as_mut_ptr().add(first), orders.0.as_mut_ptr().add(first));
            _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(candidates, element));
            _mm512_storeu_si512(order.cast(), _mm512_maskz_compress_epi32(candidates, own));
        }
        found += candidates.count_ones() as usize;
        element = _mm512_add_epi32(element, _mm512_set1_epi32(LANES as i32));
    }
    if found > LANES {
        return false;
    }

    let live = ((1u32 << found) - 1) as u16;
    // SAFETY: 16 integers are 64 bytes.
    let own = unsafe {
        let own = _mm512_load_si512(orders.0.as_ptr().cast());
        let own = _mm512_mask_mov_epi32(_mm512_set1_epi32(LEAST + 1), live, own);
        _mm512_store_si512(orders.0.as_mut_ptr().cast(), own);
        own
    };
    // A later one of the same key is below: compared with one less. Nothing has a key of LEAST.
    let less = _mm512_sub_epi32(own, one);
    for j in 0..LANES {
        let later = (0xfffe_u32 << j) as u16;
        let bound = _mm512_mask_blend_epi32(later, own, less);
        let below = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(orders.0[j]), bound);
        rising[below.count_ones() as usize] = elements.0[j];
    }
    true
}

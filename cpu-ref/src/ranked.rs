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
//! By hand and not as loops, for LLVM makes no vector of a loop over 16 lanes: it unrolls it first (measured: 1.4 times slower than picks one
//! by one, where this is … times faster).
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use crate::pick::{Aligned, Elements, Keys};
use core::arch::x86_64::*;
use lockstep_core::team::order::LEAST;

/// Lanes of a vector.
const LANES: usize = 16;

/// The elements with the `count` largest keys, in their order; `false` where there are too many to choose from.
#[target_feature(enable = "avx512f")]
pub(crate) fn picks<const N: usize>(keys: &Keys<N>, count: usize, at: &mut Elements) -> bool {
    if count > LANES {
        return false;
    }
    let vector = |v: usize| {
        let part: &[i32; LANES] = keys.0.as_chunks().0.get(v).unwrap_or(&[LEAST; LANES]);
        // SAFETY: 16 integers are 64 bytes.
        unsafe { _mm512_loadu_si512(part.as_ptr().cast()) }
    };
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

    let mut list = Aligned([0u32; 2 * LANES]);
    let mut found = 0;
    let mut element = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for v in 0..N / LANES {
        let candidates = _mm512_cmpge_epi32_mask(vector(v), floor);
        let first = found % (LANES + 1);
        // SAFETY: 16 places behind the first 16 or fewer of 32.
        unsafe {
            _mm512_storeu_si512(
                list.0.as_mut_ptr().add(first).cast(),
                _mm512_maskz_compress_epi32(candidates, element),
            );
        }
        found = first + candidates.count_ones() as usize;
        if found > LANES {
            return false;
        }
        element = _mm512_add_epi32(element, _mm512_set1_epi32(LANES as i32));
    }

    let mut order = Aligned([LEAST + 1; LANES]);
    for j in 0..found {
        order.0[j] = keys.0[list.0[j] as usize % N];
    }
    // SAFETY: 16 integers are 64 bytes.
    let own = unsafe { _mm512_load_si512(order.0.as_ptr().cast()) };
    // A later one of the same key is below: compared with one less. Nothing has a key of LEAST.
    let less = _mm512_sub_epi32(own, one);
    let mut sorted = [0u32; LANES];
    for j in 0..LANES {
        let later = (0xfffe_u32 << j) as u16;
        let bound = _mm512_mask_blend_epi32(later, own, less);
        let below = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(order.0[j]), bound);
        sorted[(LANES - 1 - below.count_ones() as usize) % LANES] = list.0[j];
    }
    at[..LANES].copy_from_slice(&sorted);
    true
}

//! Picks by sorting, for AVX-512.
//!
//! ```text
//! name         a key whose last bits are replaced by a number of its element, counted from the last element:
//!              names are distinct, and of equal keys the lower element's is the larger
//! heads        the largest name in each of 16 columns (element e is in column e mod 16)
//! floor        the count-th largest head, without its number: at least `count` names reach it, few more do
//! candidates   the elements whose names reach the floor, sorted by name
//! ```
//!
//! Names order as keys do, except where keys differ in the last bits only. If the candidates' keys, sorted by
//! name, are not in descending order, the elements are picked one by one; so they are if there are more than
//! 16 candidates (many equal keys). No other branch depends on data: with scores in random order, 8 picks of
//! 128 elements leave 10.6 candidates on average (draws from 16 columns until 8 were seen).
//!
//! Nothing passes through memory between the keys and the picks: a vector load that covers several earlier
//! stores waits until they have left the core (measured: a seventh of the time of a row).
//!
//! Written with intrinsics, because LLVM does not vectorise loops over 16 lanes: it unrolls them first
//! (measured for a row of 128: 1.1 to 1.4 times as long as picks one by one;
//! docs/decisions/0009-routing-and-trees.md).
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use crate::pick::{Aligned, Elements, Keys, Ranked};
use crate::short::Slots;
use core::arch::x86_64::*;
use lockstep_core::team::order::{LEAST, unordered};
use lockstep_core::team::{MAX_LARGEST, Near};

/// Lanes of a vector.
const LANES: usize = 16;
/// Vectors of the longest row.
const MOST: usize = MAX_LARGEST / LANES;

/// Returns the elements with the `count` largest keys, and these keys, in order; `None` if the caller must
/// pick one by one.
#[inline]
#[target_feature(enable = "avx512f,popcnt,bmi1")]
pub(crate) fn picks<const N: usize>(keys: &Keys<N>, count: usize, near: Option<Near>) -> Option<Ranked> {
    if count > LANES {
        return None;
    }
    let vector = |v: usize| {
        let part: &[i32; LANES] = keys.0.as_chunks().0.get(v).unwrap_or(&[LEAST; LANES]);
        // SAFETY: 16 integers are 64 bytes.
        unsafe { _mm512_loadu_si512(part.as_ptr().cast()) }
    };
    if count <= 2 && N <= 8 * LANES {
        // One by one: the maximum, then the first element that has it.
        let mut ranked =
            Ranked { at: Aligned([0; 2 * LANES]), keys: Slots([0.0; 2 * LANES]), found: count as u32 };
        let mut taken = 0u128;
        for j in 0..count {
            let mut heads = _mm512_set1_epi32(LEAST);
            for v in 0..N / LANES {
                let live = !((taken >> (v * LANES)) as u16);
                heads = _mm512_mask_max_epi32(heads, live, heads, vector(v));
            }
            let best = _mm512_reduce_max_epi32(heads);
            let mut equal = 0u128;
            for v in 0..N / LANES {
                let same = _mm512_cmpeq_epi32_mask(vector(v), _mm512_set1_epi32(best));
                equal |= u128::from(same) << (v * LANES);
            }
            let at = (equal & !taken).trailing_zeros();
            taken |= 1u128.checked_shl(at).unwrap_or(0);
            ranked.at.0[j] = at;
            ranked.keys.0[j] = unordered(best);
        }
        return Some(ranked);
    }
    let number = _mm512_set1_epi32(N as i32 - 1);
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    // Replaces the last bits of the key by N − 1 minus the element.
    let name = |v: usize| {
        let element = _mm512_sub_epi32(_mm512_set1_epi32((N - 1 - v * LANES) as i32), lane);
        _mm512_ternarylogic_epi32::<0xca>(number, element, vector(v))
    };
    let mut heads = name(0);
    for v in 1..N / LANES {
        heads = _mm512_max_epi32(heads, name(v));
    }
    let last = _mm512_set1_epi32(count as i32 - 1);
    let mut floor = _mm512_andnot_si512(number, _mm512_permutexvar_epi32(last, falling(heads)));
    if let Some(near) = near {
        let low = _mm512_sub_ps(_mm512_castsi512_ps(turned(floor)), _mm512_set1_ps(near.below));
        floor = turned(_mm512_castps_si512(low));
    }

    let least = _mm512_set1_epi32(LEAST);
    // Two independent chains, concatenated at the end.
    let mut halves = [(least, 0u32); 2];
    let behind = |to: __m512i, found: u32, from: __m512i| {
        _mm512_mask_expand_epi32(to, (0xffff_u64 << (found & 63)) as u16, from)
    };
    for v in 0..N / LANES {
        let (candidates, found) = &mut halves[2 * v / (N / LANES)];
        let own = name(v);
        let above = _mm512_cmpge_epi32_mask(own, floor);
        let own = _mm512_mask_compress_epi32(least, above, own);
        *candidates = behind(*candidates, *found, own);
        *found += above.count_ones();
    }
    let [(candidates, first), (others, second)] = halves;
    let candidates = behind(candidates, first, others);
    let found = first + second;
    let sorted = falling(candidates);
    let at = _mm512_andnot_si512(sorted, number);

    // Gathers the keys: from pairs of vectors by the last five bits of the element, then by its other bits.
    let mut own = [least; MOST / 2];
    for pair in 0..N / (2 * LANES) {
        own[pair] = _mm512_permutex2var_epi32(vector(2 * pair), at, vector(2 * pair + 1));
    }
    let (mut pairs, mut bit) = (N / (4 * LANES), 2 * LANES as i32);
    while pairs > 0 {
        let odd = _mm512_test_epi32_mask(at, _mm512_set1_epi32(bit));
        for pair in 0..pairs {
            own[pair] = _mm512_mask_blend_epi32(odd, own[2 * pair], own[2 * pair + 1]);
        }
        (pairs, bit) = (pairs / 2, bit * 2);
    }
    let own = own[0];
    let next = _mm512_alignr_epi32::<1>(own, own);
    let rising = _mm512_cmplt_epi32_mask(own, next);
    let pairs = (1u32 << (found & 31)) >> 1;
    if found > LANES as u32 || u32::from(rising) & pairs.wrapping_sub(1) != 0 {
        return None;
    }
    let own = turned(own);
    if let Some(near) = near {
        let own = _mm512_castsi512_ps(own);
        let inside = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(own, _mm512_set1_ps(near.from))
            & _mm512_cmp_ps_mask::<_CMP_LE_OQ>(own, _mm512_set1_ps(near.to));
        if (inside >> (count - 1)) & 1 == 0 {
            return None;
        }
    }
    let left = if near.is_some() { found } else { count as u32 };
    let wanted = ((1u32 << left) - 1) as u16;
    let mut ranked = Ranked { at: Aligned([0; 2 * LANES]), keys: Slots([0.0; 2 * LANES]), found };
    // SAFETY: 16 numbers are 64 bytes.
    unsafe {
        _mm512_store_si512(ranked.at.0.as_mut_ptr().cast(), at);
        _mm512_store_si512(ranked.keys.0.as_mut_ptr().cast(), _mm512_maskz_mov_epi32(wanted, own));
    }
    Some(ranked)
}

/// Returns whether the found elements are in descending order of `orders`, ties by the lower element.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn falls(orders: &Aligned<[i32; LANES]>, at: &Elements, found: u32) -> bool {
    // SAFETY: 16 integers are 64 bytes.
    let (own, at) =
        unsafe { (_mm512_load_si512(orders.0.as_ptr().cast()), _mm512_load_si512(at.0.as_ptr().cast())) };
    let (next, next_at) = (_mm512_alignr_epi32::<1>(own, own), _mm512_alignr_epi32::<1>(at, at));
    let above = _mm512_cmpgt_epi32_mask(own, next);
    let same = _mm512_mask_cmplt_epi32_mask(_mm512_cmpeq_epi32_mask(own, next), at, next_at);
    let pairs = ((1u32 << (found & 31)) >> 1).wrapping_sub(1);
    !u32::from(above | same) & pairs == 0
}

/// Converts an order to its number, and a number to its order with −0 below +0.
#[inline]
#[target_feature(enable = "avx512f")]
fn turned(x: __m512i) -> __m512i {
    _mm512_xor_si512(x, _mm512_srli_epi32::<1>(_mm512_srai_epi32::<31>(x)))
}

/// Sorts sixteen numbers, largest first, with a bitonic network. Each step compares a lane with the one whose
/// index differs in the bits `M`.
#[inline]
#[target_feature(enable = "avx512f")]
fn falling(x: __m512i) -> __m512i {
    let x = step::<1>(x);
    let x = step::<1>(step::<3>(x));
    let x = step::<1>(step::<2>(step::<7>(x)));
    step::<1>(step::<2>(step::<4>(step::<15>(x))))
}

/// Moves the larger of two lanes to the lower lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn step<const M: i32>(x: __m512i) -> __m512i {
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let other = _mm512_permutexvar_epi32(_mm512_xor_si512(lane, _mm512_set1_epi32(M)), x);
    let lower = match M {
        1 => 0x5555,
        2 | 3 => 0x3333,
        4 | 7 => 0x0f0f,
        _ => 0x00ff,
    };
    _mm512_mask_max_epi32(_mm512_min_epi32(x, other), lower, x, other)
}

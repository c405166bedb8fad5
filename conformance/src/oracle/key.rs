//! Sort keys of selections.

/// Whether a value is a candidate.
pub fn candidate(x: f64, [low, high]: [f64; 2]) -> bool {
    !x.is_nan() && (x > low || low == f64::NEG_INFINITY) && (x < high || high == f64::INFINITY)
}

/// The rank of a number among all binary32 numbers, from 2²³ for the lowest; −0 and +0 share a rank.
pub fn ordered(x: f32) -> u32 {
    let magnitude = i64::from(x.to_bits() & 0x7fff_ffff);
    let signed = if x < 0.0 { -magnitude - 1 } else { if x == 0.0 { 0 } else { magnitude } };
    (signed + 0x8000_0000) as u32
}

/// splitmix64 of the position under the seed, applied twice, upper half; never 0.
pub fn hash(seed: u64, position: u64) -> u32 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z
    };
    let first = mix(seed ^ (position.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let second = mix(first.wrapping_add(seed));
    (((second ^ (second >> 31)) >> 32) as u32).max(1)
}

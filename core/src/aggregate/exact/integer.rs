//! Fixed-width natural numbers in 32-bit limbs, lowest first: the operations that rounding and the variance
//! need.

/// `limbs · 2^lsb`, rounded to nearest, ties to even; +∞ from 2¹⁰²⁴ − 2⁹⁷⁰ on. `lsb` is at most −1074.
pub(super) fn round(limbs: &[u32], lsb: i32) -> f64 {
    let Some(top) = limbs.iter().rposition(|limb| *limb != 0) else { return 0.0 };
    let highest = 32 * top as i32 + 31 - limbs[top].leading_zeros() as i32;
    // The lowest bit that is kept: 53 bits, or fewer if the result is subnormal.
    let finest = -1074 - lsb;
    let lowest = if highest - 52 > finest { highest - 52 } else { finest };
    if lowest + lsb > 971 {
        return f64::INFINITY;
    }
    let bit = |i: i32| i >= 0 && limbs.get(i as usize / 32).is_some_and(|limb| limb >> (i % 32) & 1 == 1);
    let mut kept = 0u64;
    for i in (lowest..=highest).rev() {
        kept = kept << 1 | u64::from(bit(i));
    }
    let half = bit(lowest - 1);
    let rest = lowest >= 2 && {
        let (whole, part) = ((lowest - 1) as usize / 32, (lowest - 1) as u32 % 32);
        limbs[..whole.min(limbs.len())].iter().any(|limb| *limb != 0)
            || limbs.get(whole).is_some_and(|limb| limb & ((1 << part) - 1) != 0)
    };
    kept += u64::from(half && (rest || kept & 1 == 1));
    // The leading bit of `kept` adds 1 to the exponent; a subnormal has no leading bit. A carry out of the
    // top bit gives the next exponent.
    f64::from_bits((((lowest - finest) as u64) << 52) + kept)
}

/// `out += a · b · 2^(32 · shift)`; `out` must be wide enough.
pub(super) fn add_product(out: &mut [u32], a: &[u32], b: &[u32], shift: usize) {
    for (i, x) in a.iter().enumerate().filter(|(_, x)| **x != 0) {
        let mut carry = 0u64;
        for (j, limb) in out[shift + i..].iter_mut().enumerate() {
            let y = b.get(j).copied().unwrap_or(0);
            if j >= b.len() && carry == 0 {
                break;
            }
            // At most (2³² − 1)² + 2 (2³² − 1) = 2⁶⁴ − 1.
            let sum = u64::from(*limb) + u64::from(*x) * u64::from(y) + carry;
            (*limb, carry) = (sum as u32, sum >> 32);
        }
    }
}

/// `a -= b`, for a ≥ b of the same width.
pub(super) fn subtract(a: &mut [u32], b: &[u32]) {
    let mut borrow = 0i64;
    for (x, y) in a.iter_mut().zip(b) {
        let difference = i64::from(*x) - i64::from(*y) + borrow;
        (*x, borrow) = (difference as u32, difference >> 32);
    }
}

//! Sum of the two largest keys of a group of experts.

use super::order::{LEAST, ordered, unordered};
use crate::num;

/// Number of elements of a group.
pub const PAIRED: usize = 32;

/// Computes the sum of the two largest of a group, with the bits of two picks of
/// [`Team::largest`](super::Team::largest).
#[inline(always)]
pub fn two_largest(x: &[f32; PAIRED]) -> f32 {
    let (mut first, mut second) = ([LEAST; PAIRED / 2], [LEAST; PAIRED / 2]);
    for l in 0..PAIRED / 2 {
        let (a, b) = (ordered(x[l]), ordered(x[l + PAIRED / 2]));
        first[l] = a.max(b);
        second[l] = a.min(b);
    }
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            let (a, b) = (first[l], first[l + half]);
            second[l] = a.min(b).max(second[l].max(second[l + half]));
            first[l] = a.max(b);
        }
    }
    num::canonical(unordered(first[0]) + unordered(second[0]))
}

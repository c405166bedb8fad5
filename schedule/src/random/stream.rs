//! A stream of random numbers: uniform, normal, integers below n.
//!
//! **Formula**: word i of the stream is word i mod 4 of [`philox4x32_10`] at counter (i div 4, element, step,
//! purpose), with the seed as key.
//!
//! ```text
//! bits64  = first word · 2³² + second word
//! uniform = top 53 bits · 2⁻⁵³                 in [0, 1)
//! open    = (top 52 bits + 1/2) · 2⁻⁵²         in (0, 1), never 0 or 1
//! normal  = x √(−2 ln s / s), s = x² + y²      (Marsaglia's polar method, s in (0, 1); y is not used)
//! below n = high half of bits64 · n            (Lemire; low halves under 2⁶⁴ mod n are drawn again, so that
//!                                               every value has the same chance)
//! ```
//!
//! **Accuracy**: `normal` to a few ULP of binary64 (`num::ln64`, a correctly rounded square root).

use super::philox4x32_10;
use lockstep_core::num::{self, Arith, Soft};

/// The purpose of a stream, so that no two uses draw the same numbers. Callers' own purposes start at 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose(pub u32);

impl Purpose {
    /// Thompson draws of [`vade`](crate::vade).
    pub const THOMPSON: Purpose = Purpose(1);
    /// Selection keys of [`dots`](crate::dots).
    pub const SELECTION: Purpose = Purpose(2);
    /// Replayed groups of [`replay`](crate::replay).
    pub const REPLAY: Purpose = Purpose(3);
    /// The stochastic rule of [`arrol`](crate::arrol).
    pub const PRUNE: Purpose = Purpose(4);
    /// Compensation batches of [`rorecomp`](crate::rorecomp).
    pub const COMPENSATE: Purpose = Purpose(5);
    /// External groups of [`swarm`](crate::swarm).
    pub const SWARM: Purpose = Purpose(6);
    /// The rollout that RAPO replaces.
    pub const RAPO: Purpose = Purpose(7);
    /// The reference answer of a BRPO group.
    pub const BRPO: Purpose = Purpose(8);
    /// The source of a minibatch in [`remix`](crate::remix).
    pub const REMIX: Purpose = Purpose(9);
    /// Inputs of the next role in [`marsrl`](crate::marsrl).
    pub const MARSRL: Purpose = Purpose(10);
}

/// A sequence of random numbers. Streams are cheap to create: create one per element.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    name: [u32; 3],
    words: [u32; 4],
    /// Words used so far.
    used: u64,
}

impl Stream {
    /// Creates the stream of `seed` for one purpose, step and element.
    pub fn new(seed: u64, purpose: Purpose, step: u32, element: u32) -> Self {
        let key = [seed as u32, (seed >> 32) as u32];
        Stream { key, name: [element, step, purpose.0], words: [0; 4], used: 0 }
    }

    /// Draws 32 bits.
    pub fn bits32(&mut self) -> u32 {
        let at = (self.used % 4) as usize;
        if at == 0 {
            let [element, step, purpose] = self.name;
            // 2³⁴ words before the counter wraps: more than any schedule draws.
            self.words = philox4x32_10([(self.used / 4) as u32, element, step, purpose], self.key);
        }
        self.used += 1;
        self.words[at]
    }

    /// Draws 64 bits.
    pub fn bits64(&mut self) -> u64 {
        let high = self.bits32();
        u64::from(high) << 32 | u64::from(self.bits32())
    }

    /// Draws a uniform number in [0, 1), a multiple of 2⁻⁵³.
    pub fn uniform(&mut self) -> f64 {
        (self.bits64() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Draws a uniform number in [0, 1), a multiple of 2⁻²⁴ and exact in binary32.
    pub fn uniform32(&mut self) -> f32 {
        (self.bits32() >> 8) as f32 / 16_777_216.0
    }

    /// Draws a uniform number in (0, 1), so that its logarithm and that of its complement are finite.
    pub fn open(&mut self) -> f64 {
        ((self.bits64() >> 12) as f64 + 0.5) / 4_503_599_627_370_496.0
    }

    /// Draws a normal number with mean 0 and variance 1.
    pub fn normal(&mut self) -> f64 {
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            let s = x * x + y * y;
            if s > 0.0 && s < 1.0 {
                return x * Soft::sqrt64(-2.0 * num::ln64(s) / s);
            }
        }
    }

    /// Draws an integer in 0..n, every value equally likely; 0 if n is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        let least = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.bits64()) * u128::from(n);
            if product as u64 >= least {
                return (product >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(element: u32) -> Stream {
        Stream::new(0x0123_4567_89ab_cdef, Purpose(256), 7, element)
    }

    #[test]
    fn words_are_philox_at_the_documented_counter() {
        let mut s = stream(3);
        let key = [0x89ab_cdef, 0x0123_4567];
        let first = philox4x32_10([0, 3, 7, 256], key);
        let second = philox4x32_10([1, 3, 7, 256], key);
        for word in first.into_iter().chain(second) {
            assert_eq!(s.bits32(), word);
        }
    }

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let n = 40_000;
        let (mut sum, mut normal, mut square, mut fourth) = (0.0, 0.0, 0.0, 0.0);
        let mut s = stream(0);
        for _ in 0..n {
            let u = s.uniform();
            assert!((0.0..1.0).contains(&u));
            sum += u;
            let z = s.normal();
            normal += z;
            square += z * z;
            fourth += z * z * z * z;
        }
        // Five standard errors of each: 1/√12, 1, √2, √96 over √n = 200.
        let n = f64::from(n);
        assert!((sum / n - 0.5).abs() < 0.0073, "{}", sum / n);
        assert!((normal / n).abs() < 0.025, "{}", normal / n);
        assert!((square / n - 1.0).abs() < 0.036, "{}", square / n);
        assert!((fourth / n - 3.0).abs() < 0.25, "{}", fourth / n);
    }

    #[test]
    fn below_is_in_range_and_even() {
        let mut s = stream(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[s.below(7) as usize] += 1;
        }
        // Five standard deviations of a count of 1000: 5·√(7000·6/49) = 146.
        assert!(seen.iter().all(|n| n.abs_diff(1000) < 147), "{seen:?}");
        assert_eq!((s.below(1), s.below(0)), (0, 0));
        assert!(s.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn purposes_steps_elements_and_seeds_have_streams_of_their_own() {
        let of = |seed, purpose, step, element| Stream::new(seed, Purpose(purpose), step, element).bits64();
        let all = [
            of(1, 1, 1, 1),
            of(2, 1, 1, 1),
            of(1, 2, 1, 1),
            of(1, 1, 2, 1),
            of(1, 1, 1, 2),
            of(1 << 32, 1, 1, 1),
        ];
        for i in 0..all.len() {
            assert!(all[..i].iter().all(|other| *other != all[i]));
        }
    }
}

//! Values from an integer hash: splitmix64 of seed and index, without state or libm. The same as
//! `conformance::cases::hash`, which needs `std`.

/// A stream of numbers, addressed by index.
#[derive(Clone, Copy)]
pub(crate) struct Source(u64);

/// splitmix64's output function.
fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Source {
    /// Creates the stream of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Source(splitmix64(seed))
    }

    /// Returns an independent stream, so that every argument has different values and a swap of two shows.
    pub(crate) fn fork(self, name: u32) -> Self {
        Source(splitmix64(self.0 ^ splitmix64(u64::from(name) + 1)))
    }

    /// Returns 64 bits.
    pub(crate) fn bits(self, i: usize) -> u64 {
        splitmix64(self.0.wrapping_add(i as u64))
    }

    /// Returns a number in 0..n.
    pub(crate) fn below(self, i: usize, n: u32) -> usize {
        (self.bits(i) % u64::from(n)) as usize
    }

    /// Returns a number in 0..1, a multiple of 2⁻²⁴: exact in binary32.
    pub(crate) fn unit(self, i: usize) -> f32 {
        (self.bits(i) >> 40) as f32 / 16_777_216.0
    }

    /// Returns a number in −1..1.
    pub(crate) fn signed(self, i: usize) -> f32 {
        2.0 * self.unit(i) - 1.0
    }

    /// Returns any bit pattern.
    pub(crate) fn pattern(self, i: usize) -> f32 {
        f32::from_bits(self.bits(i) as u32)
    }

    /// Returns magnitudes in 2⁻³⁰..2³⁰ with both signs, so that the order of a sum shows in its bits.
    pub(crate) fn spread(self, i: usize) -> f32 {
        let exponent = 97 + self.below(i, 61) as u32;
        self.fork(1).signed(i) * f32::from_bits(exponent << 23)
    }
}

//! Values from an integer hash, the same in every language: splitmix64 of seed and index, without state or
//! libm.

/// A stream of numbers, addressed by index.
#[derive(Clone, Copy, Debug)]
pub struct Source(u64);

/// splitmix64's output function.
fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Source {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Source(splitmix64(seed))
    }

    /// An independent stream: every argument gets different values, so that swapping two shows.
    pub fn fork(self, name: u64) -> Self {
        Source(splitmix64(self.0 ^ splitmix64(name.wrapping_add(1))))
    }

    /// The stream of a name (FNV-1a), so that adding a name changes no other stream.
    pub fn named(self, name: &str) -> Self {
        let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.fork(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    /// 64 bits.
    pub fn bits(self, i: usize) -> u64 {
        splitmix64(self.0.wrapping_add(i as u64))
    }

    /// In 0..n.
    pub fn below(self, i: usize, n: usize) -> usize {
        (self.bits(i) % n as u64) as usize
    }

    /// In 0..1, a multiple of 2⁻²⁴: exact in binary32.
    pub fn unit(self, i: usize) -> f32 {
        (self.bits(i) >> 40) as f32 / 16_777_216.0
    }

    /// In −1..1.
    pub fn signed(self, i: usize) -> f32 {
        2.0 * self.unit(i) - 1.0
    }

    /// Any bit pattern.
    pub fn pattern(self, i: usize) -> f32 {
        f32::from_bits(self.bits(i) as u32)
    }

    /// A value to be summed: magnitudes over 2⁻³⁰..2³⁰ with both signs, so that the order of addition shows
    /// in the bits.
    pub fn spread(self, i: usize) -> f32 {
        let exponent = 97 + self.below(i, 61) as u32;
        self.fork(1).signed(i) * f32::from_bits(exponent << 23)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_is_the_published_one() {
        // The first outputs of the reference implementation (Vigna) for seed 1234567.
        assert_eq!(splitmix64(1_234_567), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(1_234_567u64.wrapping_add(0x9e37_79b9_7f4a_7c15)), 3_203_168_211_198_807_973);
    }
}

//! Operands that are hard for a fused multiply-add, and the comparison of `Soft` with `libm` and the machine.

#[cfg(feature = "std")]
use lockstep_core::num::Hard;
use lockstep_core::num::{Arith, Soft};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any bits at all.
    fn any(&mut self) -> f32 {
        f32::from_bits(self.next() as u32)
    }

    /// Few significant bits, so that sums land on ties; exponent near `centre`.
    fn short(&mut self, centre: i64) -> f32 {
        let word = self.next();
        let exponent = (centre + (word >> 56) as i64 % 30 - 15).clamp(0, 254) as u32;
        let keep = (word >> 40) as u32 % 24;
        let mantissa = (word as u32 & 0x7f_ffff) >> keep << keep;
        f32::from_bits((word as u32 & 0x8000_0000) | exponent << 23 | mantissa)
    }
}

const SPECIAL: [u32; 20] = [
    0,
    1,
    2,
    0x7f_ffff,
    0x80_0000,
    0x80_0001,
    0x3380_0000,
    0x3f7f_ffff,
    0x3f80_0000,
    0x3f80_0001,
    0x4b80_0000,
    0x7f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7fc0_0000,
    0x1f80_0000,
    0x2000_0000,
    0x5f80_0000,
    0x3f00_0000,
    0x4000_0000,
];

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn wrong(a: f32, b: f32, c: f32) -> u64 {
    let soft = Soft::fma(a, b, c);
    #[cfg(feature = "std")]
    let machine = Hard::fma(a, b, c);
    #[cfg(not(feature = "std"))]
    let machine = soft;
    u64::from(!same(soft, libm::fmaf(a, b, c)) || !same(soft, machine))
}

/// Number of triples tried (about `count`) and of those on which an implementation differs.
pub(crate) fn run(count: u64) -> (u64, u64) {
    let (mut tried, mut bad) = (0, 0);
    let mut check = |a, b, c| {
        tried += 1;
        bad += wrong(a, b, c);
    };
    let signed = Vec::from_iter(SPECIAL.iter().flat_map(|&v| [v, v | 0x8000_0000]).map(f32::from_bits));
    for &a in &signed {
        for &b in &signed {
            signed.iter().for_each(|&c| check(a, b, c));
        }
    }
    let mut random = Random(7);
    for _ in 0..count / 6 {
        check(random.any(), random.any(), random.any());
        // Products and sums of like size: ties and cancellation, in the middle and at both ends of the range.
        check(random.short(127), random.short(127), random.short(127));
        check(random.short(60), random.short(60), random.short(10));
        check(random.short(190), random.short(190), random.short(250));
        // The addend cancels the product, up to a few units of its last place.
        let (a, b) = (random.any(), random.any());
        let near = (a * b).to_bits().wrapping_add((random.next() as u32 & 7).wrapping_sub(3));
        check(a, b, -f32::from_bits(near));
        // The product is far below half a unit of the addend's last place, beside a tie.
        let c = random.short(127);
        check(random.short(100), random.short(100), c);
    }
    (tried, bad)
}

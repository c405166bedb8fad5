//! The promises of `num_table` on a sample: every 4099th input, the special values, and both sides of every
//! power of two and of every boundary of a method. All inputs: `examples/exhaustive.rs`.

mod num_table;
mod num_triples;

use core::hint::black_box;
use lockstep_core::num::{self, Arith, Soft};
use num_table::{BLOCK, BOUNDS, Hard, Report};

/// Where a method changes its range: overflow, underflow, the ends of a polynomial.
const BOUNDARIES: [f32; 26] = [
    88.722_84,
    88.435,
    89.0,
    -87.336_55,
    -103.278_93,
    -103.972_08,
    -103.567,
    -104.0,
    -17.328_68,
    -26.0,
    -80.0,
    0.4055,
    -0.2877,
    9.010_913,
    16.635_53,
    1.098_612_3,
    0.666_666_7,
    1.333_333_4,
    -0.333_333_34,
    0.333_333_34,
    0.75,
    2.0,
    5.0,
    13.0,
    44.361_42,
    1.793_282_2,
];

fn inputs() -> Vec<u32> {
    let mut bits = Vec::from_iter((0..=u32::MAX).step_by(4099));
    let around = |centre: u32| (0..65).map(move |i| centre.wrapping_add(i).wrapping_sub(32));
    bits.extend((0..512_u32).flat_map(|e| around(e << 23)));
    bits.extend(BOUNDARIES.iter().flat_map(|b| around(b.to_bits()).chain(around((-b).to_bits()))));
    bits.resize(bits.len().next_multiple_of(BLOCK), 0);
    bits
}

#[test]
fn errors_stay_below_the_bounds_and_soft_equals_hard() {
    let inputs = inputs();
    let mut digest = 0_u64;
    for function in BOUNDS {
        num_table::special(function).unwrap();
        let mut report = Report::default();
        for block in inputs.chunks_exact(BLOCK) {
            report.check(function, block.try_into().unwrap());
        }
        let name = function.name;
        let at = f32::from_bits(report.at);
        assert!(report.worst <= function.bound, "{name}({at:e} = 0x{:08x}): {} ULP", report.at, report.worst);
        digest = digest.wrapping_add(report.digest);
        assert_eq!(report.unequal, 0, "{name}: Soft differs from Hard at 0x{:08x}", report.unequal_at);
    }
    assert_eq!(
        digest, 0xe520_6d58_8dcd_f029,
        "the bits of a function (or the inputs above) are not the published ones"
    );
}

/// `black_box`, so that the machine's instructions make the NaN and not the compiler.
#[test]
fn every_nan_is_the_canonical_one() {
    fn all<A: Arith>(a: f32, b: f32, c: f32) {
        let results =
            [num::fma::<A>(a, b, c), num::sqrt::<A>(a * b - c), num::max(a * b, c), num::min(c, a * b)];
        for y in results.map(black_box) {
            assert_eq!(y.to_bits(), num::canonical_nan().to_bits(), "{a:e} {b:e} {c:e}");
        }
    }
    let inf = f32::INFINITY;
    for bits in num_table::NANS {
        let nan = f32::from_bits(bits);
        for (a, b, c) in
            [(0.0, inf, 1.0), (nan, 1.0, 1.0), (1.0, nan, 1.0), (1.0, 1.0, nan), (nan, nan, -nan)]
        {
            all::<Soft>(black_box(a), black_box(b), black_box(c));
            all::<Hard>(black_box(a), black_box(b), black_box(c));
        }
    }
}

#[test]
fn soft_fma_equals_libm_and_the_machine() {
    let (count, wrong) = num_triples::run(3_000_000);
    assert_eq!(wrong, 0, "of {count} triples");
}

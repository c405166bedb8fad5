//! setp: ordered and unordered comparisons, signs of integers.

use super::lanes::{d, f, table};

const NAN: u64 = 0x7fc0_0000;
const NAN64: u64 = 0x7ff8_0000_0000_0000;

/// For each comparison, its result for less, equal, greater, and a NaN on one side or both.
const FLOATS: [(&str, [u64; 4]); 14] = [
    ("eq", [0, 1, 0, 0]),
    ("ne", [1, 0, 1, 0]),
    ("lt", [1, 0, 0, 0]),
    ("le", [1, 1, 0, 0]),
    ("gt", [0, 0, 1, 0]),
    ("ge", [0, 1, 1, 0]),
    ("equ", [0, 1, 0, 1]),
    ("neu", [1, 0, 1, 1]),
    ("ltu", [1, 0, 0, 1]),
    ("leu", [1, 1, 0, 1]),
    ("gtu", [0, 0, 1, 1]),
    ("geu", [0, 1, 1, 1]),
    ("num", [1, 1, 1, 0]),
    ("nan", [0, 0, 0, 1]),
];

#[test]
fn numbers_and_nans_compare_as_the_isa_says() {
    for (name, [less, equal, greater, unordered]) in FLOATS {
        let rows = [
            ([f(-2.0), f(1.0), 0], less),
            ([f(-0.0), f(0.0), 0], equal),
            ([1, 1, 0], equal),
            ([0, 1, 0], less),
            ([f(f32::INFINITY), f(3e38), 0], greater),
            ([NAN, f(1.0), 0], unordered),
            ([f(1.0), 0xff80_0001, 0], unordered),
            ([NAN, NAN, 0], unordered),
        ];
        table(&format!("setp.{name}.f32 %p3, %r0, %r1"), &rows);
        let rows = [
            ([d(-2.0), d(1.0), 0], less),
            ([d(-0.0), d(0.0), 0], equal),
            ([0, 1, 0], less),
            ([d(1e300), d(-1e300), 0], greater),
            ([NAN64, d(1.0), 0], unordered),
            ([NAN64, NAN64, 0], unordered),
        ];
        table(&format!("setp.{name}.f64 %p3, %d0, %d1"), &rows);
    }
}

#[test]
fn integers_compare_with_a_sign_or_without() {
    let big = 0xffff_ffff;
    for (name, [less, equal, greater]) in [
        ("lt", [1, 0, 0]),
        ("le", [1, 1, 0]),
        ("gt", [0, 0, 1]),
        ("ge", [0, 1, 1]),
        ("eq", [0, 1, 0]),
        ("ne", [1, 0, 1]),
    ] {
        let unsigned = [([1, big, 0], less), ([big, 1, 0], greater), ([big, big, 0], equal)];
        table(&format!("setp.{name}.u32 %p3, %r0, %r1"), &unsigned);
        let signed = [([1, big, 0], greater), ([big, 1, 0], less), ([big, big, 0], equal)];
        table(&format!("setp.{name}.s32 %p3, %r0, %r1"), &signed);
        let wide = [([1, u64::MAX, 0], greater), ([u64::MAX, 1, 0], less), ([0, 0, 0], equal)];
        table(&format!("setp.{name}.s64 %p3, %d0, %d1"), &wide);
        table(&format!("setp.{name}.u64 %p3, %d1, %d0"), &wide);
        table(&format!("setp.{name}.s16 %p3, %h0, %h1"), &wide);
        table(&format!("setp.{name}.u16 %p3, %h1, %h0"), &wide);
    }
    for (name, same) in [("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")] {
        for (a, b) in [(1, big), (big, 1), (7, 7)] {
            let truth = super::lanes::run(&format!("setp.{same}.u32 %p3, %r0, %r1"), &[[a, b, 0]])[0];
            table(&format!("setp.{name}.u32 %p3, %r0, %r1"), &[([a, b, 0], truth)]);
        }
    }
    table("setp.eq.b64 %p3, %d0, 0", &[([1 << 32, 0, 0], 0), ([0, 0, 0], 1)]);
    table("setp.ne.b16 %p3, %h0, 0", &[([0x1_0000, 0, 0], 0), ([1, 0, 0], 1)]);
}

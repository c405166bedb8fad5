//! Vector instructions at their edges: NaN, signed zeros, subnormals, ties, saturation.

use crate::machine::{run, text};
use crate::vector::SHOW;
use lockstep_emulator::gfx942::Approximation;

/// Words, and their results for a and b in lane 0.
fn table(instruction: (&str, &[u32]), rows: &[(u64, u64, u64)]) {
    assert_eq!(text(instruction.1), [instruction.0]);
    for (a, b, wanted) in rows {
        let out = run(instruction.1, [&[*a; 64], &[*b; 64], &[0; 64]], Approximation::Rounded).unwrap()[0];
        assert_eq!(out, *wanted, "{} of {a:#x}, {b:#x}: {out:#x}, not {wanted:#x}", instruction.0);
    }
}

#[test]
fn minimum_and_maximum_ignore_quiet_nan_and_quieten_signalling_ones() {
    const ONE: u64 = 0x3f80_0000;
    const TWO: u64 = 0x4000_0000;
    const QUIET: u64 = 0x7fc0_0007;
    const SIGNALLING: u64 = 0xff80_0003;
    let quieted = SIGNALLING | 0x0040_0000;
    let shared = [
        (QUIET, ONE, ONE),
        (ONE, QUIET, ONE),
        (SIGNALLING, ONE, quieted),
        (ONE, SIGNALLING, quieted),
        (QUIET, QUIET, QUIET),
    ];
    let (min, max) = (
        ("v_min_f32_e32 v8, v2, v4", &[0x14100902u32][..]),
        ("v_max_f32_e32 v8, v2, v4", &[0x16100902u32][..]),
    );
    table(min, &shared);
    table(max, &shared);
    table(
        min,
        &[
            (ONE, TWO, ONE),
            (0, 0x8000_0000, 0x8000_0000),
            (0x8000_0000, 0, 0x8000_0000),
            (1, 0x8000_0001, 0x8000_0001),
        ],
    );
    table(max, &[(ONE, TWO, TWO), (0, 0x8000_0000, 0), (0x8000_0000, 0, 0), (1, 0x8000_0001, 1)]);
    let wide = |x: f64| x.to_bits();
    table(
        ("v_min_f64 v[8:9], v[2:3], v[4:5]", &[0xd282_0008, 0x0002_0902]),
        &[
            (wide(-0.0), wide(0.0), wide(-0.0)),
            (0x7ff8 << 48, wide(2.0), wide(2.0)),
            (0x7ff0 << 48 | 1, wide(2.0), 0x7ff8 << 48 | 1),
        ],
    );
}

#[test]
fn scaling_rounds_once() {
    let by = |n: i32| u64::from(n as u32);
    table(
        ("v_ldexp_f64 v[8:9], v[2:3], v4", &[0xd284_0008, 0x0002_0902]),
        &[
            (1.0f64.to_bits(), by(-1074), 1),
            (1.0f64.to_bits(), by(-1075), 0),
            (1.5f64.to_bits(), by(-1075), 1),
            (3.0f64.to_bits(), by(-1075), 2),
            ((-1.0f64).to_bits(), by(1024), 0xfff0 << 48),
            (1, by(2097), 2.0f64.powi(1023).to_bits()),
            (1, by(i32::MAX), 0x7ff0 << 48),
            (0x7ff0 << 48 | 5, by(3), 0x7ff8 << 48 | 5),
        ],
    );
    table(
        ("v_ldexp_f32 v8, v2, v4", &[0xd288_0008, 0x0002_0902]),
        &[
            (0x3f80_0000, by(-149), 1),
            (0x3fc0_0000, by(-150), 1),
            (0x4040_0000, by(-150), 2),
            (1, by(i32::MIN), 0),
            (0x8000_0000, by(5), 0x8000_0000),
        ],
    );
}

#[test]
fn conversions_round_and_saturate() {
    table(
        ("v_cvt_f32_f64_e32 v8, v[2:3]", &[0x7e10_1f02]),
        &[
            (1.0f64.to_bits() + (1 << 28), 0, 0x3f80_0000),
            (1.0f64.to_bits() + (1 << 28) + 1, 0, 0x3f80_0001),
            (1e300f64.to_bits(), 0, 0x7f80_0000),
            (1e-40f64.to_bits(), 0, u64::from(1e-40f32.to_bits())),
            (0x7ff0 << 48 | 1 << 40, 0, 0x7fc0_0800),
        ],
    );
    table(
        ("v_cvt_f64_f32_e32 v[8:9], v2", &[0x7e10_2102]),
        &[(1, 0, 2.0f64.powi(-149).to_bits()), (0xff80_0001, 0, 0xfff8_0000_2000_0000)],
    );
    let f = |x: f32| u64::from(x.to_bits());
    table(
        ("v_cvt_u32_f32_e32 v8, v2", &[0x7e10_0f02]),
        &[
            (f(2.9), 0, 2),
            (f(-1.0), 0, 0),
            (f(1e10), 0, 0xffff_ffff),
            (f(f32::NAN), 0, 0),
            (f(f32::INFINITY), 0, 0xffff_ffff),
        ],
    );
    table(
        ("v_cvt_i32_f32_e32 v8, v2", &[0x7e10_1102]),
        &[
            (f(-2.9), 0, 0xffff_fffe),
            (f(1e10), 0, 0x7fff_ffff),
            (f(-1e10), 0, 0x8000_0000),
            (f(f32::NAN), 0, 0),
        ],
    );
    table(
        ("v_cvt_u32_f64_e32 v8, v[2:3]", &[0x7e10_2b02]),
        &[(4294967295.9f64.to_bits(), 0, 0xffff_ffff), (1e20f64.to_bits(), 0, 0xffff_ffff)],
    );
}

#[test]
fn clamp_makes_zero_of_nan() {
    let f = |x: f32| u64::from(x.to_bits());
    table(
        ("v_max_f32_e64 v8, v2, v4 clamp", &[0xd10b_8008, 0x0002_0902]),
        &[
            (f(2.0), f(0.0), f(1.0)),
            (f(-2.0), f(-3.0), 0),
            (f(0.25), 0, f(0.25)),
            (0x7fc0_0000, 0x7fc0_0000, 0),
        ],
    );
}

#[test]
fn classes() {
    let words = [&[0x7c20_0902, 0xbf80_0004][..], &SHOW].concat();
    assert_eq!(text(&words)[0], "v_cmp_class_f32_e32 vcc, v2, v4");
    let numbers: [(u64, u32); 10] = [
        (0x7f80_0001, 0),
        (0x7fc0_0000, 1),
        (0xff80_0000, 2),
        (0xbf80_0000, 3),
        (0x8000_0001, 4),
        (0x8000_0000, 5),
        (0, 6),
        (1, 7),
        (0x3f80_0000, 8),
        (0x7f80_0000, 9),
    ];
    for (number, class) in numbers {
        for bit in 0..10 {
            let out =
                run(&words, [&[number; 64], &[1 << bit; 64], &[0; 64]], Approximation::Rounded).unwrap()[5];
            assert_eq!(out, u64::from(bit == class), "{number:#x}, class {bit}");
        }
    }
}

/// v8 is 13 before; what each lane gets from a.
type Moves = (&'static str, &'static [u32], fn(&[u64; 64], usize) -> u64);

#[test]
fn lanes_from_other_lanes() {
    let rows: &[Moves] = &[
        (
            "v_mov_b32_dpp v8, v2 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf",
            &[0x7e1002fa, 0xff001b02],
            |a, l| a[l ^ 3],
        ),
        ("v_mov_b32_dpp v8, v2 row_shr:1 row_mask:0xf bank_mask:0xf", &[0x7e1002fa, 0xff011102], |a, l| {
            if l % 16 == 0 { 0xd } else { a[l - 1] }
        }),
        (
            "v_mov_b32_dpp v8, v2 row_shl:3 row_mask:0xf bank_mask:0xf bound_ctrl:1",
            &[0x7e1002fa, 0xff090302],
            |a, l| if l % 16 > 12 { 0 } else { a[l + 3] },
        ),
        ("v_mov_b32_dpp v8, v2 row_ror:1 row_mask:0xf bank_mask:0xf", &[0x7e1002fa, 0xff012102], |a, l| {
            a[l & 48 | ((l + 15) % 16)]
        }),
        ("v_mov_b32_dpp v8, v2 wave_shr:1 row_mask:0xf bank_mask:0xf", &[0x7e1002fa, 0xff013802], |a, l| {
            if l == 0 { 0xd } else { a[l - 1] }
        }),
        (
            "v_mov_b32_dpp v8, v2 row_half_mirror row_mask:0xf bank_mask:0xf",
            &[0x7e1002fa, 0xff014102],
            |a, l| a[l ^ 7],
        ),
        (
            "v_mov_b32_dpp v8, v2 row_bcast:15 row_mask:0xa bank_mask:0xf",
            &[0x7e1002fa, 0xaf014202],
            |a, l| match l / 16 {
                1 => a[15],
                3 => a[47],
                _ => 0xd,
            },
        ),
        ("v_mov_b32_dpp v8, v2 row_mirror row_mask:0xf bank_mask:0x1", &[0x7e1002fa, 0xf1014002], |a, l| {
            if l % 16 < 4 { a[l ^ 15] } else { 0xd }
        }),
    ];
    let a: [u64; 64] = std::array::from_fn(|lane| 1000 + lane as u64);
    for (name, words, expect) in rows {
        assert_eq!(text(words), [*name]);
        // v_mov_b32_e32 v8, 13
        let words = [&[0x7e10_028d], *words].concat();
        let out = run(&words, [&a, &[0; 64], &[0; 64]], Approximation::Rounded).unwrap();
        for lane in 0..64 {
            assert_eq!(out[lane], expect(&a, lane), "{name}, lane {lane}");
        }
    }
}

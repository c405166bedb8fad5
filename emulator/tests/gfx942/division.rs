//! Division and square root: where LLVM's sequences give IEEE's bits for all approximations, and that those
//! of the kernels (`core/src/num/div.rs`, `settle.rs`) always do. docs/emulator.md, "Division".

use crate::machine::run;
use crate::random::Random;
use crate::sequences::{DIVIDE_32, DIVIDE_64, ROOT_64, kernels_32, kernels_64, kernels_root, words};
use lockstep_emulator::gfx942::Approximation;

fn divided_64(x: u64, y: u64) -> u64 {
    (f64::from_bits(x) / f64::from_bits(y)).to_bits()
}

fn divided_32(x: u64, y: u64) -> u64 {
    (f32::from_bits(x as u32) / f32::from_bits(y as u32)).to_bits().into()
}

const MODES: [Approximation; 5] = [
    Approximation::Rounded,
    Approximation::Perturbed(1),
    Approximation::Perturbed(2),
    Approximation::Perturbed(3),
    Approximation::Perturbed(4),
];

/// Whether a divisor's significand is so close below a power of two that the reciprocal may decide the last
/// bit.
fn below_a_power_64(divisor: u64) -> bool {
    divisor & 0x000f_ffff_0000_0000 == 0x000f_ffff_0000_0000
}

fn below_a_power_32(divisor: u64) -> bool {
    divisor & 0x007f_fff8 == 0x007f_fff8
}

/// Numbers of every kind: ordinary, of any exponent, at the ends of the range, special.
fn number_64(random: &mut Random) -> f64 {
    let special = [
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1.0,
        -1.0,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::from_bits(1),
        f64::from_bits(0x000f_ffff_ffff_ffff),
        3.0,
        1.0 / 3.0,
        2.0f64.powi(1022),
        2.0f64.powi(-1022),
        10.0,
    ];
    match random.below(8) {
        0 => special[random.below(special.len() as u64) as usize],
        1 => f64::from_bits(random.next() & 0x800f_ffff_ffff_ffff),
        2 => f64::from_bits(random.next() & 0x801f_ffff_ffff_ffff | 0x7fc0_0000_0000_0000),
        3 => f64::from_bits(random.next() & 0x80ff_ffff_ffff_ffff),
        4 => f64::from(random.bits(12)),
        5 => f64::from_bits(random.next() & 0x800f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000),
        _ => f64::from_bits(random.next()),
    }
}

fn number_32(random: &mut Random) -> f32 {
    let special = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.0,
        -1.0,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::from_bits(1),
        f32::from_bits(0x007f_ffff),
        3.0,
        1.0 / 3.0,
        2.0f32.powi(127),
        2.0f32.powi(-126),
        10.0,
    ];
    match random.below(8) {
        0 => special[random.below(special.len() as u64) as usize],
        1 => f32::from_bits(random.bits(32) & 0x807f_ffff),
        2 => f32::from_bits(random.bits(32) & 0x80ff_ffff | 0x7e00_0000),
        3 => f32::from_bits(random.bits(32) & 0x81ff_ffff),
        4 => random.bits(12) as f32,
        5 => f32::from_bits(random.bits(32) & 0x807f_ffff | 0x3f80_0000),
        _ => f32::from_bits(random.bits(32)),
    }
}

/// Compares a thousand waves of random operands in every mode with IEEE. Numbers are bits in the low end of a
/// word, `ieee` gives the expected result, and `open` tells for which operands the reciprocal decides.
fn held(
    (words, seed): (Vec<u32>, u64),
    draw: impl Fn(&mut Random) -> u64,
    ieee: impl Fn(u64, u64) -> u64,
    is_nan: impl Fn(u64) -> bool,
    open: impl Fn(u64, u64) -> bool,
) {
    let mut random = Random(seed);
    for round in 0..1000 {
        let a: [u64; 64] = std::array::from_fn(|_| draw(&mut random));
        let b: [u64; 64] = std::array::from_fn(|_| draw(&mut random));
        let mode = MODES[round % 5];
        let out = run(&words, [&a, &b, &[0; 64]], mode).unwrap();
        for lane in 0..64 {
            let (x, y, mine) = (a[lane], b[lane], out[lane]);
            if round % 5 > 0 && open(x, y) {
                continue;
            }
            let wanted = ieee(x, y);
            assert!(
                mine == wanted || is_nan(mine) && is_nan(wanted),
                "{x:#x}, {y:#x}: {wanted:#x}, not {mine:#x} ({mode:?}, seed {seed:#x})"
            );
        }
    }
}

fn nan_64(x: u64) -> bool {
    f64::from_bits(x).is_nan()
}

#[test]
fn binary64_division_is_ieee_whatever_the_reciprocal() {
    held(
        (words(DIVIDE_64), 0xd1_f064),
        |random| number_64(random).to_bits(),
        divided_64,
        nan_64,
        |_, y| below_a_power_64(y),
    );
}

/// A format, given by its digits: 24 or 53.
#[derive(Clone, Copy)]
struct Format {
    digits: u32,
    bias: i32,
}

const SINGLE: Format = Format { digits: 24, bias: 127 };
const DOUBLE: Format = Format { digits: 53, bias: 1023 };

impl Format {
    /// Returns the bits of the number whose significand is this integer of all digits, and whose first digit
    /// has the weight 2^exponent.
    fn bits(self, significand: u128, exponent: i32) -> u64 {
        let hidden = 1 << (self.digits - 1);
        (significand as u64 - hidden) | ((exponent + self.bias) as u64) << (self.digits - 1)
    }

    /// Finds numerators over the divisor of significand B, odd, such that the quotient is as close to a tie
    /// as possible, or j times that: A·2^n = B·M + j, where the tie M has one digit more than the quotient.
    /// Returns numerator and divisor as bits; the quotient is normal, or subnormal and one digit short.
    fn next_to_a_tie(self, divisor: u64, j: i64, short: bool) -> Vec<(u64, u64)> {
        let kept = self.digits - u32::from(short);
        let b = u128::from(divisor);
        let inverse = (0..7).fold(b, |y, _| y.wrapping_mul(2u128.wrapping_sub(b.wrapping_mul(y))));
        let mut found = Vec::new();
        for n in [kept, kept + 1] {
            let tie = inverse.wrapping_mul(i128::from(-j).cast_unsigned()) & ((1 << n) - 1);
            let tie = if n == kept { tie | 1 << n } else { tie };
            let product = (b * tie).wrapping_add_signed(j.into());
            assert_eq!(product & ((1 << n) - 1), 0);
            let a = product >> n;
            if tie >> kept == 1 && a >> (self.digits - 1) == 1 {
                // Far from the limits of the range, except for the quotient.
                let (of_divisor, of_quotient) = if short { (self.bias / 4, -self.bias) } else { (0, 0) };
                let of_numerator = of_divisor + of_quotient - (kept as i32) + n as i32;
                found.push((self.bits(a, of_numerator), self.bits(b, of_divisor)));
            }
        }
        found
    }
}

/// Tests the operands nearest to ties, for divisors of every kind, half of them just below a power of two,
/// except for the `below` nearest; with the worst reciprocals that the manual allows.
fn hardest(format: Format, words: &[u32], ieee: impl Fn(u64, u64) -> u64, below: u64, subnormals: bool) {
    let mut random = Random(0x4a2d);
    let (mut normal, mut subnormal) = (0, 0);
    for round in 0..1500 {
        let mut pairs = Vec::new();
        while pairs.len() < 64 {
            let any = random.next() >> (64 - format.digits) | 1 << (format.digits - 1) | 1;
            let further = if random.one_in(2) {
                2 * random.below(64)
            } else {
                random.next() >> (16 + random.below(47)) & !1
            };
            let near = (1u64 << format.digits).checked_sub(below + 1 + further);
            let near = near.filter(|b| b >> (format.digits - 1) == 1);
            let divisor = if random.one_in(2) { near.unwrap_or(any) } else { any };
            let j = [1, -1, 1, -1, 3, -3][random.below(6) as usize];
            pairs.extend(format.next_to_a_tie(divisor, j, subnormals && random.one_in(3)));
        }
        let a = std::array::from_fn(|i| pairs[i].0);
        let b = std::array::from_fn(|i| pairs[i].1);
        let out = run(words, [&a, &b, &[0; 64]], Approximation::Perturbed(round)).unwrap();
        for lane in 0..64 {
            let wanted = ieee(a[lane], b[lane]);
            let is_subnormal = wanted >> (format.digits - 1) == 0;
            *if is_subnormal { &mut subnormal } else { &mut normal } += 1;
            assert_eq!(out[lane], wanted, "{:#x} / {:#x}, seed {round}", a[lane], b[lane]);
        }
    }
    assert!(normal > 20_000 && (subnormal > 10_000 || !subnormals), "{normal} normal, {subnormal} subnormal");
}

#[test]
fn quotients_next_to_ties() {
    hardest(DOUBLE, &words(DIVIDE_64), divided_64, 1 << 32, true);
    hardest(SINGLE, &words(DIVIDE_32), divided_32, 8, true);
    // For kernels, no divisor is left out.
    hardest(DOUBLE, &kernels_64(), divided_64, 0, false);
    hardest(SINGLE, &kernels_32(), divided_32, 0, true);
}

/// A number with which binary64 remainders are reliable.
fn is_moderate(x: u64) -> bool {
    let x = f64::from_bits(x).abs();
    x == 0.0 || x.is_nan() || x >= f64::from_bits((1023 - 900) << 52)
}

#[test]
fn kernels_divide_and_take_roots_as_ieee_does() {
    held(
        (kernels_64(), 0x64),
        |random| number_64(random).to_bits(),
        divided_64,
        nan_64,
        |x, y| below_a_power_64(y) && !(is_moderate(x) && is_moderate(divided_64(x, y))),
    );
    held(
        (kernels_32(), 0x32),
        |random| number_32(random).to_bits().into(),
        divided_32,
        |x| f32::from_bits(x as u32).is_nan(),
        |_, _| false,
    );
    held(
        (kernels_root(), 0x500),
        |random| number_64(random).to_bits(),
        |x, _| f64::from_bits(x).sqrt().to_bits(),
        nan_64,
        |_, _| false,
    );
}

/// Radicands whose root is as close to a tie as possible: x = k² + k + t, a multiple of 2^m, in [2^104,
/// 2^106), as numbers in [1, 4).
fn roots_next_to_ties() -> Vec<u64> {
    let mut found = Vec::new();
    for t in -200i128..=200 {
        for m in [52, 53] {
            // k(k + 1) = −t modulo 2^m, one bit after another.
            let solves = |k: i128, bits: u32| (k * (k + 1) + t) & ((1 << bits) - 1) == 0;
            let mut roots = vec![0i128, 1];
            roots.retain(|k| solves(*k, 1));
            for bits in 2..=m {
                roots = roots
                    .iter()
                    .flat_map(|k| [*k, k + (1 << (bits - 1))])
                    .filter(|k| solves(*k, bits))
                    .collect();
            }
            for k in roots.iter().flat_map(|k| (0..4).map(move |i| k + (i << m))) {
                let x = k * k + k + t;
                if x >> (52 + m) == 1 {
                    found.push(DOUBLE.bits((x >> m).cast_unsigned(), m as i32 - 52));
                }
            }
        }
    }
    found
}

#[test]
fn roots_next_to_ties_of_kernels() {
    let (own, ours) = (words(ROOT_64), kernels_root());
    let mut open = 0;
    let hard = roots_next_to_ties();
    for x in &hard {
        let ieee = f64::from_bits(*x).sqrt().to_bits();
        let root = |words: &[u32], seed| {
            run(words, [&[*x; 64], &[0; 64], &[0; 64]], Approximation::Perturbed(seed)).unwrap()[0]
        };
        assert!((0..8).all(|seed| root(&ours, seed) == ieee), "{x:#x}");
        // LLVM's own is one unit too small for some.
        let wrong = (0..8).map(|seed| root(&own, seed)).find(|root| *root != ieee);
        assert!(wrong.is_none_or(|wrong| wrong == ieee - 1), "{x:#x}");
        open += usize::from(wrong.is_some());
    }
    assert_eq!((hard.len(), open), (282, 47));
}

/// Why kernels do not divide as LLVM does: for a divisor just below a power of two, a quotient can lie above
/// a tie by only 2^-53 of its last bit, and the reciprocal decides. With some reciprocals that the manual
/// allows, the quotient is one unit too small.
#[test]
fn next_below_a_power_of_two_the_reciprocal_decides() {
    let (words, ours) = (words(DIVIDE_64), kernels_64());
    let mut open = [Vec::new(), Vec::new()];
    for below in (1..200).step_by(2) {
        for short in [false, true] {
            for (x, y) in DOUBLE.next_to_a_tie((1 << 53) - below, 1, short) {
                assert!(below_a_power_64(y));
                let ieee = (f64::from_bits(x) / f64::from_bits(y)).to_bits();
                let of = |words: &[u32], mode| run(words, [&[x; 64], &[y; 64], &[0; 64]], mode).unwrap()[0];
                let quotient = |mode| of(&words, mode);
                assert_eq!(quotient(Approximation::Rounded), ieee);
                assert!(short || (0..8).all(|seed| of(&ours, Approximation::Perturbed(seed)) == ieee));
                // Half of the seeds go as far as the manual allows.
                let wrong = (0..8).map(|seed| quotient(Approximation::Perturbed(seed))).find(|q| *q != ieee);
                if let Some(wrong) = wrong {
                    assert_eq!(wrong, ieee - 1, "{x:#x} / {y:#x}");
                    open[usize::from(short)].push(below);
                }
            }
        }
    }
    assert_eq!([open[0].len(), open[1].len()], [27, 36]);
    // One over all ones is the oldest known example (Markstein, 1990).
    assert_eq!(open[0][..3], [1, 5, 11]);
    assert_eq!(open[1][..3], [7, 9, 17]);
}

/// All of binary32: wherever one Newton step from a reciprocal within its error misses the nearest number,
/// every numerator is tried. Where it does not, Markstein's theorem holds.
#[test]
fn binary32_reciprocals_that_stay_wrong() {
    let mut missed = Vec::new();
    for b in (1u32 << 23)..(1 << 24) {
        let b = f32::from_bits((b - (1 << 23)) | 0x3f80_0000);
        // The reciprocal is exact in binary64 to 2^-53, and 2^-48 away from any tie.
        let nearest = (1.0 / f64::from(b)) as f32;
        for units in -1..=1 {
            let rough = f32::from_bits(nearest.to_bits().wrapping_add_signed(units));
            let fine = (-b).mul_add(rough, 1.0).mul_add(rough, rough);
            if fine != nearest {
                missed.push((b, fine));
            }
        }
    }
    assert_eq!(missed.len(), 33);
    for (b, reciprocal) in missed {
        let mut wrong = 0;
        for a in 0..(1u32 << 23) {
            let a = f32::from_bits(a | 0x3f80_0000);
            let quotient = a * reciprocal;
            let quotient = (-b).mul_add(quotient, a).mul_add(reciprocal, quotient);
            let quotient = (-b).mul_add(quotient, a).mul_add(reciprocal, quotient);
            wrong += u32::from(quotient != a / b);
        }
        assert!(wrong == 0 || below_a_power_32(b.to_bits().into()), "{b:e}: {wrong}");
    }
}

#[test]
fn binary32_division_is_ieee_whatever_the_reciprocal() {
    held(
        (words(DIVIDE_32), 0xd1_f032),
        |random| number_32(random).to_bits().into(),
        divided_32,
        |x| f32::from_bits(x as u32).is_nan(),
        |_, y| below_a_power_32(y),
    );
}

#[test]
fn binary64_square_root_is_ieee_whatever_the_reciprocal_root() {
    held(
        (words(ROOT_64), 0x5047),
        |random| number_64(random).to_bits(),
        |x, _| f64::from_bits(x).sqrt().to_bits(),
        nan_64,
        |_, _| false,
    );
}

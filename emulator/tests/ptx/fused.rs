//! Rounding, against integers of any size: fma, add, mul, div, rcp, sqrt.

use super::exact::{F32, F64, Format};
use super::lanes::{f, random, run, table};

/// Finite numbers that exercise rounding: random ones with close exponents, subnormals, powers of two and
/// their neighbours.
fn numbers(format: Format, seed: u64, count: usize) -> Vec<u64> {
    let (mantissa, bits) = if format.one() == F32.one() { (23, 32) } else { (52, 64) };
    let mut found = Vec::new();
    for (i, word) in random(seed).take(count).enumerate() {
        let sign = (word >> 63) << (bits - 1);
        let fraction = word & ((1 << mantissa) - 1);
        let near = (format.one() >> mantissa).wrapping_add(word >> 52 & 31).wrapping_sub(16) << mantissa;
        found.push(match i % 6 {
            0 | 1 => sign | near | fraction,
            // Few bits, so that products and sums hit ties.
            2 => sign | near | (fraction >> (mantissa - 3) << (mantissa - 3)),
            3 => sign | near,
            4 => sign | (near | ((1 << mantissa) - 1)),
            _ => sign | (fraction >> (word >> 56 & 31)),
        });
    }
    found
}

fn triples(format: Format, count: usize) -> Vec<[u64; 3]> {
    let lists = [11, 12, 13].map(|seed| numbers(format, seed, count));
    let mut triples: Vec<[u64; 3]> =
        (0..count).map(|i| [lists[0][i], lists[1][(i * 7) % count], lists[2][(i * 5) % count]]).collect();
    // Sums that almost cancel: c is the product's negative, rounded, or its neighbour.
    for i in 0..count {
        let [a, b, _] = triples[i];
        let product = format.fma(a, b, 0);
        let top = if format.one() == F32.one() { 1 << 31 } else { 1 << 63 };
        triples.push([a, b, (product ^ top).wrapping_add(i as u64 % 3)]);
    }
    let infinite = |bits: u64| match format.one() == F32.one() {
        true => !f32::from_bits(bits as u32).is_finite(),
        false => !f64::from_bits(bits).is_finite(),
    };
    triples.retain(|triple| !triple.iter().any(|bits| infinite(*bits)));
    triples
}

fn check(instruction: &str, format: Format, want: impl Fn([u64; 3]) -> u64) {
    let words = triples(format, 600);
    for (words, got) in words.iter().zip(run(instruction, &words)) {
        assert_eq!(got, want(*words), "{instruction} of {words:#x?}");
    }
}

#[test]
fn fma_rounds_once() {
    check("fma.rn.f32 %r3, %r0, %r1, %r2", F32, |[a, b, c]| F32.fma(a, b, c));
    check("fma.rn.f64 %d3, %d0, %d1, %d2", F64, |[a, b, c]| F64.fma(a, b, c));
    // 1 + 2^-24 is a tie that the 2^-100 of the product breaks: a fused sum of binary64 would round twice.
    let (tiny, up) = (2.0_f32.powi(-50), 1.0 + 2.0_f32.powi(-23));
    table("fma.rn.f32 %r3, %r0, %r1, %r2", &[([f(tiny), f(tiny), f(up)], f(up))]);
    let (a, b) = (1.0 + 2.0_f32.powi(-12), 1.0 + 2.0_f32.powi(-12));
    // (1 + 2^-12)² = 1 + 2^-11 + 2^-24; minus 1 + 2^-11 leaves what a rounded product loses.
    table(
        "fma.rn.f32 %r3, %r0, %r1, %r2",
        &[([f(a), f(b), f(-(1.0 + 2.0_f32.powi(-11)))], f(2.0_f32.powi(-24)))],
    );
}

#[test]
fn sums_and_products_round_once() {
    let negated = |bits: u64, top: u64| bits ^ top;
    check("add.rn.f32 %r3, %r0, %r1", F32, |[a, b, _]| sum(F32, a, b));
    check("add.rn.f64 %d3, %d0, %d1", F64, |[a, b, _]| sum(F64, a, b));
    check("sub.rn.f32 %r3, %r0, %r1", F32, |[a, b, _]| sum(F32, a, negated(b, 1 << 31)));
    check("sub.rn.f64 %d3, %d0, %d1", F64, |[a, b, _]| sum(F64, a, negated(b, 1 << 63)));
    // A product is a sum with a zero of its own sign.
    check("mul.rn.f32 %r3, %r0, %r1", F32, |[a, b, _]| F32.fma(a, b, (a ^ b) & 1 << 31));
    check("mul.rn.f64 %d3, %d0, %d1", F64, |[a, b, _]| F64.fma(a, b, (a ^ b) & 1 << 63));
}

fn sum(format: Format, a: u64, b: u64) -> u64 {
    format.fma(a, format.one(), b)
}

#[test]
fn quotients_and_roots_are_nearest() {
    for (format, register, top) in [(F32, "r", 1 << 31), (F64, "d", 1_u64 << 63)] {
        let ty = if register == "r" { "f32" } else { "f64" };
        let mut words: Vec<[u64; 3]> = triples(format, 300);
        for [a, b, _] in &mut words {
            (*a, *b) = (*a & !top, *b & !top);
        }
        // Quotients and roots of normal size: near a subnormal, the spacing equals the rounding.
        words.retain(|[a, b, _]| *a > format.one() >> 1 && *b > format.one() >> 1);
        assert!(words.len() > 200);
        let quotients = run(&format!("div.rn.{ty} %{register}3, %{register}0, %{register}1"), &words);
        let roots = run(&format!("sqrt.rn.{ty} %{register}3, %{register}0"), &words);
        let inverses = run(&format!("rcp.rn.{ty} %{register}3, %{register}1"), &words);
        for (i, [a, b, _]) in words.iter().enumerate() {
            assert!(format.nearest_quotient(*a, *b, quotients[i]), "{a:#x} / {b:#x} = {:#x}", quotients[i]);
            assert!(
                format.nearest_quotient(format.one(), *b, inverses[i]),
                "1 / {b:#x} = {:#x}",
                inverses[i]
            );
            assert!(format.nearest_root(*a, roots[i]), "root of {a:#x} = {:#x}", roots[i]);
        }
    }
}

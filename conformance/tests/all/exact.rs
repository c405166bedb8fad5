//! Exact sums against big integers: any order, any merge tree, any sharding, the same bits.

use crate::prelude::*;
use lockstep_core::aggregate::exact::{ExactMoments, ExactSum, MOMENTS_BYTES, SUM_BYTES};
use lockstep_core::aggregate::exact_sum::Summand;
use num_bigint::BigInt;

/// Units of 2⁻¹⁰⁷⁴ in a finite number.
fn units(x: f64) -> BigInt {
    let bits = x.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as usize, bits & ((1 << 52) - 1));
    let magnitude = match exponent {
        0 => BigInt::from(fraction),
        e => BigInt::from(fraction | 1 << 52) << (e - 1),
    };
    if x.is_sign_negative() { -magnitude } else { magnitude }
}

/// The binary64 number nearest to `of / by` in units of 2⁻¹⁰⁷⁴, ties to even, by bisection over all of them.
fn nearest(of: &BigInt, by: &BigInt) -> f64 {
    let zero = BigInt::from(0);
    if *of < zero {
        return -nearest(&-of, by);
    }
    // The bits of the largest number that is not above: positive numbers are ordered like their bits.
    let (mut low, mut high) = (0u64, f64::MAX.to_bits());
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match units(f64::from_bits(middle)) * by <= *of {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    let below = units(f64::from_bits(low)) * by;
    // The next number, or what it would be with one more exponent.
    let above = if low == f64::MAX.to_bits() {
        (BigInt::from(1) << (1024 + 1074)) * by
    } else {
        units(f64::from_bits(low + 1)) * by
    };
    let (down, up) = (of - &below, above - of);
    f64::from_bits(if down < up || (down == up && low % 2 == 0) { low } else { low + 1 })
}

fn oracle(values: &[f64]) -> f64 {
    nearest(&values.iter().map(|x| units(*x)).sum(), &BigInt::from(1))
}

fn exact(values: &[f64]) -> ExactSum {
    values.iter().copied().collect()
}

/// A finite number of any exponent.
fn any(source: Source, i: usize) -> f64 {
    let bits = source.bits(i);
    f64::from_bits(if bits >> 52 & 0x7ff == 0x7ff { bits & !(1 << 52) } else { bits })
}

/// Lists whose rounded sums are wrong.
fn adversaries() -> Vec<(String, Vec<f64>)> {
    let p = |e: i32| 2.0f64.powi(e);
    let (tiny, max, half) = (5e-324, f64::MAX, p(970));
    let named = [
        ("nothing", vec![]),
        ("zeros of both signs", vec![-0.0, 0.0, -0.0]),
        ("the other way to zero", vec![1.5, -1.5]),
        ("2^1000 and back", vec![p(1000), p(-1000), -p(1000)]),
        ("2^±1000, a subnormal left", vec![p(1000), tiny, p(-1000), -p(1000), -p(-1000)]),
        ("a tie to even, down", vec![1.0, p(-53)]),
        ("a tie to even, up", vec![1.0 + f64::EPSILON, p(-53)]),
        ("above a tie by the last bit there is", vec![1.0, p(-53), tiny]),
        ("below a tie by the last bit there is", vec![1.0 + f64::EPSILON, p(-53), -tiny]),
        ("the largest, through an overflow", vec![max, max, -max]),
        ("the largest and nearly half a step", vec![max, half - p(917)]),
        ("the largest and half a step", vec![max, half]),
        ("minus the same", vec![-max, -half]),
        ("subnormals that become normal", vec![f64::MIN_POSITIVE - tiny, tiny]),
        ("subnormals", vec![tiny, tiny, -3.0 * tiny]),
        ("a carry through every limb", vec![max, tiny, -tiny, tiny]),
        ("a borrow through every limb", vec![p(1023), -tiny]),
        ("minus a borrow through every limb", vec![-p(1023), tiny]),
    ];
    let mut lists: Vec<_> = named.into_iter().map(|(name, list)| (name.to_owned(), list)).collect();
    for seed in 0..40 {
        let source = Source::new(seed);
        let length = 1 + source.below(0, 300);
        let mut list: Vec<f64> = (1..=length).map(|i| any(source, i)).collect();
        if seed % 2 == 0 {
            // All but one value cancels.
            let negatives: Vec<f64> = list[1..].iter().map(|x| -x).collect();
            list.extend(negatives);
            list.sort_by_key(|x| source.fork(1).bits((x.to_bits() % 1009) as usize));
        }
        if seed % 4 > 1 {
            // Neighbouring exponents, so that many roundings matter.
            list.iter_mut().for_each(|x| *x = f64::from_bits(x.to_bits() & !(0x7ff << 52) | 1020 << 52));
        }
        lists.push((format!("random {seed}"), list));
    }
    lists
}

#[test]
fn sums_are_rounded_once() {
    for (name, list) in adversaries() {
        let (got, want) = (exact(&list).finish(), oracle(&list));
        // An exact zero is +0 whatever the oracle's sign.
        assert_eq!(got.to_bits(), (want + 0.0).to_bits(), "{name}: {got:e}, big integers say {want:e}");
    }
}

#[test]
fn the_oracle_knows_the_ends() {
    let max = f64::MAX;
    assert_eq!(oracle(&[max, 2.0f64.powi(970)]), f64::INFINITY);
    assert_eq!(oracle(&[max, 2.0f64.powi(969)]), max);
    assert_eq!(oracle(&[5e-324, -1.0]), -1.0);
}

#[test]
fn any_order_and_any_tree_of_merges() {
    for (name, list) in adversaries() {
        let whole = exact(&list).to_bytes();
        for seed in 0..6 {
            let source = Source::new(seed);
            let mut order: Vec<usize> = (0..list.len()).collect();
            order.sort_by_key(|i| source.bits(*i));
            // Shards of uneven size, some empty; two random ones are merged until one is left.
            let shards = 1 + source.below(7000, 9);
            let mut parts = vec![ExactSum::ZERO; shards];
            order.iter().for_each(|i| parts[source.fork(1).below(*i, shards)].add(list[*i]));
            while parts.len() > 1 {
                let other = parts.swap_remove(source.fork(2).below(parts.len(), parts.len()));
                let other = ExactSum::from_bytes(&other.to_bytes()).unwrap();
                let into = source.fork(3).below(parts.len(), parts.len());
                parts[into].merge(&other);
            }
            assert_eq!(parts[0].to_bytes(), whole, "{name}, seed {seed}");
        }
    }
}

#[test]
fn equal_sums_of_different_numbers_have_equal_bytes() {
    let different =
        [exact(&[3.0, -1.0]), exact(&[1.0, 1.0]), exact(&[2.0, -0.0]), exact(&[1e300, 2.0, -1e300])];
    for sum in different {
        assert_eq!(sum.to_bytes(), exact(&[2.0]).to_bytes());
        assert!(sum == exact(&[2.0]));
    }
    assert!(exact(&[2.0]) != exact(&[2.0 + f64::EPSILON * 2.0]));
    assert!(exact(&[2.0]) != exact(&[2.0, f64::INFINITY]));
}

#[test]
fn what_is_no_number_decides() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for (values, want) in [
        (vec![1.0, nan], nan),
        (vec![nan, inf], nan),
        (vec![inf, 1.0, -inf], nan),
        (vec![inf, f64::MIN, f64::MIN], inf),
        (vec![-inf, f64::MAX], -inf),
    ] {
        let mut parts: Vec<ExactSum> = values.iter().map(|x| exact(&[*x])).collect();
        let mut sum = parts.pop().unwrap();
        parts.iter().for_each(|part| sum.merge(part));
        let canonical = if want.is_nan() { 0x7ff8_0000_0000_0000 } else { want.to_bits() };
        assert_eq!(sum.finish().to_bits(), canonical, "{values:?}");
        assert_eq!(exact(&values).to_bytes(), sum.to_bytes(), "{values:?}");
        assert!(!sum.is_finite());
    }
}

#[test]
fn a_number_many_times() {
    for (i, times) in [(0, 0), (1, 1), (2, 3), (3, u32::MAX), (4, 1 << 31)] {
        let x = any(Source::new(9), i) * 2.0f64.powi(-40);
        let mut sum = ExactSum::ZERO;
        sum.add_times(x, times);
        assert_eq!(sum.finish(), nearest(&(units(x) * times), &BigInt::from(1)), "{x:e} {times} times");
    }
}

/// Carries are propagated in time even if limbs only ever grow.
#[test]
fn long_sums_of_one_sign() {
    // Doubled by merging with itself: 2⁶⁰ times the number.
    let doubled = |x: f64| {
        (0..60).fold(exact(&[x]), |mut sum, _| {
            let twin = sum;
            sum.merge(&twin);
            sum
        })
    };
    let mut sum = doubled(f64::MAX);
    assert_eq!(sum.finish(), f64::INFINITY);
    sum.merge(&doubled(-f64::MAX));
    sum.add(1.0);
    assert_eq!(sum.finish(), 1.0);
}

#[test]
fn bytes_are_checked() {
    let good = exact(&[1.0, -1e300]).to_bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        ExactSum::from_bytes(&bytes)
    };
    assert_eq!(ExactSum::from_bytes(&good).unwrap().to_bytes(), good);
    for (at, byte) in [(0, b'M'), (3, 0), (4, 2), (6, 8), (8, 1)] {
        refused(with(at, byte), &format!("`bytes of an exact sum`[{at}] is …"));
    }
    // A sum that nothing reaches.
    let last = format!("`bytes of an exact sum`[{}] is …", SUM_BYTES - 8);
    refused(with(SUM_BYTES - 1, 0x40), &last);
    let short = format!("…has {} entries: expected {SUM_BYTES} (…", SUM_BYTES - 1);
    refused(ExactSum::from_bytes(&good[1..]), &short);
    let moments = [1.0f32, 2.0].into_iter().collect::<ExactMoments>();
    let good = moments.to_bytes();
    assert_eq!(ExactMoments::from_bytes(&good).unwrap(), moments);
    for (at, byte) in [(0, 0), (5, 1), (6, 1), (16, 9), (39, 0xff)] {
        let mut bytes = good;
        bytes[at] = byte;
        assert!(ExactMoments::from_bytes(&bytes).is_err(), "byte {at}");
    }
    let mut bytes = good;
    bytes[8..24].fill(0xff);
    let mut full = ExactMoments::from_bytes(&bytes).unwrap();
    full.merge(&moments);
    assert_eq!(full.count(), u64::MAX, "no overflow, whatever was decoded");
    assert!(ExactMoments::from_bytes(&good[..MOMENTS_BYTES - 1]).is_err());
    assert_eq!(ExactMoments::from_bytes(&ExactMoments::NONE.to_bytes()).unwrap(), ExactMoments::NONE);
}

/// Distance counted in representable numbers.
fn ulps(a: f64, b: f64) -> u64 {
    (a.to_bits() as i64).abs_diff(b.to_bits() as i64)
}

/// Mean and variance from big integers, each rounded once; the values are in units of 2⁻¹⁰⁷⁴.
fn moments_oracle(values: &[f64], ddof: u32) -> (f64, f64) {
    let n = BigInt::from(values.len());
    let sum: BigInt = values.iter().map(|x| units(*x)).sum();
    let squares: BigInt = values.iter().map(|x| units(*x) * units(*x)).sum();
    let numerator = &n * squares - &sum * &sum;
    let freedom = BigInt::from(values.len() as i64 - i64::from(ddof));
    (nearest(&sum, &n), nearest(&numerator, &(n * freedom * (BigInt::from(1) << 1074))))
}

#[test]
fn moments_are_those_of_big_integers_for_any_sharding() {
    for seed in 0..30 {
        let source = Source::new(100 + seed);
        let length = 2 + source.below(0, 200);
        let value = |i: usize| match seed % 3 {
            // Around a large mean, any finite value, ordinary.
            0 => 1e6 + source.signed(i),
            1 => f32::from_bits((source.bits(i) as u32) & !(1 << 23)),
            _ => source.signed(i),
        };
        let values: Vec<f32> = (1..=length).map(value).collect();
        let whole: ExactMoments = values.iter().copied().collect();
        let wide: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
        for ddof in [0, 1] {
            let (mean, variance) = moments_oracle(&wide, ddof);
            assert!(ulps(whole.mean(), mean) <= 1, "mean {:e}, exact {mean:e}", whole.mean());
            assert!(ulps(whole.variance(ddof), variance) <= 2, "{:e}, {variance:e}", whole.variance(ddof));
        }
        for shards in [1, 2, 3, 7] {
            let mut merged = ExactMoments::NONE;
            for shard in (0..shards).rev() {
                let own =
                    values.iter().enumerate().filter(|(i, _)| source.fork(1).below(*i, shards) == shard);
                let part: ExactMoments = own.map(|(_, x)| *x).collect();
                merged.merge(&ExactMoments::from_bytes(&part.to_bytes()).unwrap());
            }
            assert_eq!(merged.to_bytes(), whole.to_bytes());
            assert_eq!(merged.moments().map(f64::to_bits), whole.moments().map(f64::to_bits));
        }
    }
}

#[test]
fn moments_of_binary64() {
    let values = [1e100, -1e-100, 3.0 + f64::EPSILON, 2.0f64.powi(449), 2.0f64.powi(-450), 0.0];
    let mut moments = ExactMoments::NONE;
    values.iter().for_each(|x| moments.add64(*x).unwrap());
    let (mean, variance) = moments_oracle(&values, 1);
    assert!(ulps(moments.mean(), mean) <= 1 && ulps(moments.variance(1), variance) <= 2);
    let before = moments;
    for bad in [2.0f64.powi(450), -2.0f64.powi(-451), 5e-324, f64::NAN, f64::INFINITY, f64::MIN] {
        refused(moments.add64(bad), "`value` is …");
    }
    assert_eq!(moments, before, "a refused value adds nothing");
}

#[test]
fn values_that_are_all_equal_have_no_variance() {
    for x in [0.1f32, -0.0, 1e-45, f32::MAX, 1.0 / 3.0] {
        let moments: ExactMoments = [x; 1000].into_iter().collect();
        let found = [moments.mean(), moments.variance(1), moments.variance(0)];
        assert_eq!(found, [f64::from(x) + 0.0, 0.0, 0.0]);
        let mut times = ExactMoments::NONE;
        times.add_times(x, 1000);
        assert_eq!(times, moments);
    }
    assert_eq!(ExactMoments::NONE.moments(), [0.0, 0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 0.0]);
    let of = |values: &[f32]| values.iter().copied().collect::<ExactMoments>();
    assert_eq!(of(&[7.0]).variance(1), 0.0);
    assert!(of(&[1.0, f32::NAN]).mean().is_nan() && of(&[1.0, f32::NAN]).variance(0).is_nan());
    assert!(of(&[f32::INFINITY; 2]).mean() == f64::INFINITY && of(&[f32::INFINITY; 2]).squares().is_nan());
}

#[test]
fn digits_are_checked() {
    let planes = <f32 as Summand>::PLANES;
    let good = vec![0.0; 2 * planes];
    assert_eq!(ExactSum::from_digits::<f32>(&good).unwrap(), (ExactSum::ZERO, 0));
    refused(ExactSum::from_digits::<f64>(&good), "`digits` has …");
    for (at, bad) in [(3, 0.5), (4, f64::NAN), (5, 9_007_199_254_740_992.0), (2 * planes - 1, -1.0)] {
        let mut digits = good.clone();
        digits[at] = bad;
        refused(ExactSum::from_digits::<f32>(&digits), &format!("`digits`[{at}] is …"));
    }
}

//! Numbers as integers of any size: the standard for rounding, without a floating-point unit.

use std::cmp::Ordering;

/// Number of 32-bit limbs: far more than the widest product and sum of binary64 need.
const LIMBS: usize = 140;
/// The exponent of the lowest bit: below that of the smallest product of two subnormals.
const LEAST: i32 = -2200;

/// A magnitude: its bits times 2^LEAST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fixed([u32; LIMBS]);

impl Fixed {
    fn of(mantissa: u128, exponent: i32) -> Fixed {
        let mut limbs = [0; LIMBS];
        let at = (exponent - LEAST) as usize;
        for bit in 0..128 {
            if mantissa >> bit & 1 == 1 {
                limbs[(at + bit) / 32] |= 1 << ((at + bit) % 32);
            }
        }
        Fixed(limbs)
    }

    fn compare(&self, other: &Fixed) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }

    fn add(mut self, other: &Fixed) -> Fixed {
        let mut carry = 0;
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            carry += u64::from(*mine) + u64::from(theirs);
            *mine = carry as u32;
            carry >>= 32;
        }
        self
    }

    /// Subtracts; `self` is the larger.
    fn sub(mut self, other: &Fixed) -> Fixed {
        let mut borrow = 0_i64;
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            borrow += i64::from(*mine) - i64::from(theirs);
            *mine = borrow as u32;
            borrow >>= 32;
        }
        self
    }

    fn bit(&self, at: i32) -> bool {
        at >= 0 && self.0[at as usize / 32] >> (at % 32) & 1 == 1
    }

    /// Returns the position of the highest bit.
    fn top(&self) -> Option<i32> {
        let limb = self.0.iter().rposition(|limb| *limb != 0)?;
        Some(32 * limb as i32 + 31 - self.0[limb].leading_zeros() as i32)
    }
}

/// A binary format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    mantissa: i32,
    exponent: i32,
}

pub(crate) const F32: Format = Format { mantissa: 23, exponent: 8 };
pub(crate) const F64: Format = Format { mantissa: 52, exponent: 11 };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Returns the sign, the mantissa, and the exponent of its lowest bit. Finite numbers only.
    fn parts(self, bits: u64) -> (bool, u64, i32) {
        let fraction = bits & ((1 << self.mantissa) - 1);
        let field = (bits >> self.mantissa) as i32 & ((1 << self.exponent) - 1);
        let negative = bits >> (self.mantissa + self.exponent) & 1 == 1;
        let hidden = u64::from(field > 0) << self.mantissa;
        (negative, fraction | hidden, field.max(1) - self.bias() - self.mantissa)
    }

    fn round(self, negative: bool, value: &Fixed) -> u64 {
        let sign = u64::from(negative) << (self.mantissa + self.exponent);
        let Some(top) = value.top() else { return sign };
        let lowest = (1 - self.bias() - self.mantissa) - LEAST;
        // The lowest bit of a result of this size.
        let last = (top - self.mantissa).max(lowest);
        let mut mantissa = 0_u64;
        for at in (last..=top).rev() {
            mantissa = mantissa << 1 | u64::from(value.bit(at));
        }
        let half = value.bit(last - 1);
        let rest = (0..last - 1).any(|at| value.bit(at));
        mantissa += u64::from(half && (rest || mantissa & 1 == 1));
        // A mantissa that rounds up to the next power of two carries into the exponent.
        let field = (last - lowest) as u64;
        let bits =
            if mantissa >> self.mantissa == 0 { mantissa } else { (field << self.mantissa) + mantissa };
        let infinity = ((1_u64 << self.exponent) - 1) << self.mantissa;
        sign | bits.min(infinity)
    }

    /// Computes `a · b + c`, rounded once to nearest, ties to even. Finite operands only; a zero sum is +0,
    /// unless both are -0.
    pub(crate) fn fma(self, a: u64, b: u64, c: u64) -> u64 {
        let ((sa, ma, ea), (sb, mb, eb), (sc, mc, ec)) = (self.parts(a), self.parts(b), self.parts(c));
        let product = Fixed::of(u128::from(ma) * u128::from(mb), ea + eb);
        let third = Fixed::of(u128::from(mc), ec);
        let sp = sa != sb;
        if sp == sc {
            return self.round(sp, &product.add(&third));
        }
        match product.compare(&third) {
            Ordering::Greater => self.round(sp, &product.sub(&third)),
            Ordering::Less => self.round(sc, &third.sub(&product)),
            Ordering::Equal => 0,
        }
    }

    /// Returns the number 1.
    pub(crate) fn one(self) -> u64 {
        (self.bias() as u64) << self.mantissa
    }

    /// Whether `q` is the nearest to `a / b`: no neighbour has a smaller `|a - q·b|`. Positive numbers only.
    pub(crate) fn nearest_quotient(self, a: u64, b: u64, q: u64) -> bool {
        let (_, ma, ea) = self.parts(a);
        let (_, mb, eb) = self.parts(b);
        let dividend = Fixed::of(u128::from(ma), ea);
        let distance = |q: u64| {
            let (_, mq, eq) = self.parts(q);
            let product = Fixed::of(u128::from(mq) * u128::from(mb), eq + eb);
            match product.compare(&dividend) {
                Ordering::Less => dividend.sub(&product),
                _ => product.sub(&dividend),
            }
        };
        let own = distance(q);
        let closer = |other: u64| distance(other).compare(&own) == Ordering::Less;
        !(closer(q + 1) || q > 0 && closer(q - 1))
    }

    /// Whether `q` is the nearest to the root of `a`: `a` is between the squares of the midpoints to its
    /// neighbours.
    pub(crate) fn nearest_root(self, a: u64, q: u64) -> bool {
        let (_, ma, ea) = self.parts(a);
        let (_, mq, eq) = self.parts(q);
        // (q ± ulp/2)² = (2·mq ± 1)² · 2^(2·eq - 2)
        let square = |x: u64| Fixed::of(u128::from(x) * u128::from(x), 2 * eq - 2);
        let value = Fixed::of(u128::from(ma), ea);
        square(2 * mq - 1).compare(&value) != Ordering::Greater
            && value.compare(&square(2 * mq + 1)) != Ordering::Greater
    }
}

#[test]
fn the_reference_knows_simple_cases() {
    let bits = |x: f64| x.to_bits();
    assert_eq!(F64.fma(bits(3.0), bits(4.0), bits(5.0)), bits(17.0));
    assert_eq!(F64.fma(bits(1.0), bits(1.0), bits(-1.0)), 0);
    assert_eq!(F64.fma(bits(1e308), bits(10.0), bits(0.0)), bits(f64::INFINITY));
    assert_eq!(F64.fma(1, bits(0.5), 0), 0, "half of the least is a tie to even: zero");
    assert_eq!(F64.fma(1, bits(0.75), 0), 1);
    assert_eq!(F32.fma(F32.one(), F32.one(), u64::from(1e-10_f32.to_bits())), F32.one());
    assert!(F32.nearest_quotient(F32.one(), F32.one(), F32.one()));
    assert!(!F32.nearest_quotient(F32.one(), F32.one(), F32.one() + 1));
    assert!(F64.nearest_root(bits(2.0), bits(2.0_f64.sqrt())) && !F64.nearest_root(bits(2.0), bits(1.5)));
}

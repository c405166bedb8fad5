//! Integer arithmetic, by the definitions of the PTX ISA.

use super::super::op::{Int1, Int3};

/// An integer of a register.
pub(crate) trait Word: Copy + Ord {
    const BITS: u32;
    const SIGNED: bool;
    /// Returns the low bits of a register.
    fn of(bits: u64) -> Self;
    /// Returns the value, zero-extended.
    fn bits(self) -> u64;
    /// Returns the value as a number.
    fn wide(self) -> i128;
    fn from_wide(value: i128) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Division; gives 0 for a divisor of 0, which the caller has refused for active lanes.
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    /// Shifts by less than the width.
    fn shl(self, amount: u32) -> Self;
    fn shr(self, amount: u32) -> Self;
}

macro_rules! words {
    ($($ty:ident $unsigned:ident $signed:literal),*) => {$(
        impl Word for $ty {
            const BITS: u32 = $ty::BITS;
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn of(bits: u64) -> Self { bits as $ty }
            #[inline(always)]
            fn bits(self) -> u64 { u64::from(self as $unsigned) }
            #[inline(always)]
            fn wide(self) -> i128 { i128::from(self) }
            #[inline(always)]
            fn from_wide(value: i128) -> Self { value as $ty }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn div(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_div(other) } }
            #[inline(always)]
            fn rem(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_rem(other) } }
            #[inline(always)]
            fn shl(self, amount: u32) -> Self { self.wrapping_shl(amount) }
            #[inline(always)]
            fn shr(self, amount: u32) -> Self { self.wrapping_shr(amount) }
        }
    )*};
}
words!(u16 u16 false, u32 u32 false, u64 u64 false, i16 u16 true, i32 u32 true, i64 u64 true);

/// Shift amounts are unsigned 32-bit numbers; beyond the width, all bits are shifted out.
#[inline(always)]
pub(crate) fn shl<T: Word>(a: T, amount: u64) -> T {
    if amount < u64::from(T::BITS) { a.shl(amount as u32) } else { T::of(0) }
}

/// Shifts right, keeping the sign.
#[inline(always)]
pub(crate) fn shr<T: Word>(a: T, amount: u64) -> T {
    if amount < u64::from(T::BITS) {
        a.shr(amount as u32)
    } else if T::SIGNED {
        a.shr(T::BITS - 1)
    } else {
        T::of(0)
    }
}

/// Returns the upper half of the product.
#[inline(always)]
pub(crate) fn mul_hi<T: Word>(a: T, b: T) -> T {
    // For u64, the product of two values needs 128 unsigned bits.
    if T::SIGNED || T::BITS < 64 {
        T::from_wide((a.wide() * b.wide()) >> T::BITS)
    } else {
        T::of(((u128::from(a.bits()) * u128::from(b.bits())) >> 64) as u64)
    }
}

/// Calls `$run` with a closure over two words for each operation.
macro_rules! int2 {
    ($op:expr, $ty:ident, $run:expr) => {{
        use $crate::ptx::run::int::{self, Word};
        type T = $ty;
        #[inline(always)]
        fn word(bits: u64) -> T {
            T::of(bits)
        }
        match $op {
            Int2::Add => $run(|a: u64, b: u64| Word::add(word(a), word(b)).bits()),
            Int2::Sub => $run(|a: u64, b: u64| Word::sub(word(a), word(b)).bits()),
            Int2::MulLo => $run(|a: u64, b: u64| Word::mul(word(a), word(b)).bits()),
            Int2::MulHi => $run(|a: u64, b: u64| int::mul_hi(word(a), word(b)).bits()),
            Int2::Div => $run(|a: u64, b: u64| Word::div(word(a), word(b)).bits()),
            Int2::Rem => $run(|a: u64, b: u64| Word::rem(word(a), word(b)).bits()),
            Int2::Min => $run(|a: u64, b: u64| word(a).min(word(b)).bits()),
            Int2::Max => $run(|a: u64, b: u64| word(a).max(word(b)).bits()),
            Int2::And => $run(|a: u64, b: u64| a & b),
            Int2::Or => $run(|a: u64, b: u64| a | b),
            Int2::Xor => $run(|a: u64, b: u64| a ^ b),
            Int2::Shl => $run(|a: u64, b: u64| int::shl(word(a), b).bits()),
            Int2::Shr => $run(|a: u64, b: u64| int::shr(word(a), b).bits()),
        }
    }};
}
pub(crate) use int2;

/// Computes an operation on one integer.
pub(crate) fn int1<T: Word>(op: Int1, bits: u64) -> u64 {
    let a = T::of(bits);
    let spare = 64 - T::BITS;
    match op {
        Int1::Neg => T::of(0).sub(a).bits(),
        Int1::Abs => if a < T::of(0) { T::of(0).sub(a) } else { a }.bits(),
        Int1::Not => T::of(!bits).bits(),
        Int1::LogicalNot => u64::from(a.bits() == 0),
        Int1::Reverse => a.bits().reverse_bits() >> spare,
        Int1::LeadingZeros => u64::from(a.bits().leading_zeros() - spare),
        Int1::CountOnes => u64::from(a.bits().count_ones()),
    }
}

/// Computes an operation on three integers.
pub(crate) fn int3<T: Word>(op: Int3, a: u64, b: u64, c: u64) -> u64 {
    let (a, b, c) = (T::of(a), T::of(b), T::of(c));
    match op {
        Int3::MadLo => a.mul(b).add(c),
        Int3::MadHi => mul_hi(a, b).add(c),
        Int3::SumOfDifferences => c.add(if a < b { b.sub(a) } else { a.sub(b) }),
    }
    .bits()
}

/// Computes a double-width product plus a sum.
#[inline(always)]
pub(crate) fn wide<T: Word>(a: u64, b: u64, c: u64) -> u64 {
    let sum = (T::of(a).wide() * T::of(b).wide()).wrapping_add(i128::from(c));
    // Twice 16 bits is 32.
    sum as u64 & (u64::MAX >> (64 - 2 * T::BITS.min(32)))
}

/// bfe.
pub(crate) fn extract<T: Word>(a: u64, b: u64, c: u64) -> u64 {
    let (at, len) = ((b & 0xff) as u32, (c & 0xff) as u32);
    let value = T::of(a);
    if len == 0 {
        return 0;
    }
    let top = (at + len - 1).min(T::BITS - 1);
    let sign = T::SIGNED && value.bits() >> top & 1 == 1;
    let field = if at < T::BITS { value.bits() >> at } else { 0 };
    let taken = len.min(T::BITS.saturating_sub(at));
    let ones = if taken == 0 { 0 } else { u64::MAX >> (64 - taken) };
    T::of(field & ones | if sign { !ones } else { 0 }).bits()
}

/// bfi.
pub(crate) fn insert<T: Word>(a: u64, b: u64, c: u64, len: u64) -> u64 {
    let (at, len) = ((c & 0xff) as u32, (len & 0xff) as u32);
    let mut result = T::of(b).bits();
    for i in 0..len {
        if at + i < T::BITS {
            let bit = if i < 64 { a >> i & 1 } else { 0 };
            result = result & !(1 << (at + i)) | bit << (at + i);
        }
    }
    result
}

/// shf.
pub(crate) fn funnel(left: bool, wrap: bool, a: u64, b: u64, c: u64) -> u64 {
    let amount = if wrap { c & 31 } else { c.min(32) };
    let both = b << 32 | (a & 0xffff_ffff);
    let shifted = if left { u128::from(both) << amount >> 32 } else { u128::from(both) >> amount };
    shifted as u64 & 0xffff_ffff
}

/// lop3.
pub(crate) fn lop3(table: u8, a: u64, b: u64, c: u64) -> u64 {
    let mut result = 0;
    for case in 0..8 {
        if table >> case & 1 == 1 {
            let pick = |x: u64, bit: u32| if case >> bit & 1 == 1 { x } else { !x };
            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    result & 0xffff_ffff
}

/// prmt, without a mode.
pub(crate) fn permute(a: u64, b: u64, c: u64) -> u64 {
    let bytes = (b << 32 | (a & 0xffff_ffff)).to_le_bytes();
    let mut result = [0; 4];
    for (i, to) in result.iter_mut().enumerate() {
        let choice = c >> (4 * i) & 15;
        let byte = bytes[choice as usize & 7];
        *to = if choice & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
    }
    u64::from(u32::from_le_bytes(result))
}

/// Calls `$run` with a closure over two words for each comparison. Integers have no unordered ones.
macro_rules! compare {
    ($op:expr, $of:expr, $nan:expr, $run:expr) => {{
        let (of, nan) = ($of, $nan);
        match $op {
            Compare::Eq => $run(|a, b| of(a) == of(b)),
            Compare::Ne => $run(|a, b| of(a) != of(b) && !nan(a, b)),
            Compare::Lt => $run(|a, b| of(a) < of(b)),
            Compare::Le => $run(|a, b| of(a) <= of(b)),
            Compare::Gt => $run(|a, b| of(a) > of(b)),
            Compare::Ge => $run(|a, b| of(a) >= of(b)),
            Compare::Equ => $run(|a, b| of(a) == of(b) || nan(a, b)),
            Compare::Neu => $run(|a, b| of(a) != of(b)),
            Compare::Ltu => $run(|a, b| of(a) < of(b) || nan(a, b)),
            Compare::Leu => $run(|a, b| of(a) <= of(b) || nan(a, b)),
            Compare::Gtu => $run(|a, b| of(a) > of(b) || nan(a, b)),
            Compare::Geu => $run(|a, b| of(a) >= of(b) || nan(a, b)),
            Compare::Num => $run(|a, b| !nan(a, b)),
            Compare::Nan => $run(|a, b| nan(a, b)),
        }
    }};
}
pub(crate) use compare;

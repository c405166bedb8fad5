//! Partial sums as bytes: little-endian, versioned, exactly one encoding per sum.
//!
//! ```text
//! sum      "LXSM"  version u16  flags u16 (1 NaN, 2 +∞, 4 −∞)  67 limbs u32  last limb i64         284 bytes
//! moments  "LXMM"  version u16  0 u16  count u64  non-zeros u64  lowest f64  highest f64  two sums 608 bytes
//! ```

use super::accumulator::{ExactSum, LIMBS, SUBNORMAL};
use super::moments::ExactMoments;
use crate::Error;
use crate::require;

/// Length in bytes of an encoded [`ExactSum`].
pub const SUM_BYTES: usize = 8 + 4 * (LIMBS - 1) + 8;
/// Length in bytes of encoded [`ExactMoments`].
pub const MOMENTS_BYTES: usize = 40 + 2 * SUM_BYTES;

const SUM_MAGIC: [u8; 4] = *b"LXSM";
const MOMENTS_MAGIC: [u8; 4] = *b"LXMM";
const VERSION: u16 = 1;
/// The last limb of a sum of 2⁶⁴ numbers is within ± this.
const LAST_LIMB: i64 = 1 << 33;

const SUM: &str = "bytes of an exact sum";
const MOMENTS: &str = "bytes of exact moments";

impl ExactSum {
    /// Encodes the sum; equal sums give equal bytes.
    pub fn to_bytes(&self) -> [u8; SUM_BYTES] {
        let mut bytes = [0; SUM_BYTES];
        let flags = u16::from(self.nan) | u16::from(self.infinite[0]) << 1 | u16::from(self.infinite[1]) << 2;
        put(&mut bytes, 0, SUM_MAGIC);
        put(&mut bytes, 4, VERSION.to_le_bytes());
        put(&mut bytes, 6, flags.to_le_bytes());
        let limbs = self.digits();
        for (k, limb) in limbs[..LIMBS - 1].iter().enumerate() {
            put(&mut bytes, 8 + 4 * k, (*limb as u32).to_le_bytes());
        }
        put(&mut bytes, SUM_BYTES - 8, limbs[LIMBS - 1].to_le_bytes());
        bytes
    }

    /// Decodes a sum that [`to_bytes`](ExactSum::to_bytes) encoded.
    ///
    /// Errors: a wrong length, magic number or version; unknown flags; bits below binary64's smallest
    /// subnormal; a sum that 2⁶⁴ numbers cannot reach. Each error names the byte.
    pub fn from_bytes(bytes: &[u8]) -> Result<ExactSum, Error> {
        header(SUM, bytes, SUM_BYTES, SUM_MAGIC)?;
        let flags = u16::from_le_bytes(get(bytes, 6));
        if flags > 7 {
            return Err(wrong(SUM, 6, "flags of version 1: 0 to 7", flags.into()));
        }
        let mut limbs = [0; LIMBS];
        for (k, limb) in limbs[..LIMBS - 1].iter_mut().enumerate() {
            *limb = u32::from_le_bytes(get(bytes, 8 + 4 * k)).into();
        }
        if limbs[0] % (1 << SUBNORMAL) != 0 {
            return Err(wrong(SUM, 8, "no bit below the smallest subnormal", limbs[0] as f64));
        }
        let last = i64::from_le_bytes(get(bytes, SUM_BYTES - 8));
        if !(-LAST_LIMB..=LAST_LIMB).contains(&last) {
            return Err(wrong(SUM, SUM_BYTES - 8, "the sum of at most 2^64 values", last as f64));
        }
        limbs[LIMBS - 1] = last;
        let mut sum = ExactSum::from_limbs(limbs);
        (sum.nan, sum.infinite) = (flags & 1 != 0, [flags & 2 != 0, flags & 4 != 0]);
        Ok(sum)
    }
}

impl ExactMoments {
    /// Encodes the moments; equal moments give equal bytes.
    pub fn to_bytes(&self) -> [u8; MOMENTS_BYTES] {
        let mut bytes = [0; MOMENTS_BYTES];
        put(&mut bytes, 0, MOMENTS_MAGIC);
        put(&mut bytes, 4, VERSION.to_le_bytes());
        put(&mut bytes, 8, self.count.to_le_bytes());
        put(&mut bytes, 16, self.nonzero.to_le_bytes());
        put(&mut bytes, 24, self.low.to_bits().to_le_bytes());
        put(&mut bytes, 32, self.high.to_bits().to_le_bytes());
        put(&mut bytes, 40, self.sum.to_bytes());
        put(&mut bytes, 40 + SUM_BYTES, self.squares.to_bytes());
        bytes
    }

    /// Decodes moments that [`to_bytes`](ExactMoments::to_bytes) encoded.
    ///
    /// Errors: as for [`ExactSum::from_bytes`]; more non-zeros than values; extremes that no set of values
    /// can have.
    pub fn from_bytes(bytes: &[u8]) -> Result<ExactMoments, Error> {
        header(MOMENTS, bytes, MOMENTS_BYTES, MOMENTS_MAGIC)?;
        let reserved = u16::from_le_bytes(get(bytes, 6));
        if reserved != 0 {
            return Err(wrong(MOMENTS, 6, "0 in version 1", reserved.into()));
        }
        let number = |at| f64::from_bits(u64::from_le_bytes(get(bytes, at)));
        let moments = ExactMoments {
            count: u64::from_le_bytes(get(bytes, 8)),
            nonzero: u64::from_le_bytes(get(bytes, 16)),
            low: number(24),
            high: number(32),
            sum: ExactSum::from_bytes(&bytes[40..40 + SUM_BYTES])?,
            squares: ExactSum::from_bytes(&bytes[40 + SUM_BYTES..])?,
        };
        if moments.nonzero > moments.count {
            return Err(wrong(MOMENTS, 16, "at most as many non-zeros as values", moments.nonzero as f64));
        }
        let none = moments.low == f64::INFINITY && moments.high == f64::NEG_INFINITY;
        // NaN fails every comparison.
        if !(none || moments.count > 0 && moments.low <= moments.high) {
            return Err(wrong(MOMENTS, 24, "a minimum that is at most the maximum", moments.low));
        }
        Ok(moments)
    }
}

fn header(argument: &'static str, bytes: &[u8], length: usize, magic: [u8; 4]) -> Result<(), Error> {
    require::length(argument, length, "the length of version 1", bytes.len())?;
    if let Some(index) = (0..4).find(|i| bytes[*i] != magic[*i]) {
        return Err(wrong(
            argument,
            index,
            "the magic number LXSM of a sum or LXMM of moments",
            bytes[index].into(),
        ));
    }
    match u16::from_le_bytes(get(bytes, 4)) {
        VERSION => Ok(()),
        other => Err(wrong(argument, 4, "version 1", other.into())),
    }
}

fn wrong(argument: &'static str, index: usize, expected: &'static str, got: f64) -> Error {
    Error::Value { argument, index: Some(index), expected, got }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|i| bytes[at + i])
}

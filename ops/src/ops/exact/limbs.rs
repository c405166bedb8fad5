//! Exact sums as 64-bit integers, which a training engine's own all-reduce adds without rounding, in any
//! order.

use super::{Counts, Error, ExactMoments, ExactSum, PolicyTotals, SUM_BYTES, sum};
use lockstep_core::aggregate::exact::MOMENTS_BYTES;
use lockstep_core::require;

/// Totals that ranks can merge with one all-reduce of integers by sum and one of floats by maximum.
///
/// Each rank calls [`to_limbs`](Limbs::to_limbs). The engine adds the limbs of all ranks element-wise and
/// takes the maximum of each of the two numbers (`all_reduce` of torch.distributed, `MPI_Allreduce`).
/// [`from_limbs`](Limbs::from_limbs) propagates the carries; the result equals that of `merge`, bit for bit.
/// A limb is below 2³², so the sum over up to 2³¹ ranks is below 2⁶³.
///
/// ```
/// use lockstep_ops::{PolicyTotals, ops::exact::Limbs};
/// let (mine, yours) = (PolicyTotals::default(), PolicyTotals::default());
/// let ((mut limbs, maxima), (others, _)) = (mine.to_limbs(), yours.to_limbs());
/// limbs.iter_mut().zip(others).for_each(|(limb, other)| *limb += other);
/// assert_eq!(PolicyTotals::from_limbs(&limbs, maxima)?, mine);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub trait Limbs: Sized {
    /// The number of integers to add.
    const LIMBS: usize;

    /// Returns the integers to add, `[LIMBS]`, and the two numbers to take the maximum of: −∞ if absent.
    fn to_limbs(&self) -> (Vec<i64>, [f64; 2]);

    /// Decodes the merged totals from the summed limbs and the maxima.
    ///
    /// Errors: a wrong number of limbs; a limb (index) that no sum over at most 2³¹ ranks can have; maxima
    /// that are NaN or not valid extremes; an invalid sum.
    fn from_limbs(limbs: &[i64], maxima: [f64; 2]) -> Result<Self, Error>;
}

impl Limbs for ExactSum {
    const LIMBS: usize = OF_SUM;

    fn to_limbs(&self) -> (Vec<i64>, [f64; 2]) {
        (of_sum(&self.to_bytes()).collect(), [f64::NEG_INFINITY; 2])
    }

    fn from_limbs(limbs: &[i64], _: [f64; 2]) -> Result<Self, Error> {
        Reader::new(limbs, Self::LIMBS)?.sum()
    }
}

impl Limbs for ExactMoments {
    const LIMBS: usize = 2 + 2 * OF_SUM;

    fn to_limbs(&self) -> (Vec<i64>, [f64; 2]) {
        let bytes = self.to_bytes();
        let counts = [8, 16].map(|at| i64::from_le_bytes(word(&bytes[at..])));
        let sums = bytes[40..].chunks(SUM_BYTES).flat_map(of_sum);
        let [low, high] = [24, 32].map(|at| f64::from_le_bytes(word(&bytes[at..])));
        (counts.into_iter().chain(sums).collect(), [-low, high])
    }

    fn from_limbs(limbs: &[i64], [neg_low, high]: [f64; 2]) -> Result<Self, Error> {
        let mut limbs = Reader::new(limbs, Self::LIMBS)?;
        let mut bytes = ExactMoments::NONE.to_bytes()[..8].to_vec();
        for _ in 0..2 {
            bytes.extend(limbs.count()?.to_le_bytes());
        }
        [-neg_low, high].iter().for_each(|extreme| bytes.extend(extreme.to_le_bytes()));
        for _ in 0..2 {
            bytes.extend(limbs.sum()?.to_bytes());
        }
        debug_assert_eq!(bytes.len(), MOMENTS_BYTES);
        Ok(ExactMoments::from_bytes(&bytes)?)
    }
}

impl Limbs for PolicyTotals {
    /// Three counts, the numbers of ranks without a loss and without metrics, and the sums.
    const LIMBS: usize = 3 + 2 + (1 + sum::SUMS) * OF_SUM;

    fn to_limbs(&self) -> (Vec<i64>, [f64; 2]) {
        let Counts { tokens, nonempty, sequences } = self.counts;
        let lacking = [self.loss.is_none(), self.sums.is_none()].map(u64::from);
        let mut limbs: Vec<i64> = Vec::with_capacity(Self::LIMBS);
        limbs.extend([tokens, nonempty, sequences].iter().chain(&lacking).map(|count| count.cast_signed()));
        let none = [ExactSum::ZERO; sum::SUMS];
        let loss = self.loss.unwrap_or_default();
        for sum in [loss].iter().chain(self.sums.as_deref().unwrap_or(&none)) {
            limbs.extend(of_sum(&sum.to_bytes()));
        }
        (limbs, self.maxima.map(f64::from))
    }

    fn from_limbs(limbs: &[i64], maxima: [f64; 2]) -> Result<Self, Error> {
        let mut limbs = Reader::new(limbs, Self::LIMBS)?;
        let counts = Counts { tokens: limbs.count()?, nonempty: limbs.count()?, sequences: limbs.count()? };
        let (no_loss, no_sums) = (limbs.count()? > 0, limbs.count()? > 0);
        let loss = limbs.sum()?;
        let sums = (0..sum::SUMS).map(|_| limbs.sum()).collect::<Result<Vec<_>, _>>()?;
        let narrow = maxima.map(|maximum| maximum as f32);
        if let Some(index) = (0..2).find(|k| f64::from(narrow[*k]) != maxima[*k]) {
            let expected = "a number that is exact in binary32";
            return Err(require::value("maxima", Some(index), expected, maxima[index]).into());
        }
        let (loss, sums) = ((!no_loss).then_some(loss), (!no_sums).then_some(sums));
        Ok(PolicyTotals { counts, loss, sums, maxima: narrow })
    }
}

/// 32-bit limbs of a sum; the last one holds the remaining high bits.
const DIGITS: usize = (SUM_BYTES - 8 - 8) / 4 + 1;
/// The limbs above, and the numbers of added sums that had a NaN, +∞ or −∞.
const OF_SUM: usize = DIGITS + 3;
const _: () = assert!(8 + 4 * (DIGITS - 1) + 8 == SUM_BYTES);

fn word(bytes: &[u8]) -> [u8; 8] {
    std::array::from_fn(|i| bytes[i])
}

/// The limbs of a sum from its bytes, which are in the unique normal form.
fn of_sum(bytes: &[u8]) -> impl Iterator<Item = i64> {
    let (low, last) = bytes[8..].split_at(4 * (DIGITS - 1));
    let low =
        low.chunks_exact(4).map(|limb| i64::from(u32::from_le_bytes([limb[0], limb[1], limb[2], limb[3]])));
    let flags = bytes[6];
    low.chain([i64::from_le_bytes(word(last))]).chain((0..3).map(move |flag| i64::from(flags >> flag & 1)))
}

/// Reads limbs one by one.
struct Reader<'a> {
    limbs: &'a [i64],
    next: usize,
}

impl<'a> Reader<'a> {
    fn new(limbs: &'a [i64], expected: usize) -> Result<Self, Error> {
        require::length("limbs", expected, "the number of limbs of these totals", limbs.len())?;
        Ok(Reader { limbs, next: 0 })
    }

    fn take(&mut self) -> i64 {
        self.next += 1;
        self.limbs[self.next - 1]
    }

    /// The error for the limb that was read last.
    fn wrong(&self) -> Error {
        let (index, expected) = (self.next - 1, "a sum of limbs over at most 2^31 ranks");
        let got = self.limbs[index] as f64;
        lockstep_core::require::value("limbs", Some(index), expected, got).into()
    }

    fn count(&mut self) -> Result<u64, Error> {
        u64::try_from(self.take()).map_err(|_| self.wrong())
    }

    /// Reads a sum and propagates its carries.
    fn sum(&mut self) -> Result<ExactSum, Error> {
        let mut bytes = ExactSum::ZERO.to_bytes();
        let (mut carry, mut at) = (0, 8);
        for _ in 1..DIGITS {
            // Only the last limb of a rank can be negative.
            let limb = Some(self.take()).filter(|limb| *limb >= 0).and_then(|limb| limb.checked_add(carry));
            let limb = limb.ok_or_else(|| self.wrong())?;
            bytes[at..at + 4].copy_from_slice(&(limb as u32).to_le_bytes());
            (carry, at) = (limb >> 32, at + 4);
        }
        let last = self.take().checked_add(carry).ok_or_else(|| self.wrong())?;
        bytes[at..].copy_from_slice(&last.to_le_bytes());
        for flag in 0..3 {
            bytes[6] |= u8::from(self.count()? > 0) << flag;
        }
        Ok(ExactSum::from_bytes(&bytes)?)
    }
}

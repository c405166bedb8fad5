//! The n-th largest key of a batch in one pass, where a GPU takes eleven passes of `digit_counts` and
//! `narrow_digits`.
//!
//! Both are exact, so they agree whatever each looks at (docs/decisions/0008-fewer-passes.md). A sample of
//! the keys picks a band in which the wanted key should lie; the pass counts the keys above the band and
//! keeps those inside. If the sample misled, the band is widened to all candidates.

use crate::{Cpu, threads};
use std::cmp::Ordering;
use std::sync::Mutex;

/// The n-th largest key, as found by [`Cpu::nth_largest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nth {
    /// The key; `u32::MAX` if nothing is wanted or there is no candidate.
    pub bound: u32,
    /// How many of the keys equal to `bound` are among the n largest.
    pub wanted: u32,
    /// Indices of the keys equal to `bound`, ascending.
    pub ties: Vec<u32>,
    /// Indices of the larger keys, unordered; `None` if the search only counted some of them.
    pub larger: Option<Vec<u32>>,
}

/// Upper bound on the number of keys in a sample.
const SAMPLE: usize = 8192;
/// A small batch samples one key in this many.
const ONE_IN: usize = 16;
/// Batches of at most this many keys are not sampled.
const FEW: usize = 2048;
/// Keys per task.
const TASK: usize = 32 * 1024;
/// Keys examined together.
const CHUNK: usize = 128;

/// Keys from `low` to `high` with their indices.
#[derive(Default)]
pub(crate) struct Band {
    above: usize,
    /// The key in the upper 32 bits, its index in the lower.
    inside: Vec<u64>,
}

impl Cpu {
    /// Finds the n-th largest of `keys`, or the smallest candidate if there are fewer than n. A key of 0 is
    /// no candidate. There must be fewer than 2³² keys.
    pub fn nth_largest(&self, keys: &[u32], n: u32) -> Nth {
        let n = n as usize;
        let likely = if n == 0 { None } else { likely(keys, n) };
        let found = likely.map(|(low, high)| self.band(keys, low, high));
        let (mut band, rank) = match found {
            Some(band) if band.above < n && n - band.above <= band.inside.len() => {
                let rank = n - band.above;
                (band, rank)
            }
            _ => {
                let all = self.band(keys, 1, u32::MAX);
                let rank = n.min(all.inside.len());
                (all, rank)
            }
        };
        let bound = match rank {
            0 => u32::MAX,
            rank => {
                let (_, nth, _) =
                    band.inside.select_nth_unstable_by(rank - 1, |a, b| (b >> 32).cmp(&(a >> 32)));
                (*nth >> 32) as u32
            }
        };
        let (mut ties, mut larger) = (Vec::new(), Vec::new());
        for entry in band.inside {
            match ((entry >> 32) as u32).cmp(&bound) {
                Ordering::Less => {}
                Ordering::Equal => ties.push(entry as u32),
                Ordering::Greater => larger.push(entry as u32),
            }
        }
        ties.sort_unstable();
        let wanted = rank.saturating_sub(larger.len()) as u32;
        Nth { bound, wanted, ties, larger: (band.above == 0).then_some(larger) }
    }

    fn band(&self, keys: &[u32], low: u32, high: u32) -> Band {
        let whole = Mutex::new(Band::default());
        threads::each(self.pool(), keys.len().div_ceil(TASK), &|task| {
            let start = task * TASK;
            let part = self.scan(&keys[start..keys.len().min(start + TASK)], start, low, high);
            // A lock is poisoned only by a panic, which ends this call too.
            if let Ok(mut whole) = whole.lock() {
                whole.above += part.above;
                whole.inside.extend(part.inside);
            }
        });
        whole.into_inner().unwrap_or_default()
    }
}

/// Distance between the sampled keys of `len` keys. Odd, so that rows whose length is a power of two are not
/// always sampled at the same places.
fn stride(len: usize) -> usize {
    (len / (len / ONE_IN).clamp(1, SAMPLE)) | 1
}

/// Returns bounds between which the n-th largest key should lie, or `None` for a small batch.
fn likely(keys: &[u32], n: usize) -> Option<(u32, u32)> {
    if keys.len() <= FEW {
        return None;
    }
    let stride = stride(keys.len());
    let mut sample: Vec<u32> = keys.iter().step_by(stride).copied().collect();
    let at = n as f64 * sample.len() as f64 / keys.len() as f64;
    // Four standard deviations of a rank in a sample, plus a constant for small samples.
    let slack = 4.0 * at.sqrt() + 4.0;
    let mut descending = |rank: f64, outside: u32| {
        if !(0.0..sample.len() as f64).contains(&rank) {
            return outside;
        }
        *sample.select_nth_unstable_by(rank as usize, |a, b| b.cmp(a)).1
    };
    // The n largest of the sample are themselves n keys: the answer is not below the last of them.
    let (high, low) = (descending(at - slack, u32::MAX), descending((at + slack).min((n - 1) as f64), 1));
    let low = low.max(1);
    // A sample that ends in keys of 0 gives no band.
    (low <= high).then_some((low, high))
}

/// Scans `keys`, the first of which has index `first`, for the band from `low` to `high`; `low` is at most
/// `high`.
#[inline(always)]
pub(crate) fn scan(keys: &[u32], first: usize, low: u32, high: u32) -> Band {
    let mut band = Band::default();
    // One comparison: a key below `low` wraps around.
    let within = |key: u32| key.wrapping_sub(low) <= high - low;
    let entry = |key: u32, at: usize| (u64::from(key) << 32) | (first + at) as u64;
    let (chunks, rest) = keys.as_chunks::<CHUNK>();
    for (c, chunk) in chunks.iter().enumerate() {
        // One scalar each, over all lanes: in nested loops LLVM vectorises the outer one, with gathers.
        let (mut above, mut any) = (0, 0);
        for key in chunk {
            above += u32::from(*key > high);
            any |= u32::from(within(*key));
        }
        band.above += above as usize;
        if any == 0 {
            continue;
        }
        let mut flags = [0; CHUNK];
        for l in 0..CHUNK {
            flags[l] = u8::from(within(chunk[l]));
        }
        for (w, word) in flags.as_chunks::<8>().0.iter().enumerate() {
            let mut word = u64::from_le_bytes(*word);
            while word != 0 {
                let l = w * 8 + word.trailing_zeros() as usize / 8;
                band.inside.push(entry(chunk[l], c * CHUNK + l));
                word &= word - 1;
            }
        }
    }
    for (l, key) in rest.iter().enumerate() {
        band.above += usize::from(*key > high);
        if within(*key) {
            band.inside.push(entry(*key, chunks.len() * CHUNK + l));
        }
    }
    band
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimdLevel;

    fn naive(keys: &[u32], n: u32) -> Nth {
        let mut sorted: Vec<u32> = keys.iter().copied().filter(|key| *key != 0).collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let n = (n as usize).min(sorted.len());
        let bound = if n == 0 { u32::MAX } else { sorted[n - 1] };
        let wanted = sorted[..n].iter().filter(|key| **key == bound).count() as u32;
        let places =
            |of: &dyn Fn(u32) -> bool| (0..keys.len() as u32).filter(|i| of(keys[*i as usize])).collect();
        Nth { bound, wanted, ties: places(&|key| key == bound), larger: Some(places(&|key| key > bound)) }
    }

    #[test]
    fn agrees_with_sorting() {
        let mut state = 1u32;
        let mut draw = || {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            ((state >> 11) ^ state).wrapping_mul(277_803_737)
        };
        let spread: Vec<u32> = (0..20_003).map(|_| draw()).collect();
        let few: Vec<u32> = (0..17_000).map(|_| draw() % 7).collect();
        // The sample misrepresents the batch.
        let stride = stride(20_000);
        let hidden: Vec<u32> = (0..20_000).map(|i| if i % stride == 0 { 5 } else { draw() | 16 }).collect();
        let rare: Vec<u32> = (0..40_000).map(|i| if i % 9973 == 1 { u32::MAX } else { 0 }).collect();
        let small: Vec<u32> = (0..2500).map(|_| draw()).collect();
        for keys in [spread, small, few, hidden, rare, vec![9; 17_000], vec![3, 0, 3, 1], vec![]] {
            let len = keys.len() as u32;
            for n in [0, 1, 17, len / 5, len.saturating_sub(1), u32::MAX] {
                let expected = naive(&keys, n);
                for (level, threads) in SimdLevel::available().into_iter().zip([2, 1, 3]) {
                    let Ok(cpu) = Cpu::new(level, threads) else { panic!("an available level") };
                    let mut nth = cpu.nth_largest(&keys, n);
                    match &mut nth.larger {
                        Some(places) => places.sort_unstable(),
                        // With many keys, not all are looked at.
                        None if n > 17 => nth.larger.clone_from(&expected.larger),
                        None => {}
                    }
                    assert!(nth == expected, "{level} {threads} {len} {n}");
                }
            }
        }
    }
}

//! Sampling without replacement: distinct numbers below n, every set equally likely.
//!
//! **Formula** (Floyd): for j = n − k, …, n − 1, draw t in 0..=j and take t, or j if t was taken already.
//! O(k²) comparisons, no scratch memory.
//!
//! **Special cases**: k = 0 draws nothing; k > n is an error.

use super::Stream;
use lockstep_core::Error;

/// Fills `out` with distinct numbers of 0..n, in the order drawn. Errors: `out` longer than n.
pub fn distinct(stream: &mut Stream, n: u32, out: &mut [u32]) -> Result<(), Error> {
    let k = out.len();
    if k > n as usize {
        return Err(Error::Length {
            argument: "out",
            expected: n as usize,
            because: "at most one per element",
            got: k,
        });
    }
    for (at, j) in (n - k as u32..n).enumerate() {
        let t = stream.below(u64::from(j) + 1) as u32;
        out[at] = if out[..at].contains(&t) { j } else { t };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::*;

    #[test]
    fn every_set_is_distinct_and_every_element_as_frequent() {
        let mut seen = [0_u32; 6];
        for step in 0..6_000 {
            let mut out = [0; 3];
            distinct(&mut Stream::new(1, Purpose::REPLAY, step, 0), 6, &mut out).unwrap();
            assert!(out[0] != out[1] && out[0] != out[2] && out[1] != out[2], "{out:?}");
            for id in out {
                seen[id as usize] += 1;
            }
        }
        // 3000 each, standard deviation √(6000/4) = 39.
        assert!(seen.iter().all(|n| n.abs_diff(3000) < 195), "{seen:?}");
    }

    #[test]
    fn all_none_and_too_many() {
        let mut s = Stream::new(1, Purpose::REPLAY, 0, 0);
        let mut all = [0; 4];
        distinct(&mut s, 4, &mut all).unwrap();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
        distinct(&mut s, 0, &mut []).unwrap();
        assert!(matches!(
            distinct(&mut s, 3, &mut all),
            Err(Error::Length { argument: "out", expected: 3, got: 4, .. })
        ));
    }
}

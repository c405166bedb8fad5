//! The n-th largest key, digit by digit.

/// Counts a row's keys that share `prefix` above the digit at `shift`, by that digit; 0 is not a key.
pub fn counts(keys: &[u32], prefix: u32, shift: u32) -> [u64; 8] {
    let mut counts = [0; 8];
    let digits = |key: u32| (u64::from(key) >> shift) / 8;
    for key in keys.iter().filter(|key| **key != 0 && digits(**key) == digits(prefix)) {
        counts[((key >> shift) % 8) as usize] += 1;
    }
    counts
}

/// The digit in which the `wanted` largest keys end, and how many keys with that digit are wanted.
pub fn narrow(totals: &[u64], wanted: u64) -> (usize, u64) {
    let mut left = wanted.min(totals.iter().sum());
    if left == 0 {
        return (7, 0);
    }
    for digit in (0..8).rev() {
        if totals[digit] >= left {
            return (digit, left);
        }
        left -= totals[digit];
    }
    (0, 0)
}

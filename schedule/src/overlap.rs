//! Similarity of two token sequences: common suffix, ROUGE-L, edit distance.
//!
//! **Formula**: suffix match = length of the longest suffix of either sequence that occurs anywhere in the
//! other, divided by the shorter length (LATR's code; its paper speaks of a common suffix); ROUGE-L = F₁ of
//! the longest common subsequence, 2 LCS/(|a| + |b|); edit distance = smallest number of insertions,
//! deletions and replacements.
//!
//! **Shapes**: tokens `[|a|]`, `[|b|]`; `row` is scratch of [`scratch`]`(b)` entries. O(|a|·|b|) time.
//!
//! **Special cases**: an empty sequence has no overlap, 0; its edit distance is the other's length.

use lockstep_core::Error;
use lockstep_core::require;

/// Length of the scratch row for a second sequence of length `b`.
pub fn scratch(b: usize) -> usize {
    b + 1
}

/// Length of the longest suffix of `a` that occurs anywhere in `b`.
fn longest_suffix(a: &[u32], b: &[u32]) -> usize {
    let ends_at = |end: usize| a.iter().rev().zip(b[..=end].iter().rev()).take_while(|(x, y)| x == y).count();
    (0..b.len()).map(ends_at).max().unwrap_or(0)
}

/// Computes the suffix match: the longest suffix of either sequence that occurs in the other, divided by the
/// shorter length.
pub fn suffix_match(a: &[u32], b: &[u32]) -> f64 {
    let shorter = a.len().min(b.len());
    if shorter == 0 {
        return 0.0;
    }
    longest_suffix(a, b).max(longest_suffix(b, a)) as f64 / shorter as f64
}

/// Computes the length of the longest common subsequence. Errors: `row` too short.
pub fn longest_common(a: &[u32], b: &[u32], row: &mut [u32]) -> Result<u32, Error> {
    require::room("row", scratch(b.len()), row.len())?;
    let row = &mut row[..scratch(b.len())];
    row.fill(0);
    for x in a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x == y { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    Ok(row[b.len()])
}

/// Computes ROUGE-L, 2 LCS/(|a| + |b|). Errors: `row` too short.
pub fn rouge_l(a: &[u32], b: &[u32], row: &mut [u32]) -> Result<f64, Error> {
    let common = longest_common(a, b, row)?;
    if common == 0 {
        return Ok(0.0);
    }
    Ok(2.0 * f64::from(common) / (a.len() + b.len()) as f64)
}

/// Computes the Levenshtein distance. Errors: `row` too short.
pub fn edit_distance(a: &[u32], b: &[u32], row: &mut [u32]) -> Result<u32, Error> {
    require::room("row", scratch(b.len()), row.len())?;
    for (j, entry) in row[..scratch(b.len())].iter_mut().enumerate() {
        *entry = j as u32;
    }
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i as u32 + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + u32::from(x != y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    Ok(row[b.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_pairs() {
        let (a, b) = ([1, 2, 3, 4, 5, 6], [9, 2, 4, 5, 5, 6]);
        let mut row = [0; 7];
        assert!((suffix_match(&a, &b) - 2.0 / 6.0).abs() < 1e-15);
        // 4, 5 is not a suffix; the suffix 2, 3 of the first occurs inside the second.
        assert_eq!(suffix_match(&[1, 2, 3], &[2, 3, 9]), 2.0 / 3.0);
        assert_eq!(suffix_match(&[2, 3, 9], &[1, 2, 3]), 2.0 / 3.0);
        assert_eq!(longest_common(&a, &b, &mut row), Ok(4));
        assert!((rouge_l(&a, &b, &mut row).unwrap() - 8.0 / 12.0).abs() < 1e-15);
        assert_eq!(edit_distance(&a, &b, &mut row), Ok(3));
        assert_eq!(edit_distance(&[], &b, &mut row), Ok(6));
        assert_eq!((suffix_match(&[], &b), rouge_l(&[], &[], &mut row)), (0.0, Ok(0.0)));
        assert!(matches!(
            rouge_l(&a, &b, &mut [0; 6]),
            Err(Error::Length { argument: "row", expected: 7, .. })
        ));
    }

    #[test]
    fn distances_obey_their_laws() {
        let word = |salt: usize, n: usize| -> [u32; 8] {
            core::array::from_fn(|i| if i < n { ((salt >> i) % 3) as u32 } else { 9 })
        };
        let mut row = [0; 9];
        for salt in 0..300 {
            let (n, m) = (salt % 8 + 1, salt % 5 + 1);
            let (a, b) = (word(salt * 7, n), word(salt * 13 + 5, m));
            let (a, b) = (&a[..n], &b[..m]);
            let lcs = longest_common(a, b, &mut row).unwrap();
            let edits = edit_distance(a, b, &mut row).unwrap();
            assert_eq!(lcs, longest_common(b, a, &mut row).unwrap());
            assert_eq!(edits, edit_distance(b, a, &mut row).unwrap());
            // Replacements save at most half of the insertions and deletions that the LCS leaves.
            let apart = (n + m) as u32 - 2 * lcs;
            assert!(edits <= apart && 2 * edits >= apart, "{a:?} {b:?}");
            assert!(suffix_match(a, b) * a.len().min(b.len()) as f64 <= f64::from(lcs) + 1e-9);
        }
    }
}

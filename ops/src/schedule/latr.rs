//! LATR: capacity and pruning of branches.

use crate::Error;
use lockstep_schedule::latr::{self, Latr};
use lockstep_schedule::overlap;

/// Computes how many of its candidates each row keeps, `[rows]`, within `capacity`; formula:
/// [`lockstep_schedule::latr`].
///
/// ```
/// assert_eq!(lockstep_ops::schedule::latr_fit(&[2, 1, 2], 4)?, [2, 1, 1]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn latr_fit(candidates: &[u32], capacity: u32) -> Result<Vec<u32>, Error> {
    let mut kept = vec![0; candidates.len()];
    latr::fit(candidates, capacity, &mut kept)?;
    Ok(kept)
}

/// Decides whether a branch is pruned because it is too similar to its parent; formula:
/// [`lockstep_schedule::latr`].
///
/// Errors: parameters out of their domain; lengths that differ.
///
/// ```
/// use lockstep_ops::schedule::{Latr, latr_prunes};
/// assert!(latr_prunes(&Latr::default(), &[1, 2, 3, 4], &[9, 2, 3, 4], None)?);
/// assert!(!latr_prunes(&Latr::default(), &[1, 2, 3, 4], &[5, 6, 7, 8], None)?);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn latr_prunes(
    latr: &Latr,
    branch: &[u32],
    parent: &[u32],
    end_of_sequence: Option<u32>,
) -> Result<bool, Error> {
    let mut row = vec![0; overlap::scratch(parent.len())];
    Ok(latr.prunes(branch, parent, end_of_sequence, &mut row)?)
}

/// Computes ROUGE-L, the F₁ score of the longest common subsequence; formula:
/// [`lockstep_schedule::overlap`].
///
/// ```
/// assert_eq!(lockstep_ops::schedule::rouge_l(&[1, 2, 3, 4], &[1, 9, 3, 4])?, 0.75);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn rouge_l(a: &[u32], b: &[u32]) -> Result<f64, Error> {
    Ok(overlap::rouge_l(a, b, &mut vec![0; overlap::scratch(b.len())])?)
}

/// Computes the Levenshtein distance; formula: [`lockstep_schedule::overlap`].
///
/// ```
/// assert_eq!(lockstep_ops::schedule::edit_distance(&[1, 2, 3, 4], &[1, 9, 3])?, 2);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn edit_distance(a: &[u32], b: &[u32]) -> Result<u32, Error> {
    Ok(overlap::edit_distance(a, b, &mut vec![0; overlap::scratch(b.len())])?)
}

//! Sequences over ranks.

use crate::Error;
use lockstep_core::schedule::balance::{self as core, Set};

/// How to distribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Largest differencing, verl's result to the index.
    #[default]
    KarmarkarKarp,
    /// Longest first, to the least loaded.
    Greedy,
    /// Both, and the one with the smaller maximum (differencing when equal): never worse than either.
    Better,
}

/// Who has what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Rank per sequence, `[n]`.
    pub rank: Vec<u32>,
    /// Tokens per rank, `[k]`.
    pub load: Vec<u64>,
}

/// Distributes sequences over `ranks`; with `equal_size` every rank gets as many; formula and ties:
/// [`lockstep_core::schedule::balance`].
///
/// Errors: no rank; more ranks than sequences; a number of ranks that does not divide the sequences, with
/// `equal_size`.
///
/// ```
/// use lockstep_ops::schedule::{Balance, balance};
/// let out = balance(&[8, 7, 6, 5, 4], 2, false, Balance::KarmarkarKarp)?;
/// assert_eq!((out.rank, out.load), (vec![1, 0, 1, 0, 0], vec![16, 14]));
/// assert_eq!(balance(&[8, 7, 6, 5, 4], 2, false, Balance::Greedy)?.load, [17, 13]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn balance(length: &[u32], ranks: usize, equal_size: bool, how: Balance) -> Result<Partition, Error> {
    core::check(length.len(), ranks, equal_size)?;
    let differencing = || {
        let need = core::scratch(length.len(), ranks, equal_size);
        let (mut sets, mut links) = (vec![Set::default(); need.sets], vec![0; need.links]);
        let mut out = Partition { rank: vec![0; length.len()], load: vec![0; ranks] };
        core::karmarkar_karp(length, equal_size, &mut sets, &mut links, &mut out.rank, &mut out.load)?;
        Ok(out)
    };
    let greedy = || {
        let mut out = Partition { rank: vec![0; length.len()], load: vec![0; ranks] };
        core::greedy(length, equal_size, &mut vec![0; length.len()], &mut out.rank, &mut out.load)?;
        Ok(out)
    };
    match how {
        Balance::KarmarkarKarp => differencing(),
        Balance::Greedy => greedy(),
        Balance::Better => {
            let (a, b) = (differencing()?, greedy()?);
            Ok(if b.load.iter().max() < a.load.iter().max() { b } else { a })
        }
    }
}

//! Distribution of sequences over ranks.

use crate::Error;
use lockstep_schedule::balance::{self as core, Set};

/// The algorithm that distributes sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Largest differencing, with exactly verl's result.
    #[default]
    KarmarkarKarp,
    /// Longest sequence first, to the least loaded rank.
    Greedy,
    /// Runs both and takes the one with the smaller maximum load (differencing on a tie): never worse than
    /// either.
    Better,
}

/// An assignment of sequences to ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Rank per sequence, `[n]`.
    pub rank: Vec<u32>,
    /// Tokens per rank, `[k]`.
    pub load: Vec<u64>,
}

/// Distributes sequences of the given `length`s in tokens `[n]` over `ranks`. With `equal_size`, every rank
/// gets the same number of sequences. Formula and ties: [`lockstep_schedule::balance`].
///
/// Errors: no ranks; more ranks than sequences; with `equal_size`, a number of ranks that does not divide the
/// number of sequences.
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

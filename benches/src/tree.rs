//! Prefix trees over responses that share their first half in pairs.

use crate::Inputs;
use crate::ops::{Bench, bits};
use lockstep::ops::tree::{Outcomes, PrefixTree, Scratch, TempoParams, tempo};
use lockstep::{Batch, Device, Error};

/// Token ids for sequences of these lengths. Each pair of sequences shares its first half; after their shared
/// part, two responses differ at the first token.
pub fn shared_halves(cu_seqlens: &[u32]) -> Vec<u32> {
    let mut tokens = Vec::with_capacity(cu_seqlens.last().map_or(0, |n| *n as usize));
    for (sequence, pair) in cu_seqlens.windows(2).enumerate() {
        let length = pair[1] - pair[0];
        let id = |t: u32| {
            let of = if t < length / 2 { sequence / 2 } else { sequence } as u32;
            // The factor is odd, so at every t 17 bits of a token are a permutation of those of `of`.
            (of ^ t).wrapping_mul(0x9e37_79b1) >> 15
        };
        tokens.extend((0..length).map(id));
    }
    tokens
}

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Result<Vec<Bench<'a>>, Error> {
    let tokens = shared_halves(&inputs.cu_seqlens);
    let again = tokens.clone();
    let (mut tree, mut scratch) = (PrefixTree::default(), Scratch::default());
    let outcomes = Outcomes::new(&inputs.rewards);
    let ready = lockstep::ops::prefix_tree(&Device::cpu(), &batch, tokens[..].into(), &outcomes, None)?;
    Ok(vec![
        Bench::new("tree_sort, tree_nodes", 4.0, move |device| {
            tree.build(device, &batch, tokens[..].into(), &outcomes, None, &mut scratch)?;
            Ok(tree.lcp.iter().fold(0, |h, x| h * 31 % 65_521 + u64::from(*x)))
        }),
        Bench::new("tree_advantage", 5.0, move |device| {
            let advantage = Some(&inputs.advantage[..]);
            Ok(bits(&ready.advantages(device, &batch, &outcomes, advantage, None)?))
        }),
        Bench::new("tempo", 9.0, move |device| {
            Ok(bits(&tempo(device, &batch, again[..].into(), &outcomes, &TempoParams::default())?.advantage))
        }),
    ])
}

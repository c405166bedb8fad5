//! Groups of rewards.

use super::Data;
use super::hash::Source;

/// Kinds of group; each with the bug it catches.
const KINDS: [&str; 9] = [
    "binary",                       // the common case
    "constant 0.1",                 // std 1e-9 for 0: advantages of 1e-2 (docs/maths/statistics.md)
    "nearly constant",              // 1 against 1.00001: a variance by E[x²] − E[x]²
    "some NaN",                     // a NaN that enters the mean
    "all NaN",                      // 0/0
    "large, both signs",            // overflow of a square in binary32
    "large offset",                 // cancellation: 1e6 + small
    "real",                         // ordinary
    "constant but for the invalid", // a range over members that are not counted
];

fn reward(kind: &str, source: Source, i: usize, k: usize) -> f32 {
    match kind {
        "binary" => (source.below(i, 2)) as f32,
        "constant 0.1" => 0.1,
        "nearly constant" => [1.0, 1.000_01][source.below(i, 2)],
        "some NaN" if k % 3 == 1 => f32::NAN,
        "all NaN" => f32::from_bits(0xffc0_0001),
        "large, both signs" => 1e30 * source.signed(i),
        "large offset" => 1e6 + source.signed(i),
        "constant but for the invalid" => 0.7,
        _ => source.signed(i),
    }
}

/// Groups of the given sizes, kinds by turns; with `valid`, some members are switched off and hold garbage.
pub fn groups(sizes: &[u32], valid: bool, source: Source) -> Data {
    let (mut offsets, mut rewards, mut mask) = (vec![0u32], Vec::new(), Vec::new());
    for (group, size) in sizes.iter().enumerate() {
        let kind = KINDS[group % KINDS.len()];
        for k in 0..*size as usize {
            let i = rewards.len();
            let on = !valid || source.fork(9).below(i, 4) != 0;
            rewards.push(if on { reward(kind, source, i, k) } else { super::masks::garbage(i) });
            mask.push(u8::from(on));
        }
        offsets.push(rewards.len() as u32);
    }
    Data { offsets, mask: valid.then_some(mask), element: vec![rewards], ..Data::default() }
}

/// Sizes: none, one, two, the usual, more than a block, more than a column cycle; each kind with several of them.
pub fn sizes() -> Vec<u32> {
    let sizes = [8, 1, 2, 0, 5, 16, 33, 3, 64, 130, 7];
    (0..9 * sizes.len()).map(|i| sizes[i % sizes.len()]).collect()
}

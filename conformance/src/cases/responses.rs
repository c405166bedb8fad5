//! Responses that share prefixes, like a group of samples.

use super::hash::Source;

/// The padding id of padded cases; it also occurs as a token.
pub const PAD: u32 = 0;

/// `count` responses: some empty, some equal, some a prefix of another; shared prefixes of zero or one token,
/// and of more tokens than a block, a column cycle or a search step covers.
pub fn responses(count: usize, source: Source) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = Vec::new();
    for i in 0..count {
        let own = source.fork(i as u64);
        let alphabet = [2, 3, 50_000][own.below(0, 3)];
        let token = |t: usize| match own.fork(1).below(t, 40) {
            0 => u32::MAX,
            1 => 1 << 31,
            _ => own.fork(2).below(t, alphabet) as u32,
        };
        let length = match own.below(1, 16) {
            0 => 0,
            1 => 1,
            2 => 500 + own.below(2, 700),
            3..6 => 100 + own.below(2, 100),
            _ => own.below(2, 12),
        };
        let mut response: Vec<u32> = Vec::new();
        if i > 0 && own.below(3, 5) != 0 {
            // Derived from one of the last few, so that groups share too.
            let from = &all[i - 1 - own.below(4, i.min(6))];
            let kept = match own.below(5, 4) {
                0 => from.len(),
                1 => from.len().saturating_sub(1),
                _ => own.below(6, from.len() + 1),
            };
            response.extend(&from[..kept]);
        }
        match own.below(7, 6) {
            0 => {}
            // An ending that looks like padding.
            1 => response.extend([PAD, PAD, PAD].iter().take(own.below(8, 4))),
            _ => response.extend((0..length).map(token)),
        }
        all.push(response);
    }
    all
}

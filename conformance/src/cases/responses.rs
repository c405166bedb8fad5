//! Responses that share prefixes, as a group of samples does.

use super::hash::Source;

/// The id that padded cases pad with; it occurs as a token too.
pub const PAD: u32 = 0;

/// `count` responses: some empty, some equal, some the beginning of another; common prefixes of none, one, and more tokens than a
/// block, a column cycle and a search look at.
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
            // From one of the last, so that groups share too.
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
            // An end that equals padding.
            1 => response.extend([PAD, PAD, PAD].iter().take(own.below(8, 4))),
            _ => response.extend((0..length).map(token)),
        }
        all.push(response);
    }
    all
}

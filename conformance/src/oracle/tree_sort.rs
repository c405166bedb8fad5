//! Sorts responses and finds their common prefixes by comparing whole responses, docs/maths/trees.md.

use std::cmp::Ordering;

/// Token t of a response; beyond its end the pad token, if there is one.
fn token(response: &[u32], t: usize, pad: Option<u32>) -> Option<u32> {
    response.get(t).copied().or(pad)
}

/// Length of the common prefix; 2³² − 1 for padded responses that never differ.
pub fn common(a: &[u32], b: &[u32], pad: Option<u32>) -> u32 {
    let longest = a.len().max(b.len());
    let both = |t: &usize| {
        let (x, y) = (token(a, *t, pad), token(b, *t, pad));
        x.is_none() || y.is_none() || x != y
    };
    match (0..=longest).find(both) {
        Some(t) => t as u32,
        None => u32::MAX,
    }
}

/// Lexicographic order, in which an end precedes every token.
pub fn compare(a: &[u32], b: &[u32], pad: Option<u32>) -> Ordering {
    let longest = a.len().max(b.len());
    let each = |response: &[u32]| (0..longest).map(|t| token(response, t, pad)).collect::<Vec<_>>();
    each(a).cmp(&each(b))
}

/// Indices in sorted order (stable for equal responses), and the length of the prefix each shares with its
/// predecessor (0 for the first).
pub fn sorted(responses: &[Vec<u32>], pad: Option<u32>) -> Vec<(usize, u32)> {
    let mut order: Vec<usize> = (0..responses.len()).collect();
    order.sort_by(|a, b| compare(&responses[*a], &responses[*b], pad));
    let shared = |k: usize| match k {
        0 => 0,
        _ => common(&responses[order[k - 1]], &responses[order[k]], pad),
    };
    (0..order.len()).map(|k| (order[k], shared(k))).collect()
}

//! Which keys are among the n largest.

/// Positions of the `n` largest keys by sorting, ties broken by lowest position; 0 is not a key.
pub fn largest(keys: &[u32], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keys.len()).filter(|i| keys[*i] != 0).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(keys[*i]), *i));
    order.truncate(n);
    order.sort();
    order
}

/// Which keys are selected, given a bound and the number of ties wanted, with `before` ties found elsewhere.
pub fn selected(keys: &[u32], bound: u32, wanted: u32, before: u32) -> Vec<bool> {
    let mut ties = before;
    keys.iter()
        .map(|key| {
            ties += u32::from(*key == bound);
            *key > bound || (*key == bound && ties <= wanted)
        })
        .collect()
}

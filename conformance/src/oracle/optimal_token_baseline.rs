//! verl's optimal token baseline, maths.md §4.6 (iii), given the running sums W.

/// A token of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Token {
    /// Whether it takes part.
    pub live: bool,
    /// G.
    pub returns: f64,
    /// W.
    pub weight: f64,
}

/// Advantages of a group's sequences, each with the magnitude of the terms.
pub fn group(sequences: &[Vec<Token>], eps: f64, lone_tail_is_raw: bool) -> Vec<Vec<(f64, f64)>> {
    let baseline = |t: usize| {
        let here: Vec<Token> = sequences.iter().filter_map(|tokens| tokens.get(t).copied()).collect();
        if sequences.len() == 1 || (lone_tail_is_raw && here.len() == 1) {
            return (0.0, 0.0);
        }
        let live = || here.iter().filter(|token| token.live);
        let total: f64 = live().map(|token| token.weight).sum::<f64>() + eps;
        let (b, magnitude) = live().fold((0.0, 0.0), |(b, magnitude), token| {
            (
                b + token.returns * token.weight / total,
                magnitude + (token.returns * token.weight / total).abs(),
            )
        });
        (b, magnitude)
    };
    let advantage = |(t, token): (usize, &Token)| {
        let (b, magnitude) = baseline(t);
        if token.live { (token.returns - b, token.returns.abs() + magnitude) } else { (0.0, 0.0) }
    };
    sequences.iter().map(|tokens| tokens.iter().enumerate().map(advantage).collect()).collect()
}

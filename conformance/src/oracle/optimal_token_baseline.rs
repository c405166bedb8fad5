//! verl's optimal token baseline, docs/maths/correction.md, given the running sums W.

/// A token of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Token {
    /// Whether it takes part.
    pub live: bool,
    pub returns: f64,
    /// W.
    pub weight: f64,
}

/// Advantages of a group's sequences, each with the magnitude of its terms. The lone tail belongs to the
/// sequence with strictly the most live tokens, and begins at the position equal to the second-largest count.
pub fn group(sequences: &[Vec<Token>], eps: f64, lone_tail_is_raw: bool) -> Vec<Vec<(f64, f64)>> {
    let baseline = |t: usize| {
        let here: Vec<Token> = sequences.iter().filter_map(|tokens| tokens.get(t).copied()).collect();
        if sequences.len() == 1 {
            return (0.0, 0.0);
        }
        let live = || here.iter().filter(|token| token.live);
        let total: f64 = live().map(|token| token.weight).sum::<f64>() + eps;
        live().fold((0.0, 0.0), |(b, magnitude), token| {
            let term = token.returns * token.weight / total;
            (b + term, magnitude + term.abs())
        })
    };
    let count = |tokens: &Vec<Token>| tokens.iter().filter(|token| token.live).count();
    let alone = |s: usize, t: usize| {
        let others = (0..sequences.len()).filter(|other| *other != s).map(|other| count(&sequences[other]));
        let most = others.max().unwrap_or(0);
        lone_tail_is_raw && count(&sequences[s]) > most && t >= most
    };
    let advantage = |s: usize, t: usize| {
        let token = sequences[s][t];
        let (b, magnitude) = if alone(s, t) { (0.0, 0.0) } else { baseline(t) };
        if token.live { (token.returns - b, token.returns.abs() + magnitude) } else { (0.0, 0.0) }
    };
    let row = |s: usize| (0..sequences[s].len()).map(|t| advantage(s, t)).collect();
    (0..sequences.len()).map(row).collect()
}

//! GRPOVI, docs/maths/rewards.md, by trying every (k, l).

/// One way to split the sorted members.
#[derive(Clone, Debug)]
pub struct Split {
    /// Number of members at the upper bound.
    pub k: usize,
    /// Number of members at the upper bound or between the bounds.
    pub l: usize,
    /// Σ p (z − c)².
    pub variance: f64,
    /// z of each member, in the order of the arguments.
    pub z: Vec<f64>,
    /// The magnitude that errors of z between the bounds are measured against.
    pub magnitude: f64,
}

/// Positions in descending order of reward, ties by position.
pub fn order(r: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..r.len()).collect();
    order.sort_by(|a, b| r[*b].total_cmp(&r[*a]));
    order
}

/// Softmax.
pub fn softmax(logp: &[f64]) -> Vec<f64> {
    let max = logp.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let w: Vec<f64> = logp.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = w.iter().sum();
    w.into_iter().map(|w| w / sum).collect()
}

/// The split at (k, l) of the members in `order`, if it is feasible.
pub fn split(
    r: &[f64],
    p: &[f64],
    order: &[usize],
    (k, l): (usize, usize),
    [low, high]: [f64; 2],
) -> Option<Split> {
    let c: f64 = r.iter().zip(p).map(|(r, p)| r * p).sum();
    let mass = |part: &[usize]| part.iter().map(|i| p[*i]).sum::<f64>();
    let (top, rest) = order.split_at(k);
    let (between, bottom) = rest.split_at(l - k);
    let owed = |part: &[usize], bound: f64| part.iter().map(|i| p[*i] * (r[*i] - bound)).sum::<f64>();
    let s_b = mass(between);
    if s_b <= 0.0 {
        return None;
    }
    let alpha = (owed(between, 0.0) + owed(top, high) + owed(bottom, low)) / s_b;
    let slack = 1e-12 * (high - low);
    if alpha < low - slack || alpha > high + slack {
        return None;
    }
    let mut z = vec![alpha; r.len()];
    top.iter().for_each(|i| z[*i] = high);
    bottom.iter().for_each(|i| z[*i] = low);
    let variance = z.iter().zip(p).map(|(z, p)| p * (z - c).powi(2)).sum();
    let terms = r.iter().zip(&z).zip(p).map(|((r, z), p)| p * (r - z).abs()).sum::<f64>();
    Some(Split { k, l, variance, z, magnitude: terms / s_b })
}

/// Every feasible split; with `merge_ties`, only between different rewards.
pub fn splits(r: &[f64], p: &[f64], bounds: [f64; 2], merge_ties: bool) -> Vec<Split> {
    let order = order(r);
    let n = r.len();
    let cut = |at: usize| !merge_ties || at == 0 || at == n || r[order[at - 1]] != r[order[at]];
    let mut all = Vec::new();
    for k in (0..n).filter(|k| cut(*k)) {
        for l in (k + 1..=n).filter(|l| cut(*l)) {
            all.extend(split(r, p, &order, (k, l), bounds));
        }
    }
    all
}

/// The split with the largest variance.
pub fn best(splits: &[Split]) -> Option<&Split> {
    splits.iter().max_by(|a, b| a.variance.total_cmp(&b.variance))
}

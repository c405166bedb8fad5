//! V-trace, docs/maths/advantages.md, straight from the equations.

/// Constants of V-trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    pub gamma: f64,
    pub lambda: f64,
    /// ρ̄.
    pub rho_bar: f64,
    /// ρ̄_pg.
    pub rho_pg: f64,
    /// c̄.
    pub c_bar: f64,
}

/// A token's value target and advantage, each with the magnitude of its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traced {
    /// vs; for a masked token, that of the next live token.
    pub vs: f64,
    /// A; 0 for a masked token.
    pub advantage: f64,
    /// Magnitude of the error of vs: a ratio is uncertain by 1 + |logp − logp_rollout| of itself.
    pub vs_magnitude: f64,
    /// Magnitude of the advantage's error, likewise.
    pub advantage_magnitude: f64,
}

/// Runs from the last token to the first; `log_ratio` is logp − logp_rollout.
pub fn row(
    log_ratio: &[f64],
    rewards: &[f64],
    values: &[f64],
    live: &[bool],
    behind: f64,
    c: &Constants,
) -> Vec<Traced> {
    let mut out = vec![Traced::default(); rewards.len()];
    // err_{t'}, the bound of its magnitude, that of its error, V_{t'}.
    let (mut err, mut bound, mut error, mut next) = (0.0f64, 0.0f64, 0.0f64, behind);
    for t in (0..rewards.len()).rev() {
        if !live[t] {
            out[t] = Traced { vs: next + err, vs_magnitude: (next + err).abs() + error, ..Traced::default() };
            continue;
        }
        let (rho, doubt) = (log_ratio[t].exp(), 1.0 + log_ratio[t].abs());
        let weight = |bound: f64| rho.min(bound);
        let (r, v) = (rewards[t], values[t]);
        let terms = r.abs() + c.gamma * next.abs() + v.abs();
        let rate = c.gamma * c.lambda * weight(c.c_bar);
        let vs_next = next + err;
        let q = r + c.gamma * (c.lambda * vs_next + (1.0 - c.lambda) * next);
        let advantage = weight(c.rho_pg) * (q - v);
        let advantage_magnitude = weight(c.rho_pg) * (doubt * (terms + c.gamma * c.lambda * bound) + error);
        let new = weight(c.rho_bar) * (r + c.gamma * next - v) + rate * err;
        error = doubt * (weight(c.rho_bar) * terms + rate * bound) + rate * error;
        (err, bound, next) = (new, weight(c.rho_bar) * terms + rate * bound, v);
        let vs = v + err;
        out[t] = Traced { vs, advantage, vs_magnitude: vs.abs() + error, advantage_magnitude };
    }
    out
}

//! BroRL's mass balance: how much probability one update moves to right answers, and the effect of the
//! unsampled answers.
//!
//! **Formula** (2510.01180, via a text conversion, identity checked; docs/maths/schedules.md), with N samples
//! and rewards R_c >= 0 >= R_w. Q₊, Q₋ are the masses of right and wrong answers, P₊, P₋ their sampled parts;
//! A₂, B₂ = Σ p² over sampled right and wrong answers, U₊₂, U₋₂ over the unsampled ones; S = R_c P₊ + R_w P₋:
//!
//! ```text
//! ΔQ₊ = (η/N) [ (R_c − S) Q₋ A₂ + (S − R_w) Q₊ B₂ + S (Q₊ U₋₂ − Q₋ U₊₂) ]
//! ```
//!
//! This is the first-order effect of Δz_v = (η/N) p_v (R_v − S), with R_v = 0 for unsampled v. The first two
//! terms are at least 0, because R_c >= S >= R_w; the third fades with N: E[p² not sampled after N draws] =
//! p² (1 − p)^N.
//!
//! **Shapes**: per answer `[V]`, one softmax.
//!
//! **Special cases**: without answers everything is 0. Probabilities are taken as given: their sum Q₊ + Q₋ is
//! not normalised to 1.

use lockstep_core::Error;
use lockstep_core::require;

/// The three terms of ΔQ₊.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balance {
    /// Contribution of sampled right answers.
    pub right: f64,
    /// Contribution of sampled wrong answers.
    pub wrong: f64,
    /// Contribution of unsampled answers.
    pub unsampled: f64,
}

impl Balance {
    /// The total, ΔQ₊.
    pub fn total(self) -> f64 {
        self.right + self.wrong + self.unsampled
    }
}

/// Rewards and step size of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Reward of right answers, R_c, at least 0.
    pub right: f64,
    /// Reward of wrong answers, R_w, at most 0.
    pub wrong: f64,
    /// Step size η.
    pub rate: f64,
    /// Number of samples N, at least 1.
    pub samples: u32,
}

impl Update {
    /// Computes the balance of one softmax; all slices are `[V]`.
    ///
    /// Errors: lengths that disagree; a probability outside 0..=1 (with its index); parameters outside their
    /// domain; a balance that is not finite.
    pub fn balance(&self, probability: &[f64], right: &[bool], sampled: &[bool]) -> Result<Balance, Error> {
        require::length("right", probability.len(), "one per answer", right.len())?;
        require::length("sampled", probability.len(), "one per answer", sampled.len())?;
        require::each("probability", probability, "0 to 1", |p| (0.0..=1.0).contains(&p))?;
        require::not_negative("right", self.right)?;
        require::scalar("wrong", self.wrong <= 0.0 && self.wrong.is_finite(), "at most 0", self.wrong)?;
        require::finite("rate", self.rate)?;
        require::scalar("samples", self.samples > 0, "at least 1", 0.0)?;
        // Mass by [wrong, right]; mass and squares also by [not sampled, sampled].
        let (mut mass, mut part, mut square) = ([0.0; 2], [[0.0; 2]; 2], [[0.0; 2]; 2]);
        for (i, p) in probability.iter().enumerate() {
            let (kind, seen) = (usize::from(right[i]), usize::from(sampled[i]));
            mass[kind] += p;
            part[kind][seen] += p;
            square[kind][seen] += p * p;
        }
        let s = self.right * part[1][1] + self.wrong * part[0][1];
        let scale = self.rate / f64::from(self.samples);
        let balance = Balance {
            right: scale * ((self.right - s) * mass[0] * square[1][1]),
            wrong: scale * ((s - self.wrong) * mass[1] * square[0][1]),
            unsampled: scale * (s * (mass[1] * square[0][0] - mass[0] * square[1][0])),
        };
        require::finite("balance", balance.total())?;
        Ok(balance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balance_is_the_first_order_effect_of_the_update() {
        let update = Update { right: 1.0, wrong: -0.5, rate: 0.3, samples: 4 };
        for salt in 0..64_u32 {
            let raw: [f64; 6] = core::array::from_fn(|i| 1.0 + f64::from((salt * 31 + i as u32 * 17) % 23));
            let sum: f64 = raw.iter().sum();
            let p = raw.map(|x| x / sum);
            let right: [bool; 6] = core::array::from_fn(|i| (salt >> i) & 1 == 1);
            let sampled: [bool; 6] = core::array::from_fn(|i| (salt * 5 + 3) >> i & 1 == 1);
            let reward = |v: usize| match (sampled[v], right[v]) {
                (false, _) => 0.0,
                (true, true) => 1.0,
                (true, false) => -0.5,
            };
            let s: f64 = (0..6).map(|v| p[v] * reward(v)).sum();
            let dz = |v: usize| 0.3 / 4.0 * p[v] * if sampled[v] { reward(v) - s } else { -s };
            let mean: f64 = (0..6).map(|v| p[v] * dz(v)).sum();
            let exact: f64 = (0..6).filter(|v| right[*v]).map(|v| p[v] * (dz(v) - mean)).sum();
            let balance = update.balance(&p, &right, &sampled).unwrap();
            assert!((balance.total() - exact).abs() < 1e-16, "{salt}: {balance:?} for {exact}");
            assert!(balance.right >= 0.0 && balance.wrong >= 0.0);
        }
    }

    #[test]
    fn sampling_everything_never_loses_right_mass() {
        let update = Update { right: 1.0, wrong: 0.0, rate: 1.0, samples: 1 };
        let b = update.balance(&[0.2, 0.3, 0.5], &[true, false, false], &[true; 3]).unwrap();
        assert!(b.unsampled == 0.0 && b.total() > 0.0);
        assert_eq!(update.balance(&[], &[], &[]), Ok(Balance::default()));
        let e = update.balance(&[0.2, 1.3], &[true; 2], &[true; 2]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "probability", index: Some(1), .. }));
        let huge = Update { rate: f64::MAX, right: f64::MAX, ..update };
        assert!(huge.balance(&[0.2, 0.8], &[true, false], &[true; 2]).is_err());
        let e = Update { wrong: 0.1, ..update }.balance(&[], &[], &[]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "wrong", .. }));
    }
}

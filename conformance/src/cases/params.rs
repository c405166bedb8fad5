//! Scalar arguments that several ops take.

use lockstep_core::aggregate::{PerRow, Weight, WeightFrom};
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::ragged::In;
use lockstep_core::ratio::Guard;

/// The bounds of `in_band` in every case.
pub const BAND: [f32; 2] = [0.75, 1.25];

/// Guards: none, the usual bound, one that ordinary log-ratios reach, and the same two straight-through.
pub fn guards() -> [Guard; 5] {
    [
        Guard::NONE,
        Guard::clamp(Guard::LOG_RATIO_CLAMP),
        Guard::clamp(0.5),
        Guard::straight_through(0.5),
        Guard::straight_through(20.0),
    ]
}

/// Every estimator, plain and straight-through; k3 with each clamp and with verl's two.
pub fn kls() -> Vec<Kl> {
    let mut kls = Vec::new();
    for estimator in [KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3] {
        kls.push(Kl::new(estimator));
        let verls = if estimator == KlFormula::K3 { Kl::guarded(estimator) } else { Kl::new(estimator) };
        kls.push(Kl { straight_through: true, ..verls });
    }
    kls.push(Kl::guarded(KlFormula::K3));
    kls.extend(each_clamp(KlFormula::K3));
    kls
}

fn each_clamp(estimator: KlFormula) -> [Kl; 2] {
    [Kl { clamp_in: 0.5, ..Kl::new(estimator) }, Kl { clamp_out: 0.125, ..Kl::new(estimator) }]
}

/// [`kls`] plus the other estimators with clamps, for the ops that support them.
pub fn kls_of_ops() -> Vec<Kl> {
    let others = [KlFormula::K1, KlFormula::Abs, KlFormula::K2].into_iter().flat_map(each_clamp);
    kls().into_iter().chain(others).collect()
}

/// Aggregation weights: every kind of per-row divisor, with denominators that are not powers of two, that of
/// an all-empty batch, and a scale.
pub fn weights() -> [Weight; 6] {
    let weight = |per_row, denominator, scale| Weight { per_row, denominator, scale };
    [
        weight(PerRow::One, 1.0, 1.0),
        weight(PerRow::One, 1017.0, 1.0),
        weight(PerRow::Length { eps: 1e-8 }, 11.0, 1.0),
        weight(PerRow::AtLeastOne, 15.0, 2.0),
        weight(PerRow::Constant(1024.0), 7.0, 1.0),
        weight(PerRow::Length { eps: 1e-8 }, 0.0, 1.0),
    ]
}

/// Number of partial counts from which a weight's numbers are read, in rotation; `None` passes them by value.
pub const COUNTED: [Option<usize>; 6] = [None, None, None, Some(1), Some(7), Some(64)];

/// A weight's numbers as a launch reads them from memory.
#[derive(Clone, Debug)]
pub struct Partials {
    /// The weight passed by value, with wrong numbers where memory has the right ones.
    pub weight: Weight,
    denominator: Option<Vec<u64>>,
    horizon: Option<Vec<u64>>,
}

impl Partials {
    /// Splits the counts of a weight into partial counts.
    pub fn of(weight: Weight, counted: Option<usize>) -> Partials {
        let Some(n) = counted else { return Partials { weight, denominator: None, horizon: None } };
        let (count, n64) = (weight.denominator as u64, n as u64);
        assert_eq!(count as f64, weight.denominator, "a count");
        let denominator = (0..n64).map(|i| count * (i + 1) / n64 - count * i / n64).collect();
        let horizon = match weight.per_row {
            PerRow::Constant(c) => Some((0..n).map(|i| c as u64 / (1 + i.abs_diff(n / 2) as u64)).collect()),
            _ => None,
        };
        let per_row = if horizon.is_some() { PerRow::Constant(2.5) } else { weight.per_row };
        let weight = Weight { per_row, denominator: 3.5, ..weight };
        Partials { weight, denominator: Some(denominator), horizon }
    }

    /// The arrays, as a launch takes them.
    pub fn from(&self) -> WeightFrom<'_> {
        WeightFrom {
            denominator: self.denominator.as_deref().map(In::new),
            horizon: self.horizon.as_deref().map(In::new),
        }
    }
}

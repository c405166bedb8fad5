//! The metrics, as written in TOML.

use serde::{Deserialize, Serialize};

/// How whole-batch scalars (loss, metrics) are summed over sequences.
///
/// Over several ranks, the exact totals of any shards merge:
///
/// ```
/// use lockstep::ops::exact::PolicyTotals;
/// use lockstep::{Credit, Device, Recipe, Rollouts};
/// let (device, recipe) = (Device::cpu(), Recipe::named("dapo")?);
/// let whole = Rollouts {
///     logp: Some(&[-0.4, -0.2, -0.9]),
///     logp_old: Some(&[-0.5, -0.1, -0.8]),
///     ..Rollouts::new(&[0, 2, 3], &[0, 1, 2])
/// };
/// let credit = Credit::per_sequence(vec![1.0, -1.0]);
///
/// let mut totals = PolicyTotals::default();
/// for group in [1, 0] {
///     let (part, _) = whole.select(&[group])?;
///     // Three tokens in two sequences.
///     let shard = Rollouts { counts: Some(&[3, 2, 2]), ..part.view() };
///     totals.merge(&recipe.loss(&device, &shard, &credit.select(&whole, &[group])?)?.totals());
/// }
/// assert_eq!(totals, recipe.loss(&device, &whole, &credit)?.totals());
/// # Ok::<(), lockstep::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// In the fixed tree of `fold_rows`, on the device: the same bits on every backend, but different bits
    /// for a different sharding.
    #[default]
    Tree,
    /// Exactly, rounded once, on the host: the same bits for any sharding; see
    /// [`PolicyTotals`](crate::ops::exact::PolicyTotals).
    Exact,
}

/// The metrics stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsChoice {
    /// The band of `in_band_fraction`, as ratios, both ends included.
    pub band: [f32; 2],
    /// How loss and metrics are summed over sequences.
    pub reduction: Reduction,
}

impl Default for MetricsChoice {
    fn default() -> Self {
        MetricsChoice { band: [0.8, 1.2], reduction: Reduction::Tree }
    }
}

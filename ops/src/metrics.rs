//! The metrics that a trainer logs.

use lockstep_core::policy_loss::sum;
use lockstep_core::ratio::token;

/// Statistics of the importance ratios r = exp(logp − logp_old) over live tokens. All are 0 for a batch
/// without live tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RatioStats {
    /// Live tokens.
    pub tokens: u64,
    /// Mean of logp_old − logp: the k1 estimate of KL(old ‖ current), signed.
    pub kl_k1: f64,
    /// Mean of exp(d) − d − 1, d = logp − logp_old: the k3 estimate of KL(old ‖ current), at least 0.
    pub kl_k3: f64,
    /// Mean ratio.
    pub ratio_mean: f64,
    /// Population standard deviation of the ratio; below about 2.5e-4 times the largest |r − 1| it is
    /// rounding (r − 1 and its square are summed as `f32`).
    pub ratio_std: f64,
    /// Smallest ratio.
    pub ratio_min: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Effective sample size as a fraction of the tokens: (Σr)² / (n Σr²), in 0..=1.
    pub ess: f64,
    /// Tokens whose log-ratio was outside the guard.
    pub guarded_tokens: u64,
    /// Fraction of tokens whose ratio lies in the band.
    pub in_band_fraction: f64,
}

impl RatioStats {
    pub(crate) fn new(tokens: u64, sums: &[f64; token::sum::SUMS], [high, neg_low]: [f32; 2]) -> Self {
        if tokens == 0 {
            return RatioStats::default();
        }
        let n = tokens as f64;
        let (excess, squares) = (sums[token::sum::EXCESS], sums[token::sum::EXCESS_SQUARED]);
        let (ratio_mean, ratio_std, ess) = spread(n, excess, squares);
        RatioStats {
            tokens,
            kl_k1: sums[token::sum::K1] / n,
            kl_k3: sums[token::sum::K3] / n,
            ratio_mean,
            ratio_std,
            ratio_min: -f64::from(neg_low),
            ratio_max: f64::from(high),
            ess,
            guarded_tokens: sums[token::sum::GUARDED] as u64,
            in_band_fraction: sums[token::sum::IN_BAND] / n,
        }
    }
}

/// Mean, population standard deviation and effective sample size as a fraction, from Σ(r − 1) and Σ(r − 1)².
/// Unguarded ratios above 1.8e19, whose square overflows `f32`, have an infinite spread and an effective
/// sample size of 0.
fn spread(n: f64, excess: f64, squares: f64) -> (f64, f64, f64) {
    let mean = excess / n;
    if squares.is_infinite() {
        return (1.0 + mean, f64::INFINITY, 0.0);
    }
    let variance = (squares / n - mean * mean).max(0.0);
    // Σr² = Σ(r−1)² + 2Σ(r−1) + n; the squares are rounded to f32 before they are summed.
    let second = squares / n + 2.0 * mean + 1.0;
    let ess = if second > 0.0 { ((1.0 + mean) * (1.0 + mean) / second).min(1.0) } else { 0.0 };
    (1.0 + mean, variance.sqrt(), ess)
}

/// Metrics of a policy loss over live tokens. All are 0 for a batch without live tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Live tokens.
    pub tokens: u64,
    /// The policy term of the loss per live token (mean of w·l, before the aggregation's weights).
    pub policy_loss_mean: f64,
    /// Mean KL to the reference by the recipe's estimator; 0 without one.
    pub kl_ref_mean: f64,
    /// Mean of logp_old − logp (guarded): the k1 estimate of KL(old ‖ current); verl's `ppo_kl`.
    pub approx_kl: f64,
    /// Mean ratio.
    pub ratio_mean: f64,
    /// Population standard deviation of the ratio; below about 2.5e-4 times the largest |r − 1| it is
    /// rounding (r − 1 and its square are summed as `f32`).
    pub ratio_std: f64,
    /// Smallest ratio.
    pub ratio_min: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Effective sample size as a fraction of the tokens: (Σr)² / (n Σr²), in 0..=1.
    pub ess: f64,
    /// Mean gate weight: 1 = plain importance-weighted REINFORCE, 0 = every token clipped.
    pub gate_mean: f64,
    /// Fraction of tokens at the upper or lower clip; verl's `pg_clipfrac`.
    pub clip_fraction: f64,
    /// Fraction at the upper clip (A > 0).
    pub clip_fraction_high: f64,
    /// Fraction at the lower clip (A < 0).
    pub clip_fraction_low: f64,
    /// Fraction at the dual clip (A < 0); verl's `pg_clipfrac_lower`.
    pub clip_fraction_dual: f64,
    /// Tokens whose log-ratio was outside the guard.
    pub guarded_tokens: u64,
    /// Fraction of tokens whose ratio lies in the recipe's band.
    pub in_band_fraction: f64,
    /// −mean logp: a sampled estimate of the policy's entropy.
    pub neg_mean_logp: f64,
}

macro_rules! named {
    ($($name:ident)*) => {
        impl Metrics {
            /// Every metric with its name, for logging.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
                [$((stringify!($name), self.$name as f64)),*].into_iter()
            }
        }
    };
}
named!(tokens policy_loss_mean kl_ref_mean approx_kl ratio_mean ratio_std ratio_min ratio_max ess gate_mean
    clip_fraction clip_fraction_high clip_fraction_low clip_fraction_dual guarded_tokens in_band_fraction
    neg_mean_logp);

impl Metrics {
    #[doc(hidden)]
    pub fn new(tokens: u64, sums: &[f64], [high, neg_low]: [f32; 2]) -> Self {
        if tokens == 0 {
            return Metrics::default();
        }
        let n = tokens as f64;
        let mean = |k: usize| sums[k] / n;
        let (ratio_mean, ratio_std, ess) = spread(n, sums[sum::EXCESS], sums[sum::EXCESS_SQUARED]);
        Metrics {
            tokens,
            policy_loss_mean: mean(sum::POLICY),
            kl_ref_mean: mean(sum::KL_REF),
            approx_kl: mean(sum::K1),
            ratio_mean,
            ratio_std,
            ratio_min: -f64::from(neg_low),
            ratio_max: f64::from(high),
            ess,
            gate_mean: mean(sum::GATE),
            clip_fraction: (sums[sum::CLIP_HIGH] + sums[sum::CLIP_LOW]) / n,
            clip_fraction_high: mean(sum::CLIP_HIGH),
            clip_fraction_low: mean(sum::CLIP_LOW),
            clip_fraction_dual: mean(sum::CLIP_DUAL),
            guarded_tokens: sums[sum::GUARDED] as u64,
            in_band_fraction: mean(sum::IN_BAND),
            neg_mean_logp: mean(sum::NEG_LOGP),
        }
    }
}

//! Checks which parameters an advantage estimator takes, and that they are in their domain.

use super::{AdvantageChoice, AdvantageEstimator, RobustChoice};
use crate::Error;

impl AdvantageEstimator {
    /// Whether the group op divides by one standard deviation.
    fn divides_by_std(self) -> bool {
        use AdvantageEstimator::{Gdpo, Grpo, GrpoBatch, PassK, Vcpo};
        matches!(self, Grpo | GrpoBatch | PassK | Vcpo | Gdpo)
    }
}

fn finite(x: f64) -> bool {
    x >= 0.0 && x.is_finite()
}

/// Errors unless the parameter is the estimator's own and in its domain.
#[cold]
fn in_domain(name: &str, value: f64, (own, spelled): (bool, &str), expected: &str) -> Result<(), Error> {
    ensure!(own, "advantage.{name} is used by the estimator {spelled} only");
    let good = match name {
        "gamma" | "decay" => (0.0..=1.0).contains(&value),
        "k" => value >= 1.0,
        "winsor_share" => (0.0..0.5).contains(&value),
        "f_norm" => value > 0.0 && finite(value),
        _ => finite(value),
    };
    ensure!(good, "advantage.{name} is {value}: expected {expected}");
    Ok(())
}

impl AdvantageChoice {
    /// Errors unless every parameter is in its domain and is used by the estimator.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Self { ddof, eps, .. } = *self;
        ensure!(ddof <= 1, "advantage.ddof is {ddof}: expected 0 or 1");
        ensure!(finite(eps), "advantage.eps is {eps}: expected a finite number of at least 0");
        // Every call of a recipe checks these, and most recipes set none: a branch each, the work elsewhere.
        macro_rules! own {
            ($($name:ident: $number:expr, $estimator:ident, $names:literal, $expected:literal;)*) => {
                $(if let Some(value) = self.$name {
                    let own = self.estimator == AdvantageEstimator::$estimator;
                    in_domain(stringify!($name), $number(value), (own, $names), $expected)?;
                })*
            };
        }
        own! {
            mad_floor: f64::from, McGrpo, "mc_grpo", "a finite number of at least 0";
            over_nonzero: f64::from, McGrpo, "mc_grpo", "true or false";
            f_norm: f64::from, Gpg, "gpg", "a positive finite number";
            gamma: f64::from, ReinforcePlusPlus, "reinforce_plus_plus", "0 to 1";
            tau2: f64::from, V05, "v0_5", "a finite number of at least 0";
            decay: f64::from, RoleBaseline, "role_baseline", "0 to 1";
            k: f64::from, PassAtK, "pass_at_k", "at least 1";
            laplace: f64::from, V05, "v0_5", "true or false";
            leave_one_out: f64::from, Gdpo, "gdpo", "true or false";
            stop_at_mask: f64::from, Tempo, "tempo", "true or false";
            pad_id: f64::from, Tempo, "tempo", "a token id";
            robust: |_| 1.0, Vcpo, "vcpo", "median or winsorised";
            winsor_share: f64::from, Vcpo, "vcpo", "at least 0 and below 0.5";
            role_order: |_| 1.0, RoleBaseline, "role_baseline", "an order";
        }
        if let Some(least) = self.least_std {
            ensure!(finite(least), "advantage.least_std is {least}: expected a finite number of at least 0");
            let own = self.leave_one_out != Some(true) && self.estimator.divides_by_std();
            ensure!(
                self.norm_by_std && self.over_time.is_none() && own,
                "advantage.least_std is for estimators that divide by one standard deviation"
            );
        }
        ensure!(
            self.winsor_share.is_none() || self.robust == Some(RobustChoice::Winsorised),
            "advantage.winsor_share is used by advantage.robust winsorised only"
        );
        if let Some(over_time) = &self.over_time {
            over_time.check()?;
            ensure!(
                self.estimator == AdvantageEstimator::Grpo,
                "advantage.over_time replaces advantage.estimator: leave one out"
            );
        }
        ensure!(
            self.estimator != AdvantageEstimator::Tempo
                || (self.limit.is_none() && self.whitening().is_none()),
            "advantage.limit and advantage.whiten are not for tempo"
        );
        if let Some(limit) = self.limit {
            let held = limit == f64::INFINITY || (limit > 0.0 && (limit as f32).is_normal());
            ensure!(held, "advantage.limit is {limit}: expected a positive number in the range of binary32");
            let per_token = self.estimator == AdvantageEstimator::ReinforcePlusPlus;
            ensure!(!per_token, "advantage.limit is for per-sequence advantages");
        }
        Ok(())
    }
}

//! Checks which parameters an advantage estimator takes, and that they are in their domain.

use super::{AdvantageChoice, Estimator, RobustChoice};
use crate::Error;

impl Estimator {
    /// Whether the group op divides by one standard deviation.
    fn divides_by_std(self) -> bool {
        use Estimator::{Gdpo, Grpo, GrpoBatch, PassK, Vcpo};
        matches!(self, Grpo | GrpoBatch | PassK | Vcpo | Gdpo)
    }
}

impl AdvantageChoice {
    /// Errors unless every parameter is in its domain and is used by the estimator.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Self { ddof, eps, .. } = *self;
        let finite = |x: f64| x >= 0.0 && x.is_finite();
        ensure!(ddof <= 1, "advantage.ddof is {ddof}: expected 0 or 1");
        ensure!(finite(eps), "advantage.eps is {eps}: expected a finite number of at least 0");
        // One call for each parameter: a table would be rebuilt on every call of a recipe.
        let own = |name: &str, value: Option<f64>, estimator, spelled: &str, expected: &str| {
            let Some(value) = value else { return Ok(()) };
            ensure!(self.estimator == estimator, "advantage.{name} is used by the estimator {spelled} only");
            let good = match name {
                "gamma" | "decay" => (0.0..=1.0).contains(&value),
                "k" => value >= 1.0,
                "winsor_share" => (0.0..0.5).contains(&value),
                "f_norm" => value > 0.0 && finite(value),
                _ => finite(value),
            };
            ensure!(good, "advantage.{name} is {value}: expected {expected}");
            Ok(())
        };
        own("mad_floor", self.mad_floor, Estimator::McGrpo, "mc_grpo", "a finite number of at least 0")?;
        own("over_nonzero", self.over_nonzero.map(|_| 1.0), Estimator::McGrpo, "mc_grpo", "true or false")?;
        own("f_norm", self.f_norm, Estimator::Gpg, "gpg", "a positive finite number")?;
        own("gamma", self.gamma, Estimator::ReinforcePlusPlus, "reinforce_plus_plus", "0 to 1")?;
        own("tau2", self.tau2, Estimator::V05, "v0_5", "a finite number of at least 0")?;
        own("decay", self.decay, Estimator::RoleBaseline, "role_baseline", "0 to 1")?;
        own("k", self.k.map(f64::from), Estimator::PassAtK, "pass_at_k", "at least 1")?;
        own("laplace", self.laplace.map(|_| 1.0), Estimator::V05, "v0_5", "true or false")?;
        own("leave_one_out", self.leave_one_out.map(|_| 1.0), Estimator::Gdpo, "gdpo", "true or false")?;
        own("stop_at_mask", self.stop_at_mask.map(|_| 1.0), Estimator::Tempo, "tempo", "true or false")?;
        own("pad_id", self.pad_id.map(f64::from), Estimator::Tempo, "tempo", "a token id")?;
        own("robust", self.robust.map(|_| 1.0), Estimator::Vcpo, "vcpo", "median or winsorised")?;
        own("winsor_share", self.winsor_share, Estimator::Vcpo, "vcpo", "at least 0 and below 0.5")?;
        own(
            "role_order",
            self.role_order.map(|_| 1.0),
            Estimator::RoleBaseline,
            "role_baseline",
            "an order",
        )?;
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
                self.estimator == Estimator::Grpo,
                "advantage.over_time replaces advantage.estimator: leave one out"
            );
        }
        ensure!(
            self.estimator != Estimator::Tempo || (self.limit.is_none() && self.whiten.is_none()),
            "advantage.limit and advantage.whiten are not for tempo"
        );
        if let Some(limit) = self.limit {
            let held = limit == f64::INFINITY || (limit > 0.0 && (limit as f32).is_normal());
            ensure!(held, "advantage.limit is {limit}: expected a positive number of binary32");
            let per_token = self.estimator == Estimator::ReinforcePlusPlus;
            ensure!(!per_token, "advantage.limit is for advantages per sequence");
        }
        Ok(())
    }
}

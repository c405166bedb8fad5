//! The columns that a recipe reads, and the stages that read them.

use super::{
    AdvantageEstimator, Against, EntropyKind, GateChoice, KlPlace, RatioLevel, Recipe, ShapingChoice,
    SharpenChoice, TimeChoice,
};
use crate::Error;
use crate::columns::{Column, Columns};
use lockstep_core::gate::Divergence;
use std::fmt::Write as _;

/// One of the two calls of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Recipe::advantages`].
    Advantages,
    /// [`Recipe::loss`].
    Loss,
}

/// A column that a recipe reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Need {
    /// The column.
    pub column: Column,
    /// The stage that reads it, by its TOML key.
    pub stage: &'static str,
    /// The call that reads it.
    pub call: Call,
    /// Whether the call returns an error without it.
    pub required: bool,
    /// Another column that can be given instead.
    pub or: Option<Column>,
}

/// Takes a stage, whether it requires the columns, and the columns that it reads.
type Say<'a> = &'a mut dyn FnMut(&'static str, bool, &[Column]);

impl Recipe {
    /// Lists the columns that the recipe reads, in the order of its stages. All other columns of a batch are
    /// ignored.
    ///
    /// ```
    /// use lockstep::{Column, Recipe};
    /// let needs = Recipe::named("minirl")?.needs();
    /// let rollout = needs.iter().find(|need| need.column == Column::logp_rollout).unwrap();
    /// assert_eq!((rollout.stage, rollout.required), ("gate", true));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = Vec::new();
        for call in [Call::Advantages, Call::Loss] {
            self.each_need(call, &mut |need| {
                let known =
                    needs.iter_mut().find(|known| (known.column, known.call) == (need.column, need.call));
                match known {
                    Some(known) if known.required || !need.required => {}
                    Some(known) => *known = need,
                    None => needs.push(need),
                }
            });
        }
        needs
    }

    /// The set of columns that either call can use.
    pub fn reads(&self) -> Columns {
        self.reads_of(Call::Advantages).and(self.reads_of(Call::Loss))
    }

    /// The set of columns that a call can use.
    pub fn reads_of(&self, call: Call) -> Columns {
        let mut columns = Columns::NONE;
        self.each_need(call, &mut |need| {
            columns.insert(need.column);
            need.or.into_iter().for_each(|or| columns.insert(or));
        });
        columns
    }

    /// Checks that a call has the columns that it needs, where `there` says which columns the batch has;
    /// returns those of them that it uses. Errors: all missing columns, each with the stage that reads it.
    // Asks for the few columns that the recipe reads: a set of all that the batch has takes longer to make.
    pub(crate) fn check_columns(&self, call: Call, there: impl Fn(Column) -> bool) -> Result<Columns, Error> {
        let (mut missing, mut used) = (false, Columns::NONE);
        self.each_need(call, &mut |need| {
            let [own, other] = [Some(need.column), need.or].map(|column| column.filter(|c| there(*c)));
            missing |= need.required && own.or(other).is_none();
            own.into_iter().chain(other).for_each(|column| used.insert(column));
        });
        if !missing {
            return Ok(used);
        }
        self.missing_columns(call, used)
    }

    #[cold]
    fn missing_columns(&self, call: Call, used: Columns) -> Result<Columns, Error> {
        let lacks = |need: &Need| {
            let other = need.or.is_some_and(|or| used.contains(or));
            need.required && !used.contains(need.column) && !other
        };
        let mut said = String::new();
        self.each_need(call, &mut |need| {
            if lacks(&need) {
                let or = need.or.map_or(String::new(), |or| format!(" or {}", or.name()));
                let comma = if said.is_empty() { "" } else { ", " };
                // Writing to a string cannot fail.
                _ = write!(said, "{comma}{}{or} (for {})", need.column.name(), need.stage);
            }
        });
        Err(Error::Columns { recipe: self.name.clone(), missing: said })
    }

    /// Calls `f` with each need of a call. Not generic: this is long, and it has six callers.
    fn each_need(&self, call: Call, f: &mut dyn FnMut(Need)) {
        let summed = self.reward.components.is_some();
        let mut say = |stage, required, columns: &[Column]| {
            // The sum of the components replaces the column.
            let read = columns.iter().filter(|column| !(summed && **column == Column::rewards));
            read.for_each(|column| f(Need { column: *column, stage, call, required, or: None }));
        };
        say("batch", true, &[Column::cu_seqlens, Column::cu_groups]);
        say("batch", false, &[Column::loss_mask]);
        match call {
            Call::Advantages => {
                self.advantage_needs(&mut say);
                let (estimator, over_time) = (self.advantage.estimator, self.advantage.over_time);
                let remax = over_time.is_none() && estimator == AdvantageEstimator::ReMax;
                let of_sequences = self.reward.of_sequences().filter(|_| remax);
                of_sequences.into_iter().for_each(|stage| say(stage, true, &[Column::rewards]));
                let mut either = |stage, column, or| {
                    f(Need { column, stage, call, required: true, or: Some(or) });
                };
                if remax && of_sequences.is_none() {
                    either("advantage", Column::rewards, Column::token_rewards);
                }
                if let Some(TimeChoice::OptimalTokenBaseline { .. }) = over_time {
                    either("advantage.over_time", Column::score_norm, Column::sum_p_squared);
                }
            }
            Call::Loss => self.loss_needs(&mut say),
        }
    }

    fn advantage_needs(&self, say: Say<'_>) {
        match (self.reward.components, self.reward.clip) {
            (Some(_), _) => {
                say("reward.components", true, &[Column::reward_components, Column::reward_weights]);
            }
            (None, Some(_)) => say("reward.clip", true, &[Column::rewards]),
            (None, None) => {}
        }
        let stage = "advantage";
        match self.advantage.over_time {
            None => {
                match self.advantage.estimator {
                    AdvantageEstimator::ReinforcePlusPlus => say(stage, true, &[Column::token_rewards]),
                    AdvantageEstimator::ReMax => say(stage, true, &[Column::baseline]),
                    AdvantageEstimator::Gdpo => {
                        say(stage, true, &[Column::reward_components, Column::reward_weights])
                    }
                    _ if matches!(self.reward.shaping, Some(ShapingChoice::EvolRl { .. })) => {}
                    _ => say(stage, true, &[Column::rewards]),
                }
                match self.advantage.estimator {
                    AdvantageEstimator::ReinforcePlusPlus => {}
                    AdvantageEstimator::Tempo => {
                        say(stage, true, &[Column::tokens]);
                        say(stage, false, &[Column::valid, Column::outcome_weights]);
                    }
                    AdvantageEstimator::V05 => {
                        say(stage, true, &[Column::baseline]);
                        say(stage, false, &[Column::valid]);
                    }
                    AdvantageEstimator::Vcpo => {
                        say(stage, true, &[Column::baseline_weights]);
                        say(stage, false, &[Column::valid]);
                    }
                    AdvantageEstimator::RoleBaseline => {
                        say(stage, true, &[Column::roles]);
                        say(stage, false, &[Column::role_values, Column::valid]);
                    }
                    _ => say(stage, false, &[Column::valid]),
                }
            }
            Some(choice) => {
                let stage = "advantage.over_time";
                match choice {
                    TimeChoice::Gae { .. } => say(stage, true, &[Column::token_rewards, Column::values_old]),
                    TimeChoice::Vtrace { .. } => {
                        let logps = [Column::logp_old, Column::logp_rollout];
                        say(stage, true, &logps);
                        say(stage, true, &[Column::token_rewards, Column::values_old]);
                    }
                    TimeChoice::Mars { .. } => {
                        say(stage, true, &[Column::cu_turns, Column::turn_rewards, Column::turn_roles]);
                    }
                    TimeChoice::UiS1 { .. } => {
                        say(stage, true, &[Column::rewards, Column::cu_steps, Column::cu_step_tokens]);
                        say(stage, true, &[Column::step_rewards, Column::step_matches]);
                    }
                    TimeChoice::SignedReturn { .. } => say(stage, true, &[Column::rewards]),
                    TimeChoice::OptimalTokenBaseline { .. } => {
                        // The probability is exp(logp_old).
                        say(stage, true, &[Column::token_rewards, Column::logp_old]);
                    }
                }
                if matches!(choice, TimeChoice::Gae { .. } | TimeChoice::Vtrace { .. }) {
                    say(stage, false, &[Column::terminated, Column::truncated, Column::bootstrap]);
                }
            }
        }
        match self.reward.shaping {
            Some(ShapingChoice::Fapo { .. }) => say("reward.shaping", true, &[Column::flawed]),
            Some(ShapingChoice::Brpo {}) => say("reward.shaping", true, &[Column::reference]),
            Some(ShapingChoice::Grpovi { .. }) => say("reward.shaping", false, &[Column::logp_ref]),
            Some(ShapingChoice::EvolRl { .. }) => {
                say("reward.shaping", true, &[Column::answer_class, Column::similarity]);
            }
            Some(ShapingChoice::Signs { .. } | ShapingChoice::Conciser { .. }) | None => {}
        }
        match self.reward.sharpen {
            Some(SharpenChoice::Xrpo { .. }) => {
                say("reward.sharpen", true, &[Column::rewards, Column::logp_old]);
            }
            Some(SharpenChoice::Ace { .. }) => {
                say("reward.sharpen", true, &[Column::rewards, Column::logp_old, Column::logp_ref]);
            }
            None => {}
        }
        if self.reward.filter.is_some_and(|filter| filter.of_rewards()) {
            say("reward.filter", true, &[Column::rewards]);
        }
        if self.reward.weights.is_some_and(|weights| weights.difficulty.is_some()) {
            say("reward.weights", true, &[Column::difficulty]);
        }
        match self.reward.entropy.map(|choice| choice.of) {
            Some(EntropyKind::Sampled) => say("reward.entropy", true, &[Column::logp_old]),
            Some(EntropyKind::Distribution) => say("reward.entropy", true, &[Column::entropy]),
            None => {}
        }
        if self.kl.is_some_and(|kl| kl.place == KlPlace::Reward) {
            say("kl", true, &[Column::logp_old, Column::logp_ref]);
        }
        if self.correction.is_some() {
            say("correction", true, &[Column::logp_old, Column::logp_rollout]);
        }
    }

    fn loss_needs(&self, say: Say<'_>) {
        let old = if self.ratio.on_policy { Column::logp } else { Column::logp_old };
        let of = |against| match against {
            Against::Old => old,
            Against::Rollout => Column::logp_rollout,
        };
        match self.ratio.level {
            RatioLevel::Given => say("ratio", true, &[Column::logp, Column::log_ratio]),
            _ if self.ratio.on_policy => say("ratio", true, &[Column::logp]),
            _ => say("ratio", true, &[Column::logp, Column::logp_old]),
        }
        match self.gate {
            GateChoice::TrustRegion { divergence: Divergence::Given, .. } => {
                say("gate", true, &[Column::divergence]);
            }
            GateChoice::Minirl { .. } | GateChoice::Topr {} | GateChoice::TrustRegion { .. } => {
                say("gate", true, &[Column::logp_rollout])
            }
            GateChoice::Remix { .. } => say("gate", true, &[Column::logp_latest]),
            GateChoice::Vespo { against, .. } => say("gate", true, &[of(against)]),
            GateChoice::ClipCov { .. } => say("gate", true, &[Column::seed]),
            GateChoice::Dro { .. } | GateChoice::KlCov { .. } => say("gate", true, &[old]),
            _ => {}
        }
        if self.mask.opsm_delta.is_some() {
            say("mask.opsm_delta", true, &[of(self.mask.opsm_against)]);
        }
        if self.mask.top_entropy.is_some() {
            say("mask.top_entropy", true, &[Column::entropy]);
        }
        match self.kl.map(|kl| kl.place) {
            Some(KlPlace::Loss) => say("kl", true, &[Column::logp_ref]),
            Some(KlPlace::Convex) => {
                say("kl", true, &[Column::logp_ref, Column::logp_previous, Column::step]);
            }
            Some(KlPlace::Reward) | None => {}
        }
        if self.entropy.is_some() {
            say("entropy", true, &[Column::entropy]);
        }
        if let Some(value) = &self.value {
            say("value", true, &[Column::values]);
            say("value", value.cliprange_value.is_some(), &[Column::values_old]);
        }
        say("aggregation", false, &[Column::counts]);
    }
}

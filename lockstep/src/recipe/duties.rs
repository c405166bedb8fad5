//! Duties: what a recipe requires of the training loop, because no function over a batch can do it.

use super::{AdvantageEstimator, GateChoice, KlPlace, Recipe, TimeChoice};
use serde::{Deserialize, Serialize};

/// The list of duties: variant, name in TOML, what the loop must do.
macro_rules! duties {
    ($($duty:ident $name:literal $meaning:literal;)*) => {
        /// A duty: something that a recipe requires of the training loop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Duty {
            $(#[doc = $meaning] #[serde(rename = $name)] $duty,)*
        }

        impl Duty {
            /// All duties.
            pub const ALL: &'static [Duty] = &[$(Duty::$duty),*];

            /// The name of the duty, as spelled in the `duties` of a recipe.
            pub fn name(self) -> &'static str {
                match self { $(Duty::$duty => $name,)* }
            }

            /// A description of what the training loop must do.
            pub fn meaning(self) -> &'static str {
                match self { $(Duty::$duty => $meaning,)* }
            }
        }
    };
}

duties! {
    DynamicSampling "dynamic_sampling"
        "Sample more prompts until the batch is full of groups that the filter keeps.";
    PruneSolved "prune_solved"
        "At the end of an epoch, drop the prompts whose solve rate is 0.9 or more.";
    ReplaySuccesses "replay_successes"
        "Store the last success of each prompt; where a whole group fails, put it in place of one response.";
    GreedyResponse "greedy_response"
        "Decode one greedy response per prompt and give its reward as `baseline`.";
    PivotResponse "pivot_response"
        "Sample one response more per prompt: the pivot, whose advantage is 0, trains nothing.";
    TrackedValue "tracked_value"
        "Track a value of each prompt and give it, as it was before this visit, as `baseline`.";
    PriorValue "prior_value"
        "Estimate a value of each prompt before sampling and give it as `baseline`.";
    CarryRoleValues "carry_role_values"
        "Give the state of a batch to the next as `role_values`: the moving averages of the roles.";
    TrainCritic "train_critic"
        "Train a critic: give `values_old` of the sampled batch and `values` when it trains.";
    ScaleLearningRate "scale_learning_rate"
        "For each step, scale the learning rate by the square root of effective over sampled sequences.";
    LatestPolicy "latest_policy"
        "Train on batches of earlier policies too, with the latest policy's log-probabilities as \
         `logp_latest`.";
    PreviousPolicy "previous_policy"
        "Keep the policy before the update: its log-probabilities are `logp_previous`; count `step`.";
    ResetReference "reset_reference"
        "Once, at a step of your choice, make the policy its own reference and use no earlier batches.";
    MicroBatchMean "micro_batch_mean"
        "Divide each micro-batch by its own tokens: give no `counts` of the whole batch.";
}

impl Recipe {
    /// Lists what the recipe requires of the training loop: the duties that its choices imply, and those of
    /// its `duties`.
    ///
    /// ```
    /// use lockstep::Recipe;
    /// use lockstep::recipe::Duty;
    /// assert_eq!(Recipe::named("remax")?.duties(), [Duty::GreedyResponse]);
    /// assert_eq!(Recipe::named("grpo")?.duties(), []);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn duties(&self) -> Vec<Duty> {
        let estimator = self.advantage.estimator;
        let critic =
            matches!(self.advantage.over_time, Some(TimeChoice::Gae { .. } | TimeChoice::Vtrace { .. }));
        // The same estimator serves for the greedy response's reward and for a tracked value.
        let greedy = estimator == AdvantageEstimator::ReMax && !self.duties.contains(&Duty::TrackedValue);
        let implied = |duty| match duty {
            Duty::ReplaySuccesses => self.reward.replay_successes,
            Duty::GreedyResponse => greedy,
            Duty::PivotResponse => estimator == AdvantageEstimator::McGrpo,
            Duty::PriorValue => estimator == AdvantageEstimator::V05,
            Duty::CarryRoleValues => estimator == AdvantageEstimator::RoleBaseline,
            Duty::TrainCritic => critic || self.value.is_some(),
            Duty::LatestPolicy => matches!(self.gate, GateChoice::Remix { .. }),
            Duty::PreviousPolicy => self.kl.is_some_and(|kl| kl.place == KlPlace::Convex),
            _ => false,
        };
        let asked = |duty: &Duty| implied(*duty) || self.duties.contains(duty);
        Duty::ALL.iter().copied().filter(asked).collect()
    }
}

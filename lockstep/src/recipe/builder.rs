//! Builds recipes in code.

use super::{
    AdvantageChoice, AggregationMode, CorrectionChoice, EntropyChoice, GateChoice, GuardChoice, Horizon,
    KlChoice, RatioLevel, Recipe, Reduction, SingletonChoice, ValueChoice,
};
use crate::Error;

/// Builds a [`Recipe`], starting from the defaults of `grpo` or from any recipe.
///
/// ```
/// use lockstep::Recipe;
/// use lockstep::recipe::{AggregationMode, SingletonChoice};
/// let recipe = Recipe::builder("mine")
///     .ppo_clip(0.2, 0.28, Some(3.0))
///     .aggregation(AggregationMode::TokenMean)
///     .singleton(SingletonChoice::Zero)
///     .build()?;
/// assert_eq!(recipe, Recipe::from_toml(&recipe.to_toml()?)?);
/// # Ok::<(), lockstep::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder(Recipe);

impl Recipe {
    /// Starts a builder from the defaults of `grpo`.
    pub fn builder(name: &str) -> Builder {
        Recipe::default().rebuild(name)
    }

    /// Starts a builder from this recipe, under another name.
    pub fn rebuild(self, name: &str) -> Builder {
        Builder(Recipe { name: name.into(), ..self })
    }
}

impl Builder {
    /// Sets everything about advantages.
    pub fn advantage(mut self, choice: AdvantageChoice) -> Self {
        self.0.advantage = choice;
        self
    }

    /// Sets whether advantages are divided by the standard deviation; Dr.GRPO does not. `false` also removes
    /// `least_std`.
    pub fn norm_by_std(mut self, yes: bool) -> Self {
        self.0.advantage.norm_by_std = yes;
        if !yes {
            self.0.advantage.least_std = None;
        }
        self
    }

    /// Sets ddof and eps of the standard deviation.
    pub fn std(mut self, ddof: u32, eps: f64) -> Self {
        (self.0.advantage.ddof, self.0.advantage.eps) = (ddof, eps);
        self
    }

    /// Sets the policy for groups of one.
    pub fn singleton(mut self, policy: SingletonChoice) -> Self {
        self.0.advantage.singleton = policy;
        self
    }

    /// Sets the guard of the log-ratio and its bound.
    pub fn guard(mut self, guard: GuardChoice, bound: f32) -> Self {
        (self.0.ratio.guard, self.0.ratio.guard_bound) = (guard, bound);
        self
    }

    /// Sets the sequence-level ratio (GSPO), with an optional upper bound of its logarithm.
    pub fn sequence_ratio(mut self, log_max: Option<f32>) -> Self {
        (self.0.ratio.level, self.0.ratio.log_max) = (RatioLevel::Sequence, log_max);
        self
    }

    /// Sets the PPO clip with distances `low` and `high` from 1; `dual` is c of the dual clip.
    pub fn ppo_clip(mut self, low: f32, high: f32, dual: Option<f32>) -> Self {
        self.0.gate = GateChoice::PpoClip { clip_ratio_low: low, clip_ratio_high: high, clip_ratio_c: dual };
        self
    }

    /// Sets SAPO's soft gate.
    pub fn sapo(mut self, tau_pos: f32, tau_neg: f32) -> Self {
        self.0.gate = GateChoice::Sapo { tau_pos, tau_neg };
        self
    }

    /// Sets the gate.
    pub fn gate(mut self, gate: GateChoice) -> Self {
        self.0.gate = gate;
        self
    }

    /// Sets the KL term.
    pub fn kl(mut self, kl: KlChoice) -> Self {
        self.0.kl = Some(kl);
        self
    }

    /// Sets the rollout correction.
    pub fn correction(mut self, correction: CorrectionChoice) -> Self {
        self.0.correction = Some(correction);
        self
    }

    /// Sets the aggregation mode; [`Builder::horizon`] sets its constant, if it needs one.
    pub fn aggregation(mut self, mode: AggregationMode) -> Self {
        self.0.aggregation.mode = mode;
        self
    }

    /// Sets the constant C of `seq-mean-token-sum-norm`, in tokens.
    pub fn horizon(mut self, tokens: f64) -> Self {
        self.0.aggregation.horizon = Some(Horizon::Tokens(tokens));
        self
    }

    /// Sets the entropy bonus.
    pub fn entropy(mut self, choice: EntropyChoice) -> Self {
        self.0.entropy = Some(choice);
        self
    }

    /// Sets the loss of the critic.
    pub fn value(mut self, choice: ValueChoice) -> Self {
        self.0.value = Some(choice);
        self
    }

    /// Sets the band of `in_band_fraction`, as ratios.
    pub fn band(mut self, low: f32, high: f32) -> Self {
        self.0.metrics.band = [low, high];
        self
    }

    /// Sets how loss and metrics are summed over sequences.
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.0.metrics.reduction = reduction;
        self
    }

    /// Checks and returns the recipe. Errors: those of [`Recipe::check`].
    pub fn build(self) -> Result<Recipe, Error> {
        self.0.check()?;
        Ok(self.0)
    }
}

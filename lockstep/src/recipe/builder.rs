//! Recipes from code.

use super::{
    AdvantageChoice, AggregationMode, CorrectionChoice, EntropyChoice, GateChoice, GuardChoice, Horizon,
    KlChoice, RatioLevel, Recipe, Reduction, SingletonChoice, ValueChoice,
};
use crate::Error;

/// Builds a [`Recipe`]; starts from the defaults of `grpo`, or from any recipe.
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
    /// Starts from the defaults.
    pub fn builder(name: &str) -> Builder {
        Recipe::default().rebuild(name)
    }

    /// Starts from this recipe, under another name.
    pub fn rebuild(self, name: &str) -> Builder {
        Builder(Recipe { name: name.into(), ..self })
    }
}

impl Builder {
    /// Everything about advantages.
    pub fn advantage(mut self, choice: AdvantageChoice) -> Self {
        self.0.advantage = choice;
        self
    }

    /// Divide advantages by the standard deviation or not (Dr.GRPO). Without the division its `least_std` is
    /// gone too.
    pub fn norm_by_std(mut self, yes: bool) -> Self {
        self.0.advantage.norm_by_std = yes;
        if !yes {
            self.0.advantage.least_std = None;
        }
        self
    }

    /// ddof and eps of the standard deviation.
    pub fn std(mut self, ddof: u32, eps: f64) -> Self {
        (self.0.advantage.ddof, self.0.advantage.eps) = (ddof, eps);
        self
    }

    /// Policy for a group of one.
    pub fn singleton(mut self, policy: SingletonChoice) -> Self {
        self.0.advantage.singleton = policy;
        self
    }

    /// Guard of the log-ratio.
    pub fn guard(mut self, guard: GuardChoice, bound: f32) -> Self {
        (self.0.ratio.guard, self.0.ratio.guard_bound) = (guard, bound);
        self
    }

    /// The ratio of sequences (GSPO), with an upper bound of its logarithm.
    pub fn sequence_ratio(mut self, log_max: Option<f32>) -> Self {
        (self.0.ratio.level, self.0.ratio.log_max) = (RatioLevel::Sequence, log_max);
        self
    }

    /// PPO clip; `dual` is c of the dual clip.
    pub fn ppo_clip(mut self, low: f32, high: f32, dual: Option<f32>) -> Self {
        self.0.gate = GateChoice::PpoClip { clip_ratio_low: low, clip_ratio_high: high, clip_ratio_c: dual };
        self
    }

    /// SAPO's soft gate.
    pub fn sapo(mut self, tau_pos: f32, tau_neg: f32) -> Self {
        self.0.gate = GateChoice::Sapo { tau_pos, tau_neg };
        self
    }

    /// Any gate.
    pub fn gate(mut self, gate: GateChoice) -> Self {
        self.0.gate = gate;
        self
    }

    /// KL term.
    pub fn kl(mut self, kl: KlChoice) -> Self {
        self.0.kl = Some(kl);
        self
    }

    /// Rollout correction.
    pub fn correction(mut self, correction: CorrectionChoice) -> Self {
        self.0.correction = Some(correction);
        self
    }

    /// Aggregation; its constant, where it needs one, is [`Builder::horizon`].
    pub fn aggregation(mut self, mode: AggregationMode) -> Self {
        self.0.aggregation.mode = mode;
        self
    }

    /// C of seq-mean-token-sum-norm.
    pub fn horizon(mut self, tokens: f64) -> Self {
        self.0.aggregation.horizon = Some(Horizon::Tokens(tokens));
        self
    }

    /// Entropy bonus.
    pub fn entropy(mut self, choice: EntropyChoice) -> Self {
        self.0.entropy = Some(choice);
        self
    }

    /// Loss of the critic.
    pub fn value(mut self, choice: ValueChoice) -> Self {
        self.0.value = Some(choice);
        self
    }

    /// Band of `in_band_fraction`.
    pub fn band(mut self, low: f32, high: f32) -> Self {
        self.0.metrics.band = [low, high];
        self
    }

    /// How loss and metrics are summed over sequences.
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.0.metrics.reduction = reduction;
        self
    }

    /// Checks and returns the recipe.
    pub fn build(self) -> Result<Recipe, Error> {
        self.0.check()?;
        Ok(self.0)
    }
}

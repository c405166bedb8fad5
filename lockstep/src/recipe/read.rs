//! Reads recipes from TOML and checks them.

use super::{GuardChoice, RatioAdvantage, RatioChoice, RatioLevel, Recipe, extend};
use crate::Error;
use serde::Serialize;
use toml::Table;
use toml::ser::ValueSerializer;

impl Recipe {
    /// Reads and checks a recipe; see the [module](super) for the format.
    ///
    /// Errors: invalid TOML, or an unknown key or value (line, column, what was expected); a number that its
    /// setting cannot hold; a value out of its domain; a combination that is not supported.
    ///
    /// ```
    /// use lockstep::Recipe;
    /// let recipe = Recipe::from_toml("[gate]\nkind = \"sapo\"\n")?;
    /// assert_eq!(recipe.advantage, Recipe::named("grpo")?.advantage);
    /// let error = Recipe::from_toml("[gate]\nkind = \"sapo\"\nclip_ratio_low = 0.2\n").unwrap_err();
    /// assert!(error.to_string().contains("clip_ratio_low"));
    /// let mine = Recipe::from_toml("extends = \"dapo\"\ngate.clip_ratio_c = \"none\"\n")?;
    /// assert_eq!(mine.aggregation, Recipe::named("dapo")?.aggregation);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Recipe, Error> {
        let recipe = extend::read(text, None)?;
        recipe.check()?;
        Ok(recipe)
    }

    /// Changes choices of this recipe, as a file changes those of the recipe that it `extends`.
    ///
    /// Errors: those of [`Recipe::from_toml`]; the key `extends`.
    ///
    /// ```
    /// use lockstep::Recipe;
    /// let wider = Recipe::named("dapo")?.with_toml("gate.clip_ratio_high = 0.3")?;
    /// assert_eq!(wider, Recipe::from_toml("extends = \"dapo\"\ngate.clip_ratio_high = 0.3")?);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn with_toml(&self, choices: &str) -> Result<Recipe, Error> {
        let own = toml::from_str(&self.to_toml()?).map_err(|e| Error::Recipe(e.to_string()))?;
        let recipe = extend::read(choices, Some(own))?;
        recipe.check()?;
        Ok(recipe)
    }

    /// Writes the recipe as TOML, with every choice written out.
    pub fn to_toml(&self) -> Result<String, Error> {
        let wrong = |e: toml::ser::Error| Error::Recipe(e.to_string());
        // One line of TOML first, then its tables: the serialiser of whole documents has four types, each of
        // which would compile every choice again.
        let mut line = String::from("recipe = ");
        self.serialize(ValueSerializer::new(&mut line)).map_err(wrong)?;
        let read: Table = toml::from_str(&line).map_err(|e| Error::Recipe(e.to_string()))?;
        toml::to_string(&read.get("recipe")).map_err(wrong)
    }

    /// Checks that every value is in its domain and that the choices can be combined.
    ///
    /// Errors: the first value out of its domain, or the first pair of choices that cannot be combined.
    pub fn check(&self) -> Result<(), Error> {
        self.advantage.check()?;
        self.reward.check()?;
        let bound = self.ratio.guard_bound;
        ensure!(
            bound > 0.0 && bound.is_finite(),
            "ratio.guard_bound is {bound}: expected a positive finite number"
        );
        ensure!(
            self.ratio.guard != GuardChoice::None || bound == RatioChoice::default().guard_bound,
            "ratio.guard_bound is used by ratio.guard clamp and straight_through only"
        );
        let of_sequences = self.ratio.level == RatioLevel::Sequence;
        if let Some(max) = self.ratio.log_max {
            ensure!(of_sequences, "ratio.log_max is used by ratio.level sequence only");
            ensure!(max > 0.0, "ratio.log_max is {max}: expected a positive number");
        }
        ensure!(
            of_sequences || self.ratio.advantage != RatioAdvantage::SequenceMean,
            "ratio.advantage sequence_mean is used by ratio.level sequence only"
        );
        self.check_gate()?;
        if let Some(correction) = &self.correction {
            correction.params()?;
        }
        if let Some(kl) = &self.kl {
            ensure!(kl.coef.is_finite(), "kl.coef is {}: expected a finite number", kl.coef);
            for (name, clamp) in [("clamp_in", kl.clamp_in), ("clamp_out", kl.clamp_out)] {
                let Some(value) = clamp else { continue };
                ensure!(value > 0.0, "kl.{name} is {value}: expected a positive number");
            }
        }
        self.check_conflicts()?;
        self.aggregation.check("aggregation")?;
        if let Some(entropy) = &self.entropy {
            ensure!(entropy.coef.is_finite(), "entropy.coef is {}: expected a finite number", entropy.coef);
            entropy.aggregation.map_or(Ok(()), |own| own.check_plain("entropy.aggregation"))?;
        }
        if let Some(value) = &self.value {
            value.check()?;
        }
        let [low, high] = self.metrics.band;
        ensure!(0.0 <= low && low <= high, "metrics.band is [{low}, {high}]: expected 0 <= low <= high");
        Ok(())
    }
}

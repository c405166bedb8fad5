//! The two calls for a case.

use crate::inputs::{Inputs, Shape, floats};
use crate::numbers::Got;
use crate::settings::Overlay;
use lockstep::{Credit, Device, Loss, Recipe, RolloutsBuf};
use std::ops::Range;

/// Sets columns and credit from inputs that the standard names do not cover.
pub(crate) type Prepare = Box<dyn Fn(&Inputs<'_>, &mut RolloutsBuf, &mut Credit) -> Result<(), String>>;
/// A number that only one table knows.
pub(crate) type Own = Box<dyn Fn(&Outcome<'_>) -> Result<Got, String>>;

/// A case in which Lockstep differs on purpose, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exception {
    /// The numbers differ.
    Differs(&'static str),
    /// The call fails with an error that contains the first text.
    Refused(&'static str, &'static str),
}

/// A table's description of a case: the recipe, what lies outside it, and what is compared.
pub(crate) struct Setup {
    pub(crate) recipe: Overlay,
    pub(crate) calls: Calls,
    /// The inputs that the op takes.
    pub(crate) inputs: &'static [&'static str],
    /// The numbers that the file must have, exactly these; `metrics.x` is `x` among the metrics.
    pub(crate) expects: Vec<&'static str>,
    /// Those of them that Lockstep does not compute, and why.
    pub(crate) skips: Vec<(&'static str, &'static str)>,
    /// A factor that the framework applies to loss and gradients outside its loss function.
    pub(crate) scale: f64,
    /// Whether the framework logs its loss before applying it.
    pub(crate) logged_unscaled: bool,
    /// Whether the gradient's elements are exponentials of numbers in the tens.
    pub(crate) steep: bool,
    /// Live tokens, nonempty sequences, and sequences of the whole batch, if this is a part of it.
    pub(crate) counts: [Option<u64>; 3],
    /// Weights of several rewards.
    pub(crate) reward_weights: Vec<f64>,
    /// Reads the inputs with table-specific names; runs after the others.
    pub(crate) prepare: Option<Prepare>,
    /// Numbers with table-specific names.
    pub(crate) own: Vec<(&'static str, Own)>,
    /// What is known to differ in this case.
    pub(crate) exception: Option<Exception>,
}

/// The calls of an op.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// [`Recipe::advantages`].
    Advantages,
    /// [`Recipe::loss`] with the file's advantages, weights and returns, preceded by [`Recipe::advantages`]
    /// if the recipe corrects the rollout or weights responses.
    Loss,
}

impl Setup {
    pub(crate) fn new(
        recipe: Overlay,
        calls: Calls,
        inputs: &'static [&'static str],
        expects: &[&'static str],
    ) -> Self {
        Setup {
            recipe,
            calls,
            inputs,
            expects: expects.to_vec(),
            skips: Vec::new(),
            scale: 1.0,
            logged_unscaled: false,
            steep: false,
            counts: [None; 3],
            reward_weights: Vec::new(),
            prepare: None,
            own: Vec::new(),
            exception: None,
        }
    }

    /// Expects a number that only this table knows.
    pub(crate) fn own(
        &mut self,
        name: &'static str,
        get: impl Fn(&Outcome<'_>) -> Result<Got, String> + 'static,
    ) {
        self.expects.push(name);
        self.own.push((name, Box::new(get)));
    }
}

/// Maximum number of tokens of a case, so that the offsets of a damaged file cannot exhaust memory.
pub(crate) const LARGEST: usize = 1 << 20;

/// The results of the calls.
pub(crate) struct Outcome<'a> {
    pub(crate) device: &'a Device,
    pub(crate) setup: &'a Setup,
    pub(crate) recipe: Recipe,
    pub(crate) shape: Shape,
    pub(crate) columns: RolloutsBuf,
    pub(crate) credit: Credit,
    pub(crate) loss: Option<Loss>,
}

pub(crate) fn text(error: lockstep::Error) -> String {
    error.to_string()
}

impl<'a> Outcome<'a> {
    /// Makes the calls.
    pub(crate) fn new(device: &'a Device, setup: &'a Setup, inputs: &Inputs<'_>) -> Result<Self, String> {
        let recipe = setup.recipe.recipe()?;
        let (columns, credit) = (RolloutsBuf::default(), Credit::default());
        let shape = inputs.shape()?;
        let mut out = Outcome { device, setup, recipe, shape, columns, credit, loss: None };
        for name in inputs.names().filter(|name| setup.inputs.contains(name)) {
            out.read(name, inputs)?;
        }
        if let Some(prepare) = &setup.prepare {
            prepare(inputs, &mut out.columns, &mut out.credit)?;
        }
        inputs.finish()?;
        if out.columns.cu_seqlens.is_none() {
            out.columns.cu_seqlens = inputs.cu_seqlens()?;
        }
        let batch = out.columns.batch().map_err(text)?;
        let (tokens, counts) = (batch.tokens(), batch.counts(device).map_err(text)?);
        let sequences = counts.sequences as usize;
        if tokens > LARGEST {
            return Err(format!("`cu_seqlens` ends at {tokens}: a golden case has at most {LARGEST} tokens"));
        }
        let Outcome { columns, credit, recipe, .. } = &mut out;
        let own = [counts.tokens, counts.nonempty, counts.sequences];
        if setup.counts.iter().any(Option::is_some) {
            columns.counts = Some((0..3).map(|k| setup.counts[k].unwrap_or(own[k])).collect());
        }
        let weighted = recipe.correction.is_some() || recipe.reward.weights.is_some();
        if setup.calls == Calls::Advantages || weighted {
            // An op without rewards uses the estimator `reward`, which passes them through.
            let _ = columns.rewards.get_or_insert_with(|| vec![0.0; sequences]);
            let given = std::mem::take(credit);
            *credit = recipe.advantages(device, &columns.view()).map_err(text)?;
            if setup.calls == Calls::Loss {
                (credit.advantage, credit.per_token) = (given.advantage, given.per_token);
                let product = |(made, given): (&f32, &f32)| made * given;
                credit.weights = match (credit.weights.take(), given.weights) {
                    (Some(made), Some(given)) => Some(made.iter().zip(&given).map(product).collect()),
                    (made, given) => made.or(given),
                };
                credit.loss_mask = credit.loss_mask.take().or(given.loss_mask);
            }
        }
        if setup.calls == Calls::Loss {
            // Defaults for ops without a policy loss (KL, values): zero advantages and an unchanged policy.
            let logp = columns.logp.get_or_insert_with(|| vec![0.0; tokens]);
            let _ = columns.logp_old.get_or_insert_with(|| logp.clone());
            if credit.advantage.is_empty() && !credit.per_token {
                credit.advantage = vec![0.0; sequences];
            }
            out.loss = Some(recipe.loss(device, &columns.view(), credit).map_err(text)?);
        }
        Ok(out)
    }

    /// Reads an input into its column or its part of the credit.
    fn read(&mut self, name: &str, inputs: &Inputs<'_>) -> Result<(), String> {
        let (columns, credit) = (&mut self.columns, &mut self.credit);
        match name {
            "cu_seqlens" => columns.cu_seqlens = Some(inputs.whole(name)?),
            "cu_groups" => columns.cu_groups = Some(inputs.whole(name)?),
            "loss_mask" => columns.loss_mask = Some(inputs.whole(name)?),
            "tokens" => columns.tokens = Some(inputs.whole(name)?),
            "rewards_per_func" => {
                let (rows, weights) = (inputs.rows(name)?, &self.setup.reward_weights);
                if rows.iter().any(|row| row.len() != weights.len()) {
                    return Err(format!("`{name}` has not one reward for each of `reward_weights`"));
                }
                let of = |k: usize| rows.iter().map(move |row| row[k]);
                columns.reward_components = Some(floats(name, (0..weights.len()).flat_map(of).collect())?);
                columns.reward_weights = Some(floats("reward_weights", weights.clone())?);
            }
            _ => {
                let array = inputs.floats(name)?;
                match name {
                    "seq_advantages" | "token_advantages" | "advantages" => {
                        (credit.advantage, credit.per_token) = (array, name != "seq_advantages");
                    }
                    "returns" => credit.returns = array,
                    "is_weights" => credit.weights = Some(array),
                    "logp_new" => columns.logp = Some(array),
                    "logp_old" => columns.logp_old = Some(array),
                    "logp_ref" => columns.logp_ref = Some(array),
                    "logp_rollout" => columns.logp_rollout = Some(array),
                    "entropy" => columns.entropy = Some(array),
                    "rewards" => columns.rewards = Some(array),
                    "difficulty" => columns.difficulty = Some(array),
                    "token_rewards" => columns.token_rewards = Some(array),
                    "values" | "value_old" => columns.values_old = Some(array),
                    "value_new" => columns.values = Some(array),
                    other => return Err(format!("input `{other}` has no column")),
                }
            }
        }
        Ok(())
    }

    /// Which tokens take part.
    pub(crate) fn live(&self) -> &[bool] {
        &self.shape.live
    }

    /// The tokens of each sequence.
    pub(crate) fn spans(&self) -> &[Range<usize>] {
        &self.shape.spans
    }
}

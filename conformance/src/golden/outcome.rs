//! The two calls for a case.

use super::format::{Case, numbers};
use super::settings::Overlay;
use lockstep::{Credit, Device, Loss, Recipe, RolloutsBuf};
use serde_json::Value;
use std::ops::Range;

/// What a table says of a case: the recipe, what stays outside of it, and what is compared.
pub(super) struct Setup {
    pub(super) recipe: Overlay,
    pub(super) calls: Calls,
    /// The inputs that the op takes.
    pub(super) inputs: &'static [&'static str],
    /// The numbers that the file must have, no more and no less; `metrics.x` is `x` among the metrics.
    pub(super) expects: Vec<&'static str>,
    /// Those of them that Lockstep does not compute, and why.
    pub(super) skips: Vec<(&'static str, &'static str)>,
    /// What the framework multiplies loss and gradients by, outside of a loss.
    pub(super) scale: f64,
    /// Whether it logs its loss before that.
    pub(super) logged_unscaled: bool,
    /// Live tokens of the whole batch, where this is a part of it.
    pub(super) tokens: Option<u64>,
    /// Weights of several rewards.
    pub(super) reward_weights: Vec<f64>,
}

/// The calls of an op.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// [`Recipe::advantages`].
    Advantages,
    /// [`Recipe::loss`] with the advantages, weights and returns of the file; before it
    /// [`Recipe::advantages`] where the recipe corrects the rollout.
    Loss,
}

impl Setup {
    pub(super) fn new(
        recipe: Overlay,
        calls: Calls,
        inputs: &'static [&'static str],
        expects: &[&'static str],
    ) -> Self {
        let (expects, skips, reward_weights) = (expects.to_vec(), Vec::new(), Vec::new());
        let (scale, logged_unscaled, tokens) = (1.0, false, None);
        Setup { recipe, calls, inputs, expects, skips, scale, logged_unscaled, tokens, reward_weights }
    }
}

/// Tokens of a case: offsets of a damaged file ask for no more memory than this.
const LARGEST: usize = 1 << 20;

/// What the calls gave.
pub(super) struct Outcome<'a> {
    pub(super) device: &'a Device,
    pub(super) setup: &'a Setup,
    pub(super) recipe: Recipe,
    pub(super) columns: RolloutsBuf,
    pub(super) credit: Credit,
    pub(super) loss: Option<Loss>,
}

/// An input as binary32. The format promises that this is exact; if it is not, the comparison would mean
/// nothing.
fn floats(name: &str, values: Vec<f64>) -> Result<Vec<f32>, String> {
    let inexact = |(_, x): &(usize, &f64)| f64::from(**x as f32) != **x && !x.is_nan();
    match values.iter().enumerate().find(inexact) {
        Some((i, x)) => Err(format!("input `{name}`[{i}] is {x}: not exactly a binary32 number")),
        None => Ok(values.iter().map(|x| *x as f32).collect()),
    }
}

fn whole<T: TryFrom<u64>>(name: &str, value: &Value) -> Result<Vec<T>, String> {
    let wrong = || format!("`{name}` is not a list of whole numbers");
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter().map(|x| T::try_from(x.as_u64().ok_or_else(wrong)?).map_err(|_| wrong())).collect()
}

pub(super) fn text(error: lockstep::Error) -> String {
    error.to_string()
}

impl<'a> Outcome<'a> {
    /// Makes the calls.
    pub(super) fn new(device: &'a Device, setup: &'a Setup, case: &Case) -> Result<Self, String> {
        let recipe = setup.recipe.recipe()?;
        let (columns, credit) = (RolloutsBuf::default(), Credit::default());
        let mut out = Outcome { device, setup, recipe, columns, credit, loss: None };
        for (name, value) in &case.inputs {
            if !setup.inputs.contains(&name.as_str()) {
                return Err(format!("input `{name}` is not known for this op"));
            }
            out.read(name, value)?;
        }
        let batch = out.columns.batch().map_err(text)?;
        let (tokens, counts) = (batch.tokens(), batch.counts(device).map_err(text)?);
        let sequences = counts.sequences as usize;
        if tokens > LARGEST {
            return Err(format!("`cu_seqlens` ends at {tokens}: a golden case has at most {LARGEST} tokens"));
        }
        let Outcome { columns, credit, recipe, .. } = &mut out;
        columns.counts = setup.tokens.map(|tokens| vec![tokens, counts.nonempty, counts.sequences]);
        if setup.calls == Calls::Advantages || recipe.correction.is_some() {
            // An op without rewards has the estimator `reward`, which passes them through.
            let _ = columns.rewards.get_or_insert_with(|| vec![0.0; sequences]);
            let given = std::mem::take(credit);
            *credit = recipe.advantages(device, &columns.view()).map_err(text)?;
            if setup.calls == Calls::Loss {
                (credit.advantage, credit.per_token) = (given.advantage, given.per_token);
            }
        }
        if setup.calls == Calls::Loss {
            // What an op without a policy loss (KL, values) leaves open: nothing was gained, the policy did
            // not move.
            let logp = columns.logp.get_or_insert_with(|| vec![0.0; tokens]);
            let _ = columns.logp_old.get_or_insert_with(|| logp.clone());
            if credit.advantage.is_empty() && !credit.per_token {
                credit.advantage = vec![0.0; sequences];
            }
            out.loss = Some(recipe.loss(device, &columns.view(), credit).map_err(text)?);
        }
        Ok(out)
    }

    /// An input's column, or its part of the credit.
    fn read(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let (columns, credit) = (&mut self.columns, &mut self.credit);
        match name {
            "cu_seqlens" => columns.cu_seqlens = Some(whole(name, value)?),
            "cu_groups" => columns.cu_groups = Some(whole(name, value)?),
            "loss_mask" => columns.loss_mask = Some(whole(name, value)?),
            "rewards_per_func" => {
                let (rows, weights) =
                    (value.as_array().ok_or("`rewards_per_func` is not a list")?, &self.setup.reward_weights);
                let rows: Result<Vec<_>, _> = rows.iter().map(|row| numbers(name, row)).collect();
                let rows = rows?;
                if rows.iter().any(|row| row.len() != weights.len()) {
                    return Err(format!("`{name}` has not one reward for each of `reward_weights`"));
                }
                let of = |k: usize| rows.iter().map(move |row| row[k]);
                columns.reward_components = Some(floats(name, (0..weights.len()).flat_map(of).collect())?);
                columns.reward_weights = Some(floats("reward_weights", weights.clone())?);
                // Rewards of responses have no tokens: one each.
                columns.cu_seqlens = Some((0..=rows.len() as u32).collect());
            }
            _ => {
                let array = floats(name, numbers(name, value)?)?;
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
                    "token_rewards" => columns.token_rewards = Some(array),
                    "values" | "value_old" => columns.values_old = Some(array),
                    "value_new" => columns.values = Some(array),
                    other => return Err(format!("input `{other}` has no column")),
                }
            }
        }
        Ok(())
    }

    pub(super) fn live(&self) -> Vec<bool> {
        let tokens = self.spans().last().map_or(0, |span| span.end);
        let mask = self.columns.loss_mask.as_deref();
        (0..tokens).map(|i| mask.is_none_or(|mask| mask[i] != 0)).collect()
    }

    /// The tokens of each sequence.
    pub(super) fn spans(&self) -> Vec<Range<usize>> {
        let cu = self.columns.cu_seqlens.as_deref().unwrap_or_default();
        cu.windows(2).map(|pair| pair[0] as usize..pair[1] as usize).collect()
    }
}

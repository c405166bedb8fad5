//! Compares plans with the two calls: every recipe on a device, byte for byte.

use lockstep::plan::{Calls, Capacity};
use lockstep::recipe::{CountedSequences, GateChoice};
use lockstep::{Credit, Device, Error, Loss, Outputs, Recipe, Rollouts, recipe, synthetic};
use std::fmt;

/// Batch shapes: sequences, tokens, seed.
const BATCHES: [(usize, usize, u64); 3] = [(8, 96, 1), (12, 700, 2), (80, 900, 3)];

/// The result of comparing all recipes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of recipes whose plan consists of launches only.
    pub alone: usize,
    /// Number of recipes with a stage on the host.
    pub hosts: usize,
    /// Number of launches.
    pub launches: usize,
    /// Recipes with a differing byte, and where it is.
    pub differing: Vec<String>,
}

impl Found {
    /// Whether every byte agreed and every recipe was compared.
    pub fn passed(&self) -> bool {
        self.differing.is_empty() && self.alone + self.hosts == recipe::names().len()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { alone, hosts, launches, differing } = self;
        write!(f, "{alone} recipes are launches alone, {hosts} have a call on the host; ")?;
        write!(f, "{launches} launches, {} recipes differ {differing:?}", differing.len())
    }
}

/// Compares every recipe on a device given by name; `say` receives one line per recipe.
pub fn all(device: &str, mut say: impl FnMut(&str)) -> Result<Found, Error> {
    let device = Device::open(device)?;
    let mut found = Found::default();
    for name in recipe::names() {
        let recipe = Recipe::named(name)?;
        let mut lines = Vec::new();
        for (sequences, tokens, seed) in BATCHES {
            let rollouts = synthetic::rollouts(&recipe, sequences, tokens, seed)?;
            lines.extend(compare(&device, &recipe, &rollouts.view(), &mut found.launches)?);
        }
        let capacity = Capacity { tokens: 8, sequences: 4, groups: 1 };
        let plan = recipe.plan(capacity, Calls::Both, Outputs::ALL)?;
        let host: Vec<String> =
            plan.host_stages().iter().map(|stage| format!("{:?} ({})", stage.call, stage.stage)).collect();
        *if host.is_empty() { &mut found.alone } else { &mut found.hosts } += 1;
        let how = if host.is_empty() { String::new() } else { format!("; on the host: {}", host.join(", ")) };
        say(&format!("{name}: {}{how}", plan.launches().join(" ")));
        if !lines.is_empty() {
            found.differing.push(format!("{name}: {}", lines.join(", ")));
        }
    }
    Ok(found)
}

/// The names of the results that differ between a plan on the device and the two calls on the CPU. Compared
/// are plans of both calls together and of each alone, and also the two calls on the device.
fn compare(
    device: &Device,
    recipe: &Recipe,
    rollouts: &Rollouts<'_>,
    launches: &mut usize,
) -> Result<Vec<String>, Error> {
    let cpu = Device::cpu();
    let (credit, loss) = recipe.step(&cpu, rollouts)?;
    let batch = rollouts.batch()?;
    let capacity = Capacity { tokens: batch.tokens(), sequences: batch.sequences(), groups: batch.groups() };
    // A plan does not see how many of its capacity's sequences are real.
    let left = match &credit.loss_mask {
        Some(mask) => batch.with_mask(mask)?,
        None => batch,
    };
    let counts = left.counts(&cpu)?;
    let counts = [counts.tokens, counts.nonempty, counts.sequences];
    let counted = &Rollouts { counts: Some(rollouts.counts.unwrap_or(&counts)), ..*rollouts };
    // Unless it counts all sequences, the plan can also do its own counting.
    let all = recipe.aggregation.sequences == CountedSequences::All
        || matches!(recipe.gate, GateChoice::Gmpo { .. });
    let itself = (!all).then_some(rollouts);
    let mut differing = Vec::new();
    let calls = [Calls::Both, Calls::Advantages, Calls::Loss];
    for (calls, rollouts) in calls.into_iter().flat_map(|calls| [Some(counted), itself].map(|of| (calls, of)))
    {
        let Some(rollouts) = rollouts else { continue };
        let plan = recipe.plan(capacity, calls, Outputs::ALL)?;
        *launches += plan.launches().len();
        let Some((own, of_plan)) = plan.run(device, rollouts, Some(&credit))? else {
            differing.push(format!("{calls:?}: an alarm"));
            continue;
        };
        if calls != Calls::Loss {
            differing.extend(of_credits(&own, &credit, rollouts).map(|what| format!("{calls:?}: {what}")));
        }
        if calls != Calls::Advantages {
            differing.extend(of_losses(&of_plan, &loss).map(|what| format!("{calls:?}: {what}")));
        }
    }
    let (own, of_device) = recipe.step(device, rollouts)?;
    differing.extend(of_credits(&own, &credit, rollouts).map(|what| format!("two calls: {what}")));
    differing.extend(of_losses(&of_device, &loss).map(|what| format!("two calls: {what}")));
    Ok(differing)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn of_credits(a: &Credit, b: &Credit, rollouts: &Rollouts<'_>) -> impl Iterator<Item = &'static str> {
    let mask = |credit: &Credit| credit.loss_mask.clone().or(rollouts.loss_mask.map(<[u8]>::to_vec));
    let live = |mask: Option<Vec<u8>>| mask.filter(|mask| mask.contains(&0));
    [
        ("advantage", bits(&a.advantage) == bits(&b.advantage) && a.per_token == b.per_token),
        ("returns", bits(&a.returns) == bits(&b.returns)),
        ("weights", a.weights.as_deref().map(bits) == b.weights.as_deref().map(bits)),
        ("loss_mask", live(mask(a)) == live(mask(b))),
    ]
    .into_iter()
    .filter_map(|(name, same)| (!same).then_some(name))
}

fn of_losses(a: &Loss, b: &Loss) -> impl Iterator<Item = &'static str> {
    let rows = |loss: &Loss| loss.row_loss.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let value = |loss: &Loss| loss.value.as_ref().map(|value| (bits(&value.gradient), value.loss.to_bits()));
    let entropy = |loss: &Loss| loss.entropy.as_ref().map(|term| bits(&term.coef));
    // A plan does not return the metrics of a call on the host.
    let metrics = a.metrics.is_none() || a.metrics == b.metrics;
    [
        ("coef", bits(&a.coef) == bits(&b.coef)),
        ("token_loss", bits(&a.token_loss) == bits(&b.token_loss)),
        ("row_loss", rows(a) == rows(b)),
        ("loss", a.loss.map(f64::to_bits) == b.loss.map(f64::to_bits)),
        ("metrics", metrics),
        ("totals", a.metrics.is_none() || a.totals() == b.totals()),
        ("value", value(a) == value(b)),
        ("entropy", entropy(a) == entropy(b)),
    ]
    .into_iter()
    .filter_map(|(name, same)| (!same).then_some(name))
}

//! Plans against the two calls: every recipe on a device, byte for byte.

use lockstep::plan::{Calls, Capacity};
use lockstep::recipe::{CountedSequences, GateChoice};
use lockstep::{Credit, Device, Error, Loss, Outputs, Recipe, Rollouts, recipe, synthetic};
use std::fmt;

/// Shapes of the batches: sequences, tokens, seed.
const BATCHES: [(usize, usize, u64); 3] = [(8, 96, 1), (12, 700, 2), (80, 900, 3)];

/// What a comparison of all recipes found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Recipes whose plan is launches alone.
    pub alone: usize,
    /// Recipes with a call on the host.
    pub hosts: usize,
    /// Launches.
    pub launches: usize,
    /// Recipes of which a byte differs, and where.
    pub differing: Vec<String>,
}

impl Found {
    /// Whether every byte is the same and every recipe was compared.
    pub fn passed(&self) -> bool {
        self.differing.is_empty() && self.alone + self.hosts == recipe::names().len()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { alone, hosts, launches, differing } = self;
        write!(
            f,
            "{alone} recipes are launches alone, {hosts} have a call on the host; {launches} launches, "
        )?;
        write!(f, "{} recipes differ {differing:?}", differing.len())
    }
}

/// Every recipe on a device by name; `say` gets a line for each.
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

/// The names of what differs between a plan on the device and the two calls on the CPU: of both calls at once, of each alone, and of the two calls
/// on the device.
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
    // A plan does not see how many sequences of its capacity there are.
    let left = match &credit.loss_mask {
        Some(mask) => batch.with_mask(mask)?,
        None => batch,
    };
    let counts = left.counts(&cpu)?;
    let counts = [counts.tokens, counts.nonempty, counts.sequences];
    let counted = &Rollouts { counts: Some(rollouts.counts.unwrap_or(&counts)), ..*rollouts };
    // Otherwise it counts by itself.
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
    .filter(|(_, same)| !same)
    .map(|(name, _)| name)
}

fn of_losses(a: &Loss, b: &Loss) -> impl Iterator<Item = &'static str> {
    let rows = |loss: &Loss| loss.row_loss.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let value = |loss: &Loss| loss.value.as_ref().map(|value| (bits(&value.gradient), value.loss.to_bits()));
    let entropy = |loss: &Loss| loss.entropy.as_ref().map(|term| bits(&term.coef));
    // Metrics of a call on the host stay behind.
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
    .filter(|(_, same)| !same)
    .map(|(name, _)| name)
}

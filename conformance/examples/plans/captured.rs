//! A plan replayed in the same memory for two batches smaller than its capacity.

use lockstep::plan::{Calls, Capacity, DeviceRollouts, Plan, Queue};
use lockstep::recipe::Horizon;
use lockstep::{Device, Error, Outputs, Recipe, Rollouts, RolloutsBuf, recipe, synthetic};
use lockstep_core::ragged::Out;
use lockstep_emulated_abi::testing::Controls;
use std::fmt;

/// The outcome over all plans.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    plans: usize,
    launches: usize,
    logged: bool,
    faults: Vec<String>,
}

impl Replayed {
    pub(crate) fn passed(&self) -> bool {
        self.faults.is_empty() && self.plans > 10
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replayed { plans, launches, logged, faults } = self;
        let log =
            if *logged { "the driver's log has launches alone, with the same parameters" } else { "no log" };
        write!(
            f,
            "{plans} plans replayed for two batches, {launches} launches, {log}; {} faults {faults:?}",
            faults.len()
        )
    }
}

/// Runs every recipe whose plan consists of launches only.
pub(crate) fn all(name: &str) -> Result<Replayed, Error> {
    let device = Device::open(name)?;
    let library = if name.starts_with("rocm") { "libamdhip64.so" } else { "libcuda.so.1" };
    let controls = if name.starts_with("cpu") { None } else { Controls::try_open(library).ok() };
    let mut replayed = Replayed { logged: controls.is_some(), ..Replayed::default() };
    let capacity = Capacity { tokens: 1000, sequences: 20, groups: 6 };
    for name in recipe::names() {
        let recipe = Recipe::named(name)?;
        let plan = recipe.plan(capacity, Calls::Both, Outputs::ALL)?;
        if !plan.host_stages().is_empty() {
            continue;
        }
        plan.load(&device)?;
        let batches = [(12, 700, 5), (8, 400, 6)].map(|(s, t, seed)| counted(&recipe, s, t, seed));
        let [first, second] = batches;
        let (first, second) = (first?, second?);
        let queue = device.queue()?;
        let mut columns =
            DeviceRollouts::upload(&queue, &first.view().padded(&capacity)?.view(), recipe.reads())?;
        let workspace = queue.upload(&vec![0; plan.workspace_bytes()])?;
        let mut logs = Vec::new();
        for (which, batch) in [&first, &second].into_iter().enumerate() {
            if which == 1 {
                columns.write(&queue, &batch.view().padded(&capacity)?.view())?;
            }
            let before = controls.as_ref().map_or(0, |controls| controls.log().len());
            // SAFETY: columns and workspace are memory of the queue's device and live until it has been
            // waited for; the offsets are those of a batch.
            unsafe {
                let into = Out::from_raw(workspace.as_ptr(), workspace.len());
                plan.enqueue(&queue, &columns.views(), None, into)?;
            }
            if let Some(controls) = &controls {
                logs.push(controls.log()[before..].to_vec());
            }
            if let Some(fault) = differs(&device, &queue, &plan, &workspace, &recipe, &batch.view())? {
                replayed.faults.push(format!("{name}, batch {which}: {fault}"));
            }
        }
        if let [first, second] = &logs[..] {
            let launched = first.iter().filter(|call| call.contains("Launch")).count();
            // These batches bring their counts, but not their longest sequence.
            let counts = recipe.aggregation.horizon == Some(Horizon::Longest);
            let promised = plan.launches().iter().filter(|op| counts || **op != "batch_counts").count();
            if launched != promised {
                replayed.faults.push(format!("{name}: {launched} launches in the log, {promised} promised"));
            }
            // Making the context current is not device work.
            let others = first.iter().filter(|call| !call.contains("Launch") && !call.contains("Ctx"));
            let others: Vec<&String> = others.filter(|call| !call.contains("Device")).collect();
            if !others.is_empty() {
                replayed.faults.push(format!("{name}: enqueue called {others:?}"));
            }
            if first != second {
                replayed.faults.push(format!("{name}: other launch parameters for another batch"));
            }
        }
        replayed.plans += 1;
        replayed.launches += logs.iter().flatten().filter(|call| call.contains("Launch")).count();
    }
    Ok(replayed)
}

/// A batch with the counts that a plan does not see: those over all sequences.
fn counted(recipe: &Recipe, sequences: usize, tokens: usize, seed: u64) -> Result<RolloutsBuf, Error> {
    let mut rollouts = synthetic::rollouts(recipe, sequences, tokens, seed)?;
    let credit = recipe.advantages(&Device::cpu(), &rollouts.view())?;
    let batch = rollouts.batch()?;
    let left = match &credit.loss_mask {
        Some(mask) => batch.with_mask(mask)?,
        None => batch,
    };
    let counts = left.counts(&Device::cpu())?;
    rollouts.counts = Some(vec![counts.tokens, counts.nonempty, counts.sequences]);
    Ok(rollouts)
}

/// The first result in the workspace that differs from the two calls on the CPU.
fn differs(
    device: &Device,
    queue: &Queue,
    plan: &Plan,
    workspace: &lockstep::plan::Memory,
    recipe: &Recipe,
    rollouts: &Rollouts<'_>,
) -> Result<Option<String>, Error> {
    let (credit, loss) = recipe.step(&Device::cpu(), rollouts)?;
    queue.synchronize()?;
    let bytes = queue.read(workspace)?;
    let floats = |name: &str| -> Vec<u32> {
        let Some(slot) = plan.slot(name) else { return Vec::new() };
        let bytes = &bytes[slot.offset..slot.offset + 4 * slot.len];
        bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|x| x.to_bits()).collect() };
    let mut expected =
        vec![("coef", bits(&loss.coef)), ("weights", bits(&credit.weights.unwrap_or_default()))];
    if credit.keep.is_empty() {
        expected.push(("advantage", bits(&credit.advantage)));
    }
    for (name, want) in expected {
        let got = floats(name);
        if got.len() < want.len() || got[..want.len()] != want[..] {
            return Ok(Some(format!("{name} on {}", device.describe())));
        }
    }
    let place = plan.slot("loss").map_or(0, |slot| slot.offset);
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[place..place + 8]);
    let got = f64::from_ne_bytes(eight);
    let want = loss.loss.unwrap_or(f64::NAN);
    Ok((got.to_bits() != want.to_bits()).then(|| format!("loss {got}, not {want}")))
}

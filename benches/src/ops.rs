//! A benchmark for every op of the table, a random case (`drawn.rs`) where it has none of its own. `bytes`
//! counts each array once, inputs and outputs: what the op must move, not what the caches move for it.

use crate::{Inputs, correction, over_time};
use lockstep::ops::advantage::GroupParams;
use lockstep::ops::policy_loss::{PolicyParams, policy_loss};
use lockstep::ops::whiten::WhitenParams;
use lockstep::ops::{self};
use lockstep::{Advantage, Batch, Compiled, Counts, Device, Error, Outputs, PolicyInput, PolicyOutput};
use lockstep_core::advantage::{Baseline, Scale, Singleton};
use lockstep_core::aggregate::{PerRow, Weight};
use lockstep_core::gate::{Cispo, DppoKl, DppoTv, Gate, PpoClip, Reinforce, Sapo};
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::op::{OPS, OpInfo};
use lockstep_core::policy_loss::PolicyLoss;
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_core::team::Direction;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs an op once on a device and returns a checksum of the bits it wrote.
pub type Run<'a> = Box<dyn FnMut(&Device) -> Result<u64, Error> + 'a>;

/// The benchmark of one op.
pub struct Bench<'a> {
    /// Names of the ops in the table, and the requested outputs: `policy_loss_sapo/coef`,
    /// `tree_sort, tree_nodes`.
    pub name: &'static str,
    /// Bytes moved per token.
    pub bytes: f64,
    /// Runs the op.
    pub run: Run<'a>,
}

impl<'a> Bench<'a> {
    /// The benchmark of `run`.
    pub(crate) fn new(
        name: &'static str,
        bytes: f64,
        run: impl FnMut(&Device) -> Result<u64, Error> + 'a,
    ) -> Self {
        Bench { name, bytes, run: Box::new(run) }
    }

    /// The names before the slashes: ops of the table, or a function's.
    pub fn ops(&self) -> impl Iterator<Item = &'static str> {
        self.name.split(", ").filter_map(|name| name.split('/').next())
    }
}

/// A checksum of the bits of `length` elements.
pub(crate) fn checksum(length: usize, bits: impl Iterator<Item = u64>) -> u64 {
    bits.fold(length as u64, |h, x| h.wrapping_mul(31).wrapping_add(x))
}

/// Whether checksums read every element.
static EVERY: AtomicBool = AtomicBool::new(false);

/// Every how many elements a checksum reads one. A measurement reads about a thousand in all, because reading
/// more would affect the timing.
pub(crate) fn step(length: usize) -> usize {
    if EVERY.load(Ordering::Relaxed) { 1 } else { length / 1000 + 1 }
}

pub(crate) fn bits(values: &[f32]) -> u64 {
    let read = values.iter().step_by(step(values.len()));
    checksum(values.len(), read.map(|x| x.to_bits().into()))
}

pub(crate) fn bits64(values: &[f64]) -> u64 {
    checksum(values.len(), values.iter().map(|x| x.to_bits()))
}

pub(crate) fn policy<'a, G: Gate + 'a>(
    name: &'static str,
    inputs: &'a Inputs,
    (batch, counts): (Batch<'a>, Counts),
    gate: G,
    logp_second: Option<&'a [f32]>,
    outputs: Outputs,
    bytes: f64,
) -> Bench<'a>
where
    for<'k> PolicyLoss<'k, G>: Compiled,
{
    let weight =
        Weight { per_row: PerRow::Length { eps: 1e-8 }, denominator: counts.nonempty as f64, scale: 1.0 };
    let params = PolicyParams {
        gate,
        level: RatioGranularity::Token,
        guard: Guard::clamp(20.0),
        kl: None,
        kl_weighted: false,
        weight,
        band: [0.8, 1.2],
    };
    let mut out = PolicyOutput::default();
    let run = move |device: &Device| {
        let advantage = Advantage::PerSequence(&inputs.advantage);
        let input = PolicyInput {
            logp_second,
            outputs,
            ..PolicyInput::new(&inputs.logp, &inputs.logp_old, advantage)
        };
        policy_loss(device, &batch, &input, &params, &mut out)?;
        Ok(bits(&out.coef) ^ out.loss.unwrap_or(0.0).to_bits())
    };
    Bench::new(name, bytes, run)
}

/// All ops.
pub fn all(inputs: &Inputs) -> Result<Vec<Bench<'_>>, Error> {
    all_of(inputs, |_| true)
}

/// The benchmarks whose name is `asked` for; no case is drawn for another.
pub fn all_of(inputs: &Inputs, asked: impl Fn(&str) -> bool) -> Result<Vec<Bench<'_>>, Error> {
    let batch = inputs.batch()?;
    let both = (batch, batch.counts(&Device::cpu())?);
    let ppo = PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 3.0 };
    let (sapo, cispo) = (Sapo::new(1.0, 1.05), Cispo { low: 0.0, high: 1.28 });
    let tv = DppoTv { clip_ratio_low: 0.15, clip_ratio_high: 0.15, clip_ratio_c: 3.0 };
    let kl = DppoKl { clip_ratio_low: 0.05, clip_ratio_high: 0.05, clip_ratio_c: 3.0 };
    let loss = Outputs { loss: true, ..Outputs::COEF };
    let measured = Outputs { metrics: true, ..loss };
    // logp, logp_old and mask are read, coef is written. With everything, the token loss is written too.
    let (coef, everything) = (13.0, 17.0);
    let mut list = vec![
        policy("policy_loss_ppo/coef", inputs, both, ppo, None, Outputs::COEF, coef),
        policy("policy_loss_ppo/loss", inputs, both, ppo, None, loss, coef),
        policy("policy_loss_ppo/metrics", inputs, both, ppo, None, measured, coef),
        policy("policy_loss_ppo/all", inputs, both, ppo, None, Outputs::ALL, everything),
        policy("policy_loss_sapo/coef", inputs, both, sapo, None, Outputs::COEF, coef),
        policy("policy_loss_sapo/loss", inputs, both, sapo, None, loss, coef),
        policy("policy_loss_sapo/metrics", inputs, both, sapo, None, measured, coef),
        policy("policy_loss_sapo/all", inputs, both, sapo, None, Outputs::ALL, everything),
        policy("policy_loss_cispo/coef", inputs, both, cispo, None, Outputs::COEF, coef),
        policy("policy_loss_reinforce/coef", inputs, both, Reinforce, None, Outputs::COEF, coef),
        policy("policy_loss_dppo_tv/coef", inputs, both, tv, None, Outputs::COEF, coef),
        policy("policy_loss_dppo_kl/coef", inputs, both, kl, None, Outputs::COEF, coef),
    ];
    list.push(Bench::new("token_ratio", 17.0, move |device| {
        let guard = Guard::clamp(20.0);
        let out = ops::token_ratio(device, &batch, &inputs.logp, &inputs.logp_old, guard, [0.8, 1.2])?;
        Ok(bits(&out.ratio))
    }));
    list.push(Bench::new("kl", 17.0, move |device| {
        let k3 = Kl::guarded(KlFormula::K3);
        Ok(bits(&ops::kl(device, &batch, &inputs.logp, &inputs.logp_ref, &k3)?.kl))
    }));
    list.push(Bench::new("aggregate", 5.0, move |device| {
        let weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };
        Ok(bits64(&ops::aggregate(device, &batch, &inputs.logp, &weight)?.row_sum))
    }));
    list.push(Bench::new("row_scan", 9.0, move |device| {
        Ok(bits(&ops::row_scan(device, &batch, &inputs.logp, Direction::Suffix)?))
    }));
    let params = GroupParams::grpo(true, 1, 1e-6).singleton(Singleton::Zero);
    let per_token = inputs.rewards.len() as f64 / inputs.tokens() as f64;
    list.push(Bench::new("group_advantage", 8.0 * per_token, move |device| {
        Ok(bits(&ops::group_advantage(device, &batch, &inputs.rewards, None, &params)?.advantage))
    }));
    for (name, params) in [
        ("group_advantage/leave_one_out", GroupParams::new(Baseline::LeaveOneOut, Scale::None { ddof: 1 })),
        ("group_advantage/median", GroupParams::new(Baseline::Median, Scale::Mad { floor: 1e-3 })),
    ] {
        let params = params.singleton(Singleton::Zero);
        list.push(Bench::new(name, 8.0 * per_token, move |device| {
            Ok(bits(&ops::group_advantage(device, &batch, &inputs.rewards, None, &params)?.advantage))
        }));
    }
    list.push(Bench::new("row_moments, fold_moments", 5.0, move |device| {
        let moments = ops::token_moments(device, &batch, &inputs.logp)?;
        Ok(bits64(&[moments.mean, moments.squares]))
    }));
    list.push(Bench::new("whiten", 14.0, move |device| {
        Ok(bits(&ops::whiten(device, &batch, Advantage::PerToken(&inputs.logp), &WhitenParams::VERL)?))
    }));
    list.push(Bench::new("discounted_return", 9.0, move |device| {
        Ok(bits(&ops::discounted_return(device, &batch, &inputs.logp, 0.99)?))
    }));
    list.extend(crate::rewards::benches(inputs, batch));
    list.extend(over_time::benches(inputs, batch));
    list.extend(correction::benches(inputs, batch));
    list.extend(crate::gates::benches(inputs, both));
    list.extend(crate::logits::benches(inputs, batch));
    list.extend(crate::exact::benches(inputs, batch));
    list.extend(crate::tree::benches(inputs, batch)?);
    list.extend(crate::functions::benches(inputs, batch));
    list.extend(crate::routing::benches(inputs));
    let without =
        |op: &&OpInfo| asked(op.name) && !list.iter().flat_map(Bench::ops).any(|name| name == op.name);
    let drawn: Vec<_> = OPS.iter().filter(without).filter_map(|op| crate::drawn::bench(op, inputs)).collect();
    list.retain(|bench| asked(bench.name));
    list.extend(drawn);
    Ok(list)
}

/// Checks that every op returns the plain reference's bits on `device`. The inner error is the name of the
/// first op that does not.
pub fn same_bits(inputs: &Inputs, device: &Device) -> Result<Result<(), &'static str>, Error> {
    let plain = Device::cpu_with(Some(lockstep::SimdLevel::Plain), Some(1))?;
    EVERY.store(true, Ordering::Relaxed);
    let different = all(inputs)?.into_iter().find_map(|mut bench| {
        let both = (bench.run)(&plain).and_then(|want| Ok(want == (bench.run)(device)?));
        both.map(|same| (!same).then_some(bench.name)).transpose()
    });
    EVERY.store(false, Ordering::Relaxed);
    different.map_or(Ok(Ok(())), |name| name.map(Err))
}

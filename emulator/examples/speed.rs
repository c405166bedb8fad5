//! Measures how fast PTX runs here: `cargo run --release -p lockstep-emulator --example speed [TOKENS]`.
//!
//! Sequences of 4096 tokens go through shipped entry points. Prints the lane-instructions of each, and the
//! number per second.

#[path = "../tests/ptx/device.rs"]
mod device;

use device::{Launch, PTX};
use lockstep_core::aggregate::{Aggregate, PerRow, RowScan, Weight, WeightFrom};
use lockstep_core::gate::PpoClip;
use lockstep_core::op::Kernel;
use lockstep_core::policy_loss::{LossOut, PolicyLoss};
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_core::team::Direction;
use lockstep_emulator::launch::Program;
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let module = Module::parse(PTX)?;
    let entries = module.entries().len();
    println!("{entries} entry points read in {:.2} s", start.elapsed().as_secs_f64());

    let tokens: u32 = std::env::args().nth(1).map_or(Ok(1 << 20), |text| text.parse())?;
    let n = tokens as usize;
    let offsets: Vec<u32> = (0..=tokens.div_ceil(4096)).map(|row| (row * 4096).min(tokens)).collect();
    let rows = offsets.len() - 1;
    let cu_seqlens = Offsets::new("cu_seqlens", &offsets, n, "tokens").map_err(|error| error.to_string())?;
    let values: Vec<f32> = (0..n).map(|i| -0.5 - (i % 97) as f32 * 0.01).collect();
    let others: Vec<f32> = (0..n).map(|i| -0.5 - (i % 89) as f32 * 0.011).collect();
    let (loss_mask, values) = (Mask::new(None), In::new(&values));
    let advantage = vec![0.7; rows];
    let (mut a, mut b) = (vec![0.0; n], vec![0.0; n]);
    let (mut sums, mut counts, mut alarms) = (vec![0.0; rows], vec![0; rows], vec![0; rows]);

    let op = Aggregate {
        cu_seqlens,
        loss_mask,
        values: Some(values),
        row_sum: Out::new(&mut sums),
        row_tokens: Out::new(&mut counts),
        row_alarm: Out::new(&mut alarms),
    };
    measure(&module, &op)?;
    let (direction, scanned) = (Direction::Suffix, Out::new(&mut a));
    measure(&module, &RowScan { cu_seqlens, loss_mask, values, direction, scanned })?;
    let op = PolicyLoss {
        cu_seqlens,
        loss_mask,
        logp: values,
        logp_old: In::new(&others),
        logp_second: None,
        advantage: In::new(&advantage),
        advantage_per_token: false,
        weights: None,
        level: RatioGranularity::Token,
        guard: Guard::NONE,
        gate: PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.2, clip_ratio_c: 3.0 },
        kl: None,
        weight: Weight { per_row: PerRow::One, denominator: 8.0, scale: 1.0 },
        weight_from: WeightFrom::ABSENT,
        coef: Out::new(&mut a),
        loss: Some(LossOut { token_loss: Some(Out::new(&mut b)), row_loss: Out::new(&mut sums) }),
        row_tokens: Out::new(&mut counts),
        row_alarm: Out::new(&mut alarms),
        metrics: None,
    };
    measure(&module, &op)
}

/// Runs an op once and times only the launch, not the copies.
fn measure<K: Kernel>(module: &Module, op: &K) -> Result<(), Box<dyn std::error::Error>> {
    let mut memory = Memory::new(1 << 34);
    let launch = Launch::new(op, (op.rows() as u32).div_ceil(8), 8, &mut memory);
    let start = Instant::now();
    let counts = launch.run(module, &mut memory)?;
    let seconds = start.elapsed().as_secs_f64();
    launch.back(&mut memory);
    let millions = counts.lane_instructions as f64 / 1e6;
    println!(
        "{}: {millions:.1} M lane-instructions in {seconds:.2} s: {:.0} M/s",
        K::NAME,
        millions / seconds
    );
    Ok(())
}

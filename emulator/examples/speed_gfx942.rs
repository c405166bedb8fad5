//! Lane-instructions per second of the gfx942 interpreter, on `aggregate` of the shipped code object.
//!
//! ```text
//! cargo run --release -p lockstep-emulator --example speed_gfx942 [tokens]
//! ```

#[path = "../tests/ptx/device.rs"]
mod device;

use device::Launch;
use lockstep_core::aggregate::Aggregate;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_emulator::gfx942::Module;
use lockstep_emulator::memory::Memory;
use std::time::Instant;

const ROWS: u32 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tokens: u32 = std::env::args().nth(1).map_or(Ok(1 << 20), |word| word.parse())?;
    let begun = Instant::now();
    let module = Module::load(lockstep_kernels::artifacts::GFX942)?;
    println!("loaded {} kernels in {:.0} ms", module.kernels().len(), begun.elapsed().as_secs_f64() * 1e3);

    let row = |row: u32| (u64::from(tokens) * u64::from(row) / u64::from(ROWS)) as u32;
    let offsets: Vec<u32> = (0..=ROWS).map(row).collect();
    let values: Vec<f32> = (0..tokens).map(|n| (n as f32).sin()).collect();
    let (mut sums, mut live, mut alarms) = ([0.0; ROWS as usize], [0; ROWS as usize], [0; ROWS as usize]);
    let cu_seqlens = Offsets::new("cu_seqlens", &offsets, values.len(), "tokens");
    let op = Aggregate {
        cu_seqlens: cu_seqlens.map_err(|error| error.to_string())?,
        loss_mask: Mask::all(),
        values: Some(In::new(&values)),
        row_sum: Out::new(&mut sums),
        row_tokens: Out::new(&mut live),
        row_alarm: Out::new(&mut alarms),
    };
    let mut memory = Memory::new(1 << 32);
    let launch = Launch::waves("aggregate", &op, ROWS, &mut memory);

    let begun = Instant::now();
    let counts = launch.run(&module, &mut memory)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} lane-instructions in {seconds:.2} s: {:.0} million a second; {:.2} of the sectors of 32 bytes \
         used",
        counts.lane_instructions,
        counts.lane_instructions as f64 / seconds / 1e6,
        counts.efficiency(0),
    );
    Ok(())
}

//! Lane-instructions per second of the gfx942 interpreter, on `aggregate` of the shipped code object.
//!
//! ```text
//! cargo run --release -p lockstep-emulator --example speed_gfx942 [tokens]
//! ```

use lockstep_emulator::gfx942::Module;
use lockstep_emulator::launch::{Grid, Program as _};
use lockstep_emulator::memory::Memory;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tokens: u32 = std::env::args().nth(1).map_or(Ok(1 << 20), |word| word.parse())?;
    let rows = 64;
    let begun = Instant::now();
    let module = Module::load(lockstep_kernels::artifacts::GFX942)?;
    println!("loaded {} kernels in {:.0} ms", module.kernels().len(), begun.elapsed().as_secs_f64() * 1e3);

    let mut memory = Memory::new(1 << 32);
    let bytes = |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
    let offsets =
        bytes(&mut (0..=rows).map(|row| (u64::from(tokens) * u64::from(row) / u64::from(rows)) as u32));
    let values = bytes(&mut (0..tokens).map(|n| (n as f32).sin().to_bits()));
    let mut pointers = Vec::new();
    for (input, len) in [
        (Some(&offsets), 0),
        (None, 0),
        (Some(&values), 0),
        (None, 8 * rows),
        (None, 4 * rows),
        (None, 4 * rows),
    ] {
        let len = input.map_or(u64::from(len), |input| input.len() as u64);
        let address = memory.alloc(len).unwrap_or(0);
        if let Some(input) = input {
            memory.upload(address, input)?;
        }
        pointers.push(address);
    }
    pointers.resize(24, 0);
    let (n, s) = (u64::from(tokens), u64::from(rows));
    let mut words = vec![s + 1, 0, 0, 1, n, s, s, s];
    words.resize(64, 0);
    let mut params = u64::from(rows).to_le_bytes().to_vec();
    params.extend(pointers.iter().chain(&words).flat_map(|word| word.to_le_bytes()));

    let begun = Instant::now();
    let counts = module.launch(
        "aggregate",
        Grid { blocks: [rows, 1, 1], threads: [64, 1, 1] },
        &params,
        &mut memory,
    )?;
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

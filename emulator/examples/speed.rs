//! How fast PTX runs here: `cargo run --release -p lockstep-emulator --example speed [ENTRY] [TOKENS]`.
//!
//! Sequences of 4096 tokens go through an entry point that takes `cu_seqlens`, an optional mask and optional values
//! (`aggregate`, or `policy_loss_ppo`'s arrays); it prints lane-instructions a second.

use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let module = Module::parse(lockstep_kernels::artifacts::PTX)?;
    let entries = module.entries().len();
    println!("{entries} entry points read in {:.2} s", start.elapsed().as_secs_f64());

    let tokens: u32 = std::env::args().nth(1).map_or(Ok(1 << 20), |text| text.parse())?;
    for entry in ["aggregate", "row_scan", "token_ratio"] {
        let mut memory = Memory::new(1 << 34);
        let rows = tokens.div_ceil(4096);
        let offsets: Vec<u8> = (0..=rows).flat_map(|row| (row * 4096).min(tokens).to_le_bytes()).collect();
        let values: Vec<u8> = (0..tokens).flat_map(|i| (-0.5 - (i % 97) as f32 * 0.01).to_le_bytes()).collect();
        let mut array = |bytes: &[u8]| -> Result<u64, Box<dyn std::error::Error>> {
            let address = memory.alloc(bytes.len() as u64).ok_or("no memory")?;
            memory.upload(address, bytes)?;
            Ok(address)
        };
        let (offsets, a, b) = (array(&offsets)?, array(&values)?, array(&values)?);
        let mut out = |bytes: u64| memory.alloc(bytes).ok_or("no memory");
        let n = u64::from(tokens);
        let r = u64::from(rows);
        // Fields of the ops' structs, in order (docs/gpu.md).
        let (pointers, words) = match entry {
            "aggregate" => (vec![offsets, 0, a, out(8 * r)?, out(4 * r)?, out(4 * r)?], vec![r + 1, 0, 0, 1, n, r, r, r]),
            "row_scan" => (vec![offsets, 0, a, out(4 * n)?], vec![r + 1, 0, 0, n, 0, n]),
            _ => (
                vec![offsets, 0, a, b, out(4 * n)?, 0, out(64 * r)?, out(64 * r)?, out(64 * r)?],
                vec![r + 1, 0, 0, n, n, 1, n],
            ),
        };
        let mut params = vec![0; 8 + 8 * 24 + 8 * 64];
        params[..4].copy_from_slice(&rows.to_le_bytes());
        for (at, value) in pointers.iter().enumerate() {
            params[8 + 8 * at..16 + 8 * at].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in words.iter().enumerate() {
            params[200 + 8 * at..208 + 8 * at].copy_from_slice(&value.to_le_bytes());
        }
        let grid = Grid { blocks: [rows.div_ceil(8), 1, 1], threads: [32, 8, 1] };
        let start = Instant::now();
        match module.launch(entry, grid, &params, &mut memory) {
            Ok(counts) => {
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "{entry}: {} tokens, {:.1} M lane-instructions, {:.2} s, {:.0} M lane-instructions/s",
                    tokens,
                    counts.lane_instructions as f64 / 1e6,
                    seconds,
                    counts.lane_instructions as f64 / 1e6 / seconds
                );
            }
            Err(fault) => println!("{entry}: {fault}"),
        }
    }
    Ok(())
}

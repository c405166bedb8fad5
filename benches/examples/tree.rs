//! `cargo run --release -p lockstep-benches --example tree [RESPONSES] [LENGTH] [THREADS]`
//!
//! What TEMPO costs on one group (512 responses of 32,768 tokens), half of each response shared with another: time and memory beyond
//! input and output; then the cost per token from 1 M to 64 M tokens.

use lockstep::ops::tree::{Outcomes, TempoParams, tempo};
use lockstep::{Batch, Device, Error};
use lockstep_benches::shared_halves;
use std::time::Instant;

/// Peak and current memory of this process in bytes, where the system says so.
fn memory(line: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let found = status.lines().find(|l| l.starts_with(line))?;
    Some(found.split_whitespace().nth(1)?.parse::<f64>().ok()? * 1024.0)
}

fn measure(device: &Device, responses: usize, length: usize, runs: usize) -> Result<(), Error> {
    let cu_seqlens: Vec<u32> = (0..=responses).map(|s| (s * length) as u32).collect();
    let tokens = shared_halves(&cu_seqlens);
    let rewards: Vec<f32> =
        (0..responses).map(|s| ((s * 7) % 3 == 0).into()).map(|r: bool| f32::from(u8::from(r))).collect();
    let groups = [0, responses as u32];
    let batch = Batch::new(&cu_seqlens, &groups, None)?;
    let (before, mut best, mut found) = (memory("VmRSS"), f64::INFINITY, None);
    for _ in 0..runs {
        let start = Instant::now();
        let out =
            tempo(device, &batch, tokens[..].into(), &Outcomes::new(&rewards), &TempoParams::default())?;
        best = best.min(start.elapsed().as_secs_f64());
        found = Some(out.tree.statistics(&batch));
    }
    let n = (responses * length) as f64;
    // The peak is of the whole process: only the largest case of a run can be told from it.
    let beyond =
        memory("VmHWM").zip(before).map_or(f64::NAN, |(peak, before)| (peak - before - 4.0 * n) / 1e6);
    let shared = found.map_or(0.0, |statistics| statistics.shared_fraction());
    println!(
        "{responses} x {length}: {best:.4} s, {:.3} ns per token, {:.0} % shared, {beyond:.1} MB beyond input and output",
        best * 1e9 / n,
        100.0 * shared
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let number =
        |i: usize, default: usize| std::env::args().nth(i).and_then(|s| s.parse().ok()).unwrap_or(default);
    let device = Device::cpu_with(None, Some(number(3, 2)))?;
    println!("{}", device.describe());
    measure(&device, number(1, 512), number(2, 32_768), 5)?;
    if std::env::args().len() < 2 {
        for length in [2048, 8192, 32_768, 131_072] {
            measure(&device, 512, length, 3)?;
        }
        measure(&device, 2048, 32_768, 3)?;
    }
    Ok(())
}

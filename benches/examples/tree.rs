//! `cargo run --release -p lockstep-benches --example tree [RESPONSES] [LENGTH] [THREADS]`
//!
//! What TEMPO costs on one group (512 responses of 32,768 tokens), half of each response shared with another: time and memory beyond
//! input and output, and the cost per token from 1 M to 64 M tokens.

use lockstep::ops::tree::{Outcomes, PrefixTree, Scratch, TempoParams, Tokens, tempo};
use lockstep::{Batch, Device, Error};
use lockstep_benches::{Copy, shared_halves};
use std::time::Instant;

/// Peak and current memory of this process in bytes, where the system says so.
fn memory(line: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let found = status.lines().find(|l| l.starts_with(line))?;
    Some(found.split_whitespace().nth(1)?.parse::<f64>().ok()? * 1024.0)
}

/// Best of `runs`, in seconds.
fn best(runs: usize, mut f: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        f()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn measure(device: &Device, threads: usize, responses: usize, length: usize) -> Result<(), Error> {
    let cu_seqlens: Vec<u32> = (0..=responses).map(|s| (s * length) as u32).collect();
    let tokens = shared_halves(&cu_seqlens);
    let rewards: Vec<f32> = (0..responses).map(|s| f32::from(u8::from((s * 7) % 3 == 0))).collect();
    let groups = [0, responses as u32];
    let batch = Batch::new(&cu_seqlens, &groups, None)?;
    let (outcomes, ids) = (Outcomes::new(&rewards), Tokens::from(&tokens[..]));
    let before = memory("VmRSS");
    let whole = best(3, || tempo(device, &batch, ids, &outcomes, &TempoParams::default()).map(drop))?;
    let n = (responses * length) as f64;
    let beyond =
        memory("VmHWM").zip(before).map_or(f64::NAN, |(peak, before)| (peak - before - 4.0 * n) / 1e6);

    // The same with memory that is there already, so that the system's page faults are not timed.
    let (mut tree, mut scratch, mut out) = (PrefixTree::default(), Scratch::default(), Vec::new());
    let sort = best(5, || tree.build(device, &batch, ids, &outcomes, None, &mut scratch))?;
    let fill = best(5, || {
        tree.advantages_into(device, &batch, &outcomes, Some(&rewards), Some((&[0.5], 1e-6)), &mut out)
    })?;
    // 4 bytes of a token read, 4 written.
    let mut copy = Copy::new(4 * responses * length, threads);
    let copied = best(5, || {
        copy.run();
        Ok(())
    })?;
    let shared = 100.0 * tree.statistics(&batch).shared_fraction();
    let each = 1e9 / n;
    println!(
        "{responses} x {length}, {shared:.0} % shared: tempo {whole:.4} s, at most {beyond:.1} MB beyond input and output; \
         reusing memory {:.3} ns per token (tree {:.3}, advantages {:.3}), {:.2} times a copy of the same bytes",
        (sort + fill) * each,
        sort * each,
        fill * each,
        (sort + fill) / copied
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let number =
        |i: usize, default: usize| std::env::args().nth(i).and_then(|s| s.parse().ok()).unwrap_or(default);
    let threads = number(3, 2);
    let device = Device::cpu_with(None, Some(threads))?;
    println!("{}", device.describe());
    if std::env::args().len() > 1 {
        return measure(&device, threads, number(1, 512), number(2, 32_768));
    }
    // The peak is the process's, so that a case's memory shows only while cases grow.
    for length in [2048, 8192, 32_768, 131_072] {
        measure(&device, threads, 512, length)?;
    }
    measure(&device, threads, 2048, 32_768)
}

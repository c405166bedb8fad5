//! `cargo run --release -p lockstep-benches --example tree [RESPONSES] [LENGTH] [THREADS]`
//!
//! The cost of TEMPO on one group (512 responses of 32,768 tokens) in which each response shares half of its
//! tokens with another: time and memory beyond input and output, and the cost per token from 1 M to 64 M
//! tokens.

use lockstep::ops::tree::{Outcomes, PrefixTree, Scratch, TempoParams, Tokens, tempo};
use lockstep::{Batch, Device, Error};
use lockstep_benches::{Copy, best, number, shared_halves};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator with a count of allocated bytes. The system's own numbers for the process count
/// whole pages, and their peak includes earlier cases.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn took(bytes: usize) {
    PEAK.fetch_max(NOW.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
}

/// The peak number of bytes allocated while `f` runs, beyond those allocated before.
fn peak<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let out = f();
    (out, PEAK.load(Ordering::Relaxed) - before)
}

fn measure(device: &Device, threads: usize, responses: usize, length: usize) -> Result<(), Error> {
    let cu_seqlens: Vec<u32> = (0..=responses).map(|s| (s * length) as u32).collect();
    let tokens = shared_halves(&cu_seqlens);
    let rewards: Vec<f32> = (0..responses).map(|s| f32::from(u8::from((s * 7) % 3 == 0))).collect();
    let groups = [0, responses as u32];
    let batch = Batch::new(&cu_seqlens, &groups, None)?;
    let (outcomes, ids) = (Outcomes::new(&rewards), Tokens::from(&tokens[..]));
    let whole = || tempo(device, &batch, ids, &outcomes, &TempoParams::default());
    let (result, most) = peak(whole);
    let advantage = 4 * result?.advantage.len();
    let whole = best(3, || whole().map(drop))?;
    let n = (responses * length) as f64;

    // The same with existing memory, so that page faults are not timed.
    let (mut tree, mut scratch, mut out) = (PrefixTree::default(), Scratch::default(), Vec::new());
    let runs = if n < 4e6 { 50 } else { 7 };
    let sort = best(runs, || tree.build(device, &batch, ids, &outcomes, None, &mut scratch))?;
    let fill = best(runs, || {
        tree.advantages_into(device, &batch, &outcomes, Some(&rewards), Some((&[0.5], 1e-6)), &mut out)
    })?;
    // 4 bytes read and 4 written per token.
    let mut copy = Copy::new(4 * responses * length, threads);
    let copied = copy.best(runs);
    let shared = 100.0 * tree.statistics(&batch).shared_fraction();
    let each = 1e9 / n;
    println!(
        "{responses} x {length}, {shared:.0} % shared: tempo {whole:.4} s, {:.3} MB beyond input and \
         advantages; reusing memory {:.3} ns per token (tree {:.3}, advantages {:.3}), {:.2} times a copy of \
         the same bytes",
        (most - advantage) as f64 / 1e6,
        (sort + fill) * each,
        sort * each,
        fill * each,
        (sort + fill) / copied
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let threads = number(3, 2);
    let device = Device::cpu_with(None, Some(threads))?;
    println!("{}", device.describe());
    if std::env::args().len() > 1 {
        return measure(&device, threads, number(1, 512), number(2, 32_768));
    }
    for length in [2048, 8192, 32_768, 131_072] {
        measure(&device, threads, 512, length)?;
    }
    measure(&device, threads, 2048, 32_768)
}

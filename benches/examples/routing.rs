//! `cargo run --release -p lockstep-benches --example routing [ROWS] [THREADS]`
//!
//! The cost of one layer's router, forward and backward (a million tokens, 8 of 128 experts), as a multiple
//! of the time in which the same threads read and write the same bytes in the same run. Buffers are allocated
//! once; nothing is kept between calls.

use lockstep::{Device, Error};
use lockstep_benches::{Copy, RouterBuffers, number};
use lockstep_conformance::cases::hash::Source;
use lockstep_core::routing::{Router, RouterKind};

/// The best of 5 runs, in seconds, after one that faults in the pages.
fn best(mut f: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    f()?;
    lockstep_benches::best(5, f)
}

/// Unordered scores, approximately normal.
fn scores(count: usize) -> Vec<f32> {
    let source = Source::new(1);
    (0..count).map(|i| 1.7 * ((0..4).map(|k| source.unit(4 * i + k)).sum::<f32>() - 2.0)).collect()
}

fn main() -> Result<(), Error> {
    let (rows, threads) = (number(1, 1 << 20), number(2, 2));
    let device = Device::cpu_with(None, Some(threads))?;
    println!("{}, {rows} rows, {threads} threads; ns per row", device.describe());
    let deepseek = Router { top_k: 8, ..Router::DEEPSEEK_V3 };
    let routers = [
        ("softmax of the chosen", Router::QWEN3),
        ("softmax of all", Router::new(RouterKind::SoftmaxAll, 128, 8)),
        ("sigmoids", Router::new(RouterKind::SigmoidNormalized, 128, 8)),
        ("sigmoids in groups", deepseek),
    ];
    for (name, router) in routers {
        // The same number of scores for each.
        let rows = rows * 128 / router.experts;
        let (experts, top_k) = (router.experts, router.top_k);
        let scores = scores(rows * experts);
        let coef: Vec<f32> = scores[..rows * top_k].to_vec();
        let mut buffers = RouterBuffers::new(router, rows);
        let forward = best(|| buffers.forward(&device, &scores, None))?;
        let backward = best(|| buffers.backward(&device, &scores, &coef))?;
        // Each array counts once per launch that touches it. The backward pass of softmax over the chosen
        // experts reads no scores; that of sigmoids reads only the chosen ones.
        let row = 4 * experts + 5 * top_k + 8 + if router.groups > 1 { 4 * router.groups } else { 0 };
        let reads = match router.kind {
            RouterKind::SoftmaxChosen => 0,
            RouterKind::SoftmaxAll => 4 * experts,
            RouterKind::SigmoidNormalized | RouterKind::Sigmoid | RouterKind::SqrtSoftplus => 4 * top_k,
        };
        let bytes = rows * (row + reads + 9 * top_k + 4 * experts + 4);
        let mut copy = Copy::new(bytes / 2, threads);
        copy.run();
        let copied = copy.best(5);
        let each = 1e9 / rows as f64;
        println!(
            "{name:>22}, {experts}: forward {:6.1} backward {:6.1} sum {:6.1}; the same {} bytes copied \
             {:5.1} ({:.1} GB/s): {:.2} times",
            forward * each,
            backward * each,
            (forward + backward) * each,
            bytes / rows,
            copied * each,
            bytes as f64 / copied / 1e9,
            (forward + backward) / copied
        );
    }
    Ok(())
}

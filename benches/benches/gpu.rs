//! Every op on every GPU of this machine, timed by the device's own events, with the device's copy bandwidth
//! for comparison.
//!
//! Buffers exceed any L2 cache (`LOCKSTEP_TOKENS`, 64 M by default: 256 MB per array), and a warm-up launch
//! precedes the timed ones. `examples/record_gpu.rs` writes the dated records. Without a GPU it prints the
//! reason and ends.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockstep_benches::{Inputs, OnGpu, all_on_gpu};
use lockstep_gpu::{Driver, Gpu};

fn tokens() -> usize {
    std::env::var("LOCKSTEP_TOKENS").ok().and_then(|n| n.parse().ok()).unwrap_or(64 << 20)
}

fn device<D: Driver>(criterion: &mut Criterion, api: &str, open: Result<Gpu<D>, lockstep_gpu::Error>) {
    let gpu = match open {
        Ok(gpu) => gpu,
        Err(error) => return println!("{api}: absent: {error}"),
    };
    let inputs = Inputs::new(tokens(), 4096);
    println!("{api}: {} ({}), {} tokens", gpu.info().name, gpu.info().arch, inputs.tokens());
    let mut batch = OnGpu::new(gpu, &inputs).expect("room for the batch");
    for bench in all_on_gpu(&inputs) {
        let mut group = criterion.benchmark_group(format!("{api}/{}", bench.name));
        let (elements, bytes) = (inputs.tokens() as u64, (bench.bytes * inputs.tokens() as f64) as u64);
        group.sample_size(10).throughput(Throughput::ElementsAndBytes { elements, bytes });
        group.bench_function("device", |b| {
            b.iter_custom(|times| batch.time(&bench, times).expect("a device that works"));
        });
        group.finish();
    }
}

fn gpus(criterion: &mut Criterion) {
    device(criterion, "cuda", lockstep_cuda::open(0));
    device(criterion, "rocm", lockstep_rocm::open(0));
}

criterion_group!(benches, gpus);
criterion_main!(benches);

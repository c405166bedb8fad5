//! Every benchmark on every GPU of this machine, timed by the device's own events, with the device's copy
//! bandwidth for comparison.
//!
//! Arrays exceed any L2 cache (`LOCKSTEP_TOKENS`, 64 M by default: 256 MB each), and one launch that is not
//! counted precedes the timed ones. `examples/record_gpu.rs` writes the dated records. Without a GPU it
//! prints the reason and ends.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockstep::{Backend, Device};
use lockstep_benches::{Inputs, OnGpu, all, copy_on_gpu};
use lockstep_gpu::{Driver, Error, Gpu};
use std::time::Duration;

fn tokens() -> usize {
    std::env::var("LOCKSTEP_TOKENS").ok().and_then(|n| n.parse().ok()).unwrap_or(64 << 20)
}

/// Reports under a name what `time` measures of so many launches.
fn group(
    criterion: &mut Criterion,
    name: String,
    (elements, bytes): (u64, f64),
    mut time: impl FnMut(u32) -> Duration,
) {
    let mut group = criterion.benchmark_group(name);
    let bytes = (bytes * elements as f64) as u64;
    group.sample_size(10).throughput(Throughput::ElementsAndBytes { elements, bytes });
    group.bench_function("device", |b| b.iter_custom(|times| time(times as u32)));
    group.finish();
}

fn device<D: Driver>(criterion: &mut Criterion, backend: Backend, open: Result<Gpu<D>, Error>) {
    let gpu = match open {
        Ok(gpu) => gpu,
        Err(error) => return println!("{backend}: absent: {error}"),
    };
    let inputs = Inputs::new(tokens(), 4096);
    let elements = inputs.tokens() as u64;
    println!("{backend}: {} ({}), {elements} tokens", gpu.info().name, gpu.info().arch);
    group(criterion, format!("{backend}/copy"), (elements, 8.0), |times| {
        copy_on_gpu(&gpu, &inputs, times).expect("room for two arrays")
    });
    let device = Device::open(backend.name()).expect("the device that is open");
    for mut bench in all(&inputs).expect("valid inputs") {
        group(criterion, format!("{backend}/{}", bench.name), (elements, bench.bytes), |times| {
            let timed = OnGpu::new(&device, 1, times).expect("a GPU");
            timed.time(&mut bench).expect("a device that works").values().flatten().sum()
        });
    }
}

fn gpus(criterion: &mut Criterion) {
    device(criterion, Backend::Cuda, lockstep_cuda::open(0));
    device(criterion, Backend::Rocm, lockstep_rocm::open(0));
}

criterion_group!(benches, gpus);
criterion_main!(benches);

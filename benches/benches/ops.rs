//! Every op in ns per token and GB/s, with the copy bandwidth of the same machine and threads for comparison.
//!
//! The comparison shows how far each op is from memory speed. Each op first proves that it returns the plain
//! reference's bits. `examples/record.rs` writes the dated records.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockstep::{Device, SimdLevel};
use lockstep_benches::{Copy, Inputs, all, same_bits};

fn ops(criterion: &mut Criterion) {
    let small = Inputs::new(64 << 10, 1000);
    for level in SimdLevel::available() {
        let device = Device::cpu_with(Some(level), None).expect("an available level");
        assert_eq!(same_bits(&small, &device).expect("valid inputs"), Ok(()), "bits of plain on {level}");
    }

    let device = Device::cpu();
    println!("{}", device.describe());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut copy = Copy::new(256 << 20, threads);
    let mut group = criterion.benchmark_group("copy");
    group.sample_size(10).throughput(Throughput::Bytes(copy.bytes()));
    group.bench_function("memcpy", |b| b.iter(|| copy.run()));
    group.finish();

    let inputs = Inputs::new(8 << 20, 2048);
    for mut bench in all(&inputs).expect("valid inputs") {
        let mut group = criterion.benchmark_group(bench.name);
        let tokens = inputs.tokens() as u64;
        let bytes = (bench.bytes * tokens as f64) as u64;
        group.sample_size(10).throughput(Throughput::ElementsAndBytes { elements: tokens, bytes });
        group.bench_function("best", |b| b.iter(|| (bench.run)(&device).expect("valid inputs")));
        group.finish();
    }
}

criterion_group!(benches, ops);
criterion_main!(benches);

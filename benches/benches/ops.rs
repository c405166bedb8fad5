//! Every op in ns per token and GB/s, beside the copy bandwidth of the same machine on the same threads.
//!
//! What it teaches: how far each op is from the speed of memory. Each op first proves that it returns the plain
//! reference's bits. The ops of the table: group_advantage, token_ratio, policy_loss_ppo, policy_loss_sapo, policy_loss_cispo,
//! policy_loss_reinforce, policy_loss_dppo_tv, policy_loss_dppo_kl, kl, aggregate,
//! row_scan, fold_rows, row_moments, fold_moments, whiten, discounted_return, pass_at_k,
//! combine, exact_sum, exact_sum_f32, check_offsets, check_values. `examples/record.rs` writes the dated records.
//! combine, rollout_mismatch, rollout_correction, normalize_weights, log_ratio_scan, proximal_logp, staleness,
//! effective_sample_size, check_offsets, check_values. `examples/record.rs` writes the dated records.
//! combine, kl_importance, value_loss, logits_statistics, logits_gradient, otr_exact, draw_tokens, otr_sampled, logits_kl, check_offsets, check_values. `examples/record.rs` writes the dated records.
//! combine, check_offsets, check_values, policy_loss_mini_rl, policy_loss_remix, policy_loss_trust_region, policy_loss_gmpo, sequence_weight, covariance,
//! selection_key, digit_counts, narrow_digits, select_top. `examples/record.rs` writes the dated records.
//! combine, gae, vtrace, step_return, optimal_token_baseline, check_offsets, check_values. `examples/record.rs` writes the dated records.
//! combine, shape_rewards, filter_groups, mask_sequences, novelty_bands, variance_increase, sharpen, role_baseline, entropy_bonus,
//! check_offsets, check_values. `examples/record.rs` writes the dated records.
//! combine, check_offsets, check_values, tree_sort, tree_nodes, tree_advantage. `examples/record.rs` writes the dated records.
//! gating_forward, gating_backward, balance_loss, batch_counts, loss_totals.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockstep::{Device, Level};
use lockstep_benches::{Copy, Inputs, all, same_bits};

fn ops(criterion: &mut Criterion) {
    let small = Inputs::new(64 << 10, 1000);
    for level in Level::available() {
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

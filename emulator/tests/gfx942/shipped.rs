//! Kernels of the shipped code object, with arguments as the ops' own structs encode them.

use crate::device::Launch;
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale, Singleton};
use lockstep_core::aggregate::{Aggregate, PerRow, Weight, WeightFrom};
use lockstep_core::gate::Reinforce;
use lockstep_core::op::Kernel;
use lockstep_core::policy_loss::PolicyLoss;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_core::tree::TreeSort;
use lockstep_emulator::counts::Counts;
use lockstep_emulator::fault::Fault;
use lockstep_emulator::gfx942::{Approximation, Module};
use lockstep_emulator::launch::Program as _;
use lockstep_emulator::memory::Memory;
use std::sync::OnceLock;

fn module() -> &'static Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE.get_or_init(|| Module::load(lockstep_kernels::artifacts::GFX942).unwrap())
}

/// Runs a kernel of the shipped object and copies its outputs back.
fn run<K: Kernel>(
    module: &Module,
    entry: &'static str,
    kernel: &K,
    waves: u32,
) -> Result<Counts, Box<Fault>> {
    let mut memory = Memory::new(1 << 30);
    let launch = Launch::waves(entry, kernel, waves, &mut memory);
    let counts = launch.run(module, &mut memory)?;
    launch.back(&mut memory);
    Ok(counts)
}

const MODES: [Approximation; 3] =
    [Approximation::Rounded, Approximation::Perturbed(1), Approximation::Perturbed(0xfeed)];

#[test]
fn every_kernel_decodes_and_none_is_refused() {
    assert!(module().kernels().len() > 100);
    for kernel in module().kernels() {
        assert!(
            kernel.refused.is_empty() && kernel.descriptor.is_ok(),
            "{}: {:?}",
            kernel.name,
            kernel.refused
        );
        let parameters = module().parameters(&kernel.name).unwrap();
        assert_eq!(
            (parameters.len(), parameters[0].size, parameters[1].offset),
            (89, 4, 8),
            "{}",
            kernel.name
        );
    }
}

#[test]
fn aggregate() {
    // Multiples of ⅛: sums are exact in any order.
    let offsets = [0u32, 5, 5, 300, 1000];
    let values: Vec<f32> = (0..1000).map(|n| (n * 37 % 101) as f32 / 8.0 - 5.0).collect();
    let mask: Vec<u8> = (0..1000).map(|n| u8::from(n % 3 != 1)).collect();
    for teams in [1, 2, 4] {
        let (mut sum, mut tokens, mut alarm) = ([9.0f64; 4], [9u32; 4], [9u32; 4]);
        let kernel = Aggregate {
            cu_seqlens: Offsets::new("cu_seqlens", &offsets, 1000, "tokens").unwrap(),
            loss_mask: Mask::new(Some(&mask)),
            values: Some(In::new(&values)),
            row_sum: Out::new(&mut sum),
            row_tokens: Out::new(&mut tokens),
            row_alarm: Out::new(&mut alarm),
        };
        let counts = run(module(), "aggregate", &kernel, teams).unwrap();
        assert!(
            counts.requests > 30 && counts.lane_instructions > 60 * counts.instructions / 2,
            "{counts:?}"
        );
        for row in 0..4 {
            let live = (offsets[row] as usize..offsets[row + 1] as usize).filter(|i| mask[*i] != 0);
            assert_eq!(sum[row], live.clone().map(|i| f64::from(values[i])).sum::<f64>());
            assert_eq!(tokens[row] as usize, live.count());
        }
    }
}

#[test]
fn group_advantage_whatever_the_reciprocals_are() {
    let groups = [0u32, 4, 8, 10];
    let rewards = [1.0f32, 0.0, 1.0, 0.0, 3.0, 3.0, 3.0, 7.0, 0.25, 0.75];
    let mut all = Vec::new();
    for mode in MODES {
        let (mut advantage, mut mean, mut std) = ([0.0f32; 10], [0.0f32; 3], [0.0f32; 3]);
        let (mut counted, mut status) = ([0u32; 3], [0u32; 3]);
        let kernel = GroupAdvantage {
            cu_groups: Offsets::new("cu_groups", &groups, 10, "rewards").unwrap(),
            rewards: In::new(&rewards),
            valid: Mask::new(None),
            baseline: Baseline::Mean,
            scale: Scale::Std { ddof: 0, eps: 0.0 },
            singleton: Singleton::Zero,
            limit: f64::INFINITY,
            least_std: 0.0,
            weights: None,
            lengths: None,
            given: None,
            moments: None,
            advantage: Out::new(&mut advantage),
            mean: Out::new(&mut mean),
            std: Out::new(&mut std),
            counted: Out::new(&mut counted),
            status: Out::new(&mut status),
            pivot: None,
            residual: None,
        };
        run(&module().clone().with_approximation(mode), "group_advantage", &kernel, 2).unwrap();
        assert_eq!((mean, std[0], counted), ([0.5, 4.0, 0.5], 0.5, [4, 4, 2]));
        assert_eq!(std[1], 3.0f32.sqrt());
        assert_eq!(advantage[..4], [1.0, -1.0, 1.0, -1.0]);
        assert_eq!(advantage[7], 3.0f64.sqrt() as f32);
        all.push((advantage.map(f32::to_bits), std.map(f32::to_bits)));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn policy_loss() {
    let offsets = [0u32, 100, 230];
    let logp: Vec<f32> = (0..230).map(|n| -0.01 * n as f32).collect();
    let advantage = [2.0f32, -0.5];
    let (mut coef, mut tokens, mut alarm) = (vec![9.0f32; 230], [9u32; 2], [9u32; 2]);
    let kernel = PolicyLoss {
        cu_seqlens: Offsets::new("cu_seqlens", &offsets, 230, "tokens").unwrap(),
        loss_mask: Mask::new(None),
        logp: In::new(&logp),
        logp_old: In::new(&logp),
        logp_second: None,
        advantage: In::new(&advantage),
        advantage_per_token: false,
        weights: None,
        level: RatioGranularity::Token,
        guard: Guard::NONE,
        gate: Reinforce,
        kl: None,
        weight: Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 },
        weight_from: WeightFrom::ABSENT,
        coef: Out::new(&mut coef),
        loss: None,
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarm),
        metrics: None,
    };
    run(module(), "policy_loss_reinforce_any", &kernel, 1).unwrap();
    assert_eq!(tokens, [100, 130]);
    // REINFORCE: the gradient of −A · logp, whatever the ratio.
    for (at, coef) in coef.iter().enumerate() {
        assert_eq!(*coef, if at < 100 { -2.0 } else { 0.5 }, "token {at}");
    }
}

#[test]
fn tree_sort_merges_two_runs() {
    // Sequences: [1 2], [1 3], [1 2 2], [5]; runs 0 1 and 2 3.
    let (tokens, offsets) = ([1u32, 2, 1, 3, 1, 2, 2, 5], [0u32, 2, 4, 7, 8]);
    let (merges, middle, order, lcp) = ([0u32, 4], [2u32], [0u32, 1, 2, 3], [0u32, 1, 0, 0]);
    let (mut sorted, mut shared) = ([9u32; 4], [9u32; 4]);
    let kernel = TreeSort {
        cu_merges: Offsets::new("cu_merges", &merges, 4, "sequences").unwrap(),
        middle: In::new(&middle),
        cu_seqlens: Offsets::new("cu_seqlens", &offsets, 8, "tokens").unwrap(),
        tokens: In::new(&tokens),
        pad: None,
        order: In::new(&order),
        lcp: In::new(&lcp),
        sorted: Out::new(&mut sorted),
        sorted_lcp: Out::new(&mut shared),
    };
    run(module(), "tree_sort", &kernel, 1).unwrap();
    assert_eq!((sorted, shared), ([0, 2, 1, 3], [0, 2, 1, 0]));
}

/// Random bytes of the object are changed: loading gives an error or a module, never a panic.
#[test]
fn broken_objects_are_refused() {
    let good = lockstep_kernels::artifacts::GFX942;
    let mut random = crate::random::Random(0xb20);
    for round in 0..12 {
        let mut bad = good.to_vec();
        if round % 3 == 0 {
            bad.truncate(random.below(bad.len() as u64) as usize);
        } else {
            // The headers and the ends, where the structure is.
            for _ in 0..40 {
                let window = [64 * 40, bad.len()][random.below(2) as usize];
                let at = random.below(window as u64) as usize;
                let at = if random.one_in(2) { at } else { bad.len() - 1 - at };
                bad[at] ^= 1 << random.below(8);
            }
        }
        if let Ok(module) = Module::load(&bad) {
            for kernel in module.kernels() {
                assert_eq!(kernel.code.len(), kernel.offsets.len());
            }
        }
    }
    assert!(Module::load(&[]).is_err() && Module::load(&good[..64]).is_err());
}

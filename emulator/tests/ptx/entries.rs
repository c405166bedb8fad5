//! Shipped entry points, on values whose results are known by hand. (The emulated driver library runs all of
//! them against the reference's bits.)

use super::device::{Launch, PTX};
use lockstep_core::advantage::{Baseline, GroupAdvantage, Scale, Singleton};
use lockstep_core::aggregate::{Aggregate, PerRow, RowScan, Weight, WeightFrom};
use lockstep_core::gate::PpoClip;
use lockstep_core::op::Kernel;
use lockstep_core::policy_loss::{LossOut, PolicyLoss};
use lockstep_core::ragged::{In, Mask, Offsets, Out, flag};
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_core::team::Direction;
use lockstep_core::tree::TreeSort;
use lockstep_emulator::counts::Counts;
use lockstep_emulator::fault::Fault;
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;
use std::sync::LazyLock;

static MODULE: LazyLock<Module> = LazyLock::new(|| Module::parse(PTX).expect("the shipped PTX"));

/// Blocks, and warps per block: fewer than rows, as many, more.
const GRIDS: [(u32, u32); 3] = [(1, 1), (2, 2), (1, 8)];

fn run<K: Kernel>(op: &K, blocks: u32, warps: u32) -> Result<Counts, Box<Fault>> {
    run_in(op, blocks, warps, &mut Memory::new(1 << 24))
}

fn run_in<K: Kernel>(op: &K, blocks: u32, warps: u32, memory: &mut Memory) -> Result<Counts, Box<Fault>> {
    let launch = Launch::new(op, blocks, warps, memory);
    let counts = launch.run(&*MODULE, memory)?;
    launch.back(memory);
    Ok(counts)
}

fn offsets(offsets: &[u32], elements: usize) -> Offsets<'_> {
    Offsets::new("cu_seqlens", offsets, elements, "tokens").expect("offsets")
}

#[test]
fn sums_of_rows() {
    let cu = [0, 3, 3, 133, 400];
    let values: Vec<f32> = (0..400).map(|i| (i % 10) as f32 - 0.5).collect();
    let mask: Vec<u8> = (0..400).map(|i| u8::from(i % 3 != 1)).collect();
    for (blocks, warps) in GRIDS {
        let (mut sums, mut tokens, mut alarms) = ([7.0; 4], [7; 4], [7; 4]);
        let op = Aggregate {
            cu_seqlens: offsets(&cu, 400),
            loss_mask: Mask::new(Some(&mask)),
            values: Some(In::new(&values)),
            row_sum: Out::new(&mut sums),
            row_tokens: Out::new(&mut tokens),
            row_alarm: Out::new(&mut alarms),
        };
        let counts = run(&op, blocks, warps).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(counts.instructions > 100 && counts.efficiency(0) > 0.5, "{counts:?}");
        for row in 0..4 {
            let live = (cu[row] as usize..cu[row + 1] as usize).filter(|i| mask[*i] != 0);
            assert_eq!(tokens[row], live.clone().count() as u32);
            // Halves of small integers: any summation order is exact.
            assert_eq!(sums[row], live.map(|i| f64::from(values[i])).sum::<f64>());
            assert!(alarms[row] <= flag::LIMIT);
        }
    }
}

#[test]
fn prefixes_of_rows() {
    let cu = [0, 5, 75];
    let values: Vec<f32> = (0..75).map(|i| (i % 7) as f32).collect();
    for (direction, prefix) in [(Direction::Prefix, true), (Direction::Suffix, false)] {
        let mut scanned = vec![0.0; 75];
        let op = RowScan {
            cu_seqlens: offsets(&cu, 75),
            loss_mask: Mask::new(None),
            values: In::new(&values),
            direction,
            scanned: Out::new(&mut scanned),
        };
        run(&op, 1, 2).unwrap_or_else(|fault| panic!("{fault}"));
        for row in cu.windows(2) {
            let (start, end) = (row[0] as usize, row[1] as usize);
            for i in start..end {
                let part = if prefix { &values[start..=i] } else { &values[i..end] };
                assert_eq!(scanned[i], part.iter().sum::<f32>(), "{i}");
            }
        }
    }
}

#[test]
fn a_policy_loss_at_ratio_one() {
    let cu = [0, 40, 42];
    let logp: Vec<f32> = (0..42).map(|i| -0.25 * (i % 5) as f32).collect();
    let advantage = [2.0, -1.5];
    for (blocks, warps) in GRIDS {
        let (mut coef, mut token_loss) = (vec![9.0; 42], vec![9.0; 42]);
        let (mut row_loss, mut tokens, mut alarms) = ([9.0; 2], [9; 2], [9; 2]);
        let op = PolicyLoss {
            cu_seqlens: offsets(&cu, 42),
            loss_mask: Mask::new(None),
            logp: In::new(&logp),
            logp_old: In::new(&logp),
            logp_second: None,
            advantage: In::new(&advantage),
            advantage_per_token: false,
            weights: None,
            level: RatioGranularity::Token,
            guard: Guard::NONE,
            gate: PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.2, clip_ratio_c: 3.0 },
            kl: None,
            weight: Weight { per_row: PerRow::One, denominator: 8.0, scale: 1.0 },
            weight_from: WeightFrom::ABSENT,
            coef: Out::new(&mut coef),
            loss: Some(LossOut {
                token_loss: Some(Out::new(&mut token_loss)),
                row_loss: Out::new(&mut row_loss),
            }),
            row_tokens: Out::new(&mut tokens),
            row_alarm: Out::new(&mut alarms),
            metrics: None,
        };
        run(&op, blocks, warps).unwrap_or_else(|fault| panic!("{fault}"));
        for i in 0..42 {
            let a = advantage[usize::from(i >= 40)];
            // L = −A·r / 8 with r = exp(0) = 1, and dL/dlogp the same.
            assert_eq!((coef[i], token_loss[i]), (-a / 8.0, -a), "{i}");
        }
        assert_eq!((row_loss, tokens), ([-2.0 * 40.0 / 8.0, 1.5 * 2.0 / 8.0], [40, 2]));
    }
}

#[test]
fn advantages_of_groups() {
    let cu = [0, 4, 5, 8];
    let rewards = [1.0, 0.0, 0.0, 1.0, 5.0, 3.0, 3.0, 3.0];
    let mut advantage = [9.0; 8];
    let (mut mean, mut std, mut counted, mut status) = ([9.0; 3], [9.0; 3], [9; 3], [9; 3]);
    let op = GroupAdvantage {
        cu_groups: offsets(&cu, 8),
        rewards: In::new(&rewards),
        valid: Mask::new(None),
        baseline: Baseline::Mean,
        scale: Scale::None { ddof: 1 },
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
    run(&op, 1, 2).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(advantage, [0.5, -0.5, -0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!((mean, counted), ([0.5, 5.0, 3.0], [4, 1, 3]));
}

#[test]
fn two_sequences_in_order() {
    let cu = [0, 3, 6];
    let tokens = [1, 2, 4, 1, 2, 3];
    let (mut sorted, mut shared) = ([9; 2], [9; 2]);
    let op = TreeSort {
        cu_merges: offsets(&[0, 2], 2),
        middle: In::new(&[1]),
        cu_seqlens: offsets(&cu, 6),
        tokens: In::new(&tokens),
        pad: None,
        order: In::new(&[0, 1]),
        lcp: In::new(&[0, 0]),
        sorted: Out::new(&mut sorted),
        sorted_lcp: Out::new(&mut shared),
    };
    run(&op, 1, 1).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!((sorted, shared), ([1, 0], [0, 2]));
}

#[test]
fn a_shipped_store_can_be_traced() {
    let mut memory = Memory::new(1 << 20);
    memory.trace_stores();
    let values = [1.0; 64];
    let (mut sums, mut tokens, mut alarms) = ([0.0; 2], [0; 2], [0; 2]);
    let op = Aggregate {
        cu_seqlens: offsets(&[0, 30, 64], 64),
        loss_mask: Mask::new(None),
        values: Some(In::new(&values)),
        row_sum: Out::new(&mut sums),
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarms),
    };
    run_in(&op, 2, 1, &mut memory).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!((sums, tokens), ([30.0, 34.0], [30, 34]));
    let stores: Vec<String> =
        memory.live().iter().filter_map(|(a, _)| memory.last_store(*a)).map(|s| s.to_string()).collect();
    assert_eq!(stores.len(), 3, "one for each output: {stores:?}");
    assert!(stores.iter().all(|store| {
        store.starts_with("last stored in `aggregate`, block 0, team 0, lane 0, instruction line ")
    }));
}

//! Few long rows: the instructions of the longest warp where each row has a warp, and where a block shares
//! it. With `--nocapture` the test prints the table of docs/speed.md.

use super::device::{Launch, PTX};
use lockstep_core::advantage::Gae;
use lockstep_core::aggregate::{PerRow, RowScan, Weight, WeightFrom};
use lockstep_core::gate::{Gate, PpoClip, Sapo};
use lockstep_core::kl::{Kl, KlDivergence, KlFormula};
use lockstep_core::op::Kernel;
use lockstep_core::policy_loss::{LossOut, MetricsOut, PolicyLoss, sum};
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_core::team::Direction;
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;
use std::sync::LazyLock;

static MODULE: LazyLock<Module> = LazyLock::new(|| Module::parse(PTX).expect("the shipped PTX"));

const ROWS: u32 = 8;

/// Inputs and outputs of 8 rows.
struct Batch {
    cu_seqlens: Vec<u32>,
    mask: Vec<u8>,
    logp: Vec<f32>,
    other: Vec<f32>,
    of_tokens: [Vec<f32>; 2],
    of_rows: Vec<f64>,
    maxima: Vec<f32>,
    tokens: Vec<u32>,
    alarm: Vec<u32>,
}

impl Batch {
    fn new(length: u32) -> Batch {
        let (n, rows) = ((ROWS * length) as usize, ROWS as usize);
        Batch {
            cu_seqlens: (0..=ROWS).map(|row| row * length).collect(),
            mask: (0..n).map(|i| u8::from(i % 11 != 3)).collect(),
            logp: (0..n).map(|i| -0.5 - (i % 97) as f32 * 0.01).collect(),
            other: (0..n).map(|i| -0.5 - (i % 89) as f32 * 0.011).collect(),
            of_tokens: [vec![7.0; n], vec![7.0; n]],
            of_rows: vec![7.0; (1 + sum::SUMS) * rows],
            maxima: vec![7.0; 2 * rows],
            tokens: vec![7; rows],
            alarm: vec![7; rows],
        }
    }

    /// The bits of the outputs.
    fn bits(&self) -> Vec<u64> {
        let singles = self.of_tokens.iter().flatten().chain(&self.maxima).map(|x| x.to_bits().into());
        let doubles = self.of_rows.iter().map(|x| x.to_bits());
        singles.chain(doubles).chain(self.tokens.iter().chain(&self.alarm).map(|x| u64::from(*x))).collect()
    }
}

/// Runs an op by a warp a row, or by a block of several; returns the instructions of the longest warp.
fn run<K: Kernel>(op: &K, warps: u32) -> u64 {
    let mut memory = Memory::new(1 << 28);
    let launch = match warps {
        1 => Launch::new(op, ROWS, 1, &mut memory),
        _ => Launch::shared(op, ROWS, warps, &mut memory),
    };
    let counts = launch.run(&*MODULE, &mut memory).unwrap_or_else(|fault| panic!("{fault}"));
    launch.back(&mut memory);
    counts.longest
}

/// A policy loss: coefficients alone, with the loss, with metrics.
fn policy_loss<G: Gate>(gate: G, outputs: usize, batch: &mut Batch, warps: u32) -> u64 {
    let Batch { of_tokens: [coef, _], of_rows, maxima, tokens, alarm, .. } = batch;
    let cu_seqlens = Offsets::new("cu_seqlens", &batch.cu_seqlens, batch.logp.len(), "tokens");
    let (row_loss, row_sums) = of_rows.split_at_mut(ROWS as usize);
    let op = PolicyLoss {
        cu_seqlens: cu_seqlens.expect("offsets"),
        loss_mask: Mask::new(Some(&batch.mask)),
        logp: In::new(&batch.logp),
        logp_old: In::new(&batch.other),
        logp_second: None,
        advantage: In::new(&[0.7, -0.3, 0.2, 1.5, -2.0, 0.1, 0.4, -0.9]),
        advantage_per_token: false,
        weights: None,
        level: RatioGranularity::Token,
        guard: Guard::clamp(Guard::LOG_RATIO_CLAMP),
        gate,
        kl: None,
        weight: Weight { per_row: PerRow::One, denominator: 8.0, scale: 1.0 },
        weight_from: WeightFrom::ABSENT,
        coef: Out::new(coef),
        loss: (outputs > 0).then(|| LossOut { token_loss: None, row_loss: Out::new(row_loss) }),
        row_tokens: Out::new(tokens),
        row_alarm: Out::new(alarm),
        metrics: (outputs > 1).then(|| MetricsOut {
            row_sums: Out::new(row_sums),
            row_maxima: Out::new(maxima),
            band: [0.5, 2.0],
        }),
    };
    run(&op, warps)
}

fn kl(batch: &mut Batch, warps: u32) -> u64 {
    let Batch { of_tokens: [value, gradient], of_rows, alarm, .. } = batch;
    let cu_seqlens = Offsets::new("cu_seqlens", &batch.cu_seqlens, batch.logp.len(), "tokens");
    let op = KlDivergence {
        cu_seqlens: cu_seqlens.expect("offsets"),
        loss_mask: Mask::new(Some(&batch.mask)),
        logp: In::new(&batch.logp),
        logp_ref: In::new(&batch.other),
        kl: Kl::guarded(KlFormula::K3),
        value: Some(Out::new(value)),
        gradient: Some(Out::new(gradient)),
        row_sum: Out::new(&mut of_rows[..ROWS as usize]),
        row_alarm: Out::new(alarm),
    };
    run(&op, warps)
}

fn gae(batch: &mut Batch, warps: u32) -> u64 {
    credit(Mask::new(Some(&batch.mask.clone())), batch, warps)
}

fn gae_unmasked(batch: &mut Batch, warps: u32) -> u64 {
    credit(Mask::all(), batch, warps)
}

fn credit(loss_mask: Mask<'_>, batch: &mut Batch, warps: u32) -> u64 {
    let Batch { of_tokens: [advantage, returns], alarm, .. } = batch;
    let cu_seqlens = Offsets::new("cu_seqlens", &batch.cu_seqlens, batch.logp.len(), "tokens");
    let op = Gae {
        cu_seqlens: cu_seqlens.expect("offsets"),
        loss_mask,
        rewards: In::new(&batch.logp),
        values: In::new(&batch.other),
        bootstrap: Some(In::new(&[0.5; ROWS as usize])),
        truncated: Mask::new(Some(&[1, 0, 1, 1, 0, 0, 1, 0])),
        gamma: 0.99,
        lambda: 0.95,
        length_alpha: None,
        advantage: Some(Out::new(advantage)),
        returns: Some(Out::new(returns)),
        row_alarm: Out::new(alarm),
    };
    run(&op, warps)
}

fn row_scan(batch: &mut Batch, warps: u32) -> u64 {
    let cu_seqlens = Offsets::new("cu_seqlens", &batch.cu_seqlens, batch.logp.len(), "tokens");
    let op = RowScan {
        cu_seqlens: cu_seqlens.expect("offsets"),
        loss_mask: Mask::new(Some(&batch.mask)),
        values: In::new(&batch.logp),
        direction: Direction::Suffix,
        scanned: Out::new(&mut batch.of_tokens[0]),
    };
    run(&op, warps)
}

type Case = (&'static str, fn(&mut Batch, u32) -> u64, f64);

/// What a step calls, and how many times fewer instructions a block's longest warp has in rows of 32,768.
/// Terms of metrics fill the block's memory: 9 of 16 warps have room. A scan does little beside its carry,
/// and so does `gae` where no element is masked.
const CASES: [Case; 9] = [
    ("PPO", |batch, warps| policy_loss(ppo(), 0, batch, warps), 8.0),
    ("PPO, loss", |batch, warps| policy_loss(ppo(), 1, batch, warps), 8.0),
    ("PPO, metrics", |batch, warps| policy_loss(ppo(), 2, batch, warps), 7.0),
    ("SAPO", |batch, warps| policy_loss(sapo(), 0, batch, warps), 8.0),
    ("SAPO, loss", |batch, warps| policy_loss(sapo(), 1, batch, warps), 8.0),
    ("KL, k3", kl, 8.0),
    ("gae", gae, 8.0),
    ("gae, no mask", gae_unmasked, 6.5),
    ("row_scan", row_scan, 6.5),
];

fn ppo() -> PpoClip {
    PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.2, clip_ratio_c: 3.0 }
}

fn sapo() -> Sapo {
    Sapo::new(1.0, 1.05)
}

#[test]
fn a_block_shortens_the_longest_warp_and_leaves_the_same_bits() {
    for (name, of, least) in CASES {
        for length in [4096, 32_768] {
            let [mut alone, mut shared] = [Batch::new(length), Batch::new(length)];
            let longest = [of(&mut alone, 1), of(&mut shared, 16)];
            assert!(alone.bits() == shared.bits(), "{name}, rows of {length}: other bits");
            let times = longest[0] as f64 / longest[1] as f64;
            println!("| {name} | 8 × {length} | {} | {} | {times:.1} |", longest[0], longest[1]);
            assert!(length < 32_768 || times >= least, "{name}: {times} times fewer");
        }
    }
}

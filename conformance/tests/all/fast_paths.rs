//! Paths that a CPU computes differently from a GPU, or that write into a caller's memory, give the same
//! bits.

use crate::gate_batch::{batch, credit, data, input};
use crate::prelude::*;
use lockstep::core::advantage::Combine;
use lockstep::core::kl_importance::KlImportance;
use lockstep::core::op::Kernel;
use lockstep::core::select::Order;
use lockstep::core::team::Team;
use lockstep::ops::select::{Candidates, Pick, Selection, covariance, covariance_into, select, select_into};
use lockstep::ops::value_loss::{ValueInput, ValueOutput};
use lockstep::recipe::MaskChoice;
use lockstep_conformance::cases::random;
use lockstep_conformance::output::first_difference;
use lockstep_cpu::Cpu;

/// Where a device differs from the policy loss's general path: per-token advantages on the plain level.
fn differs(device: &Device, case: &Case) -> Option<(&'static str, usize, u64, u64)> {
    let mut general = case.clone();
    if let AnyOp::Policy(policy) = &mut general.params {
        policy.per_token = true;
    }
    for row in 0..case.data.rows() {
        general.data.element[slot::ADVANTAGE][case.data.span(row)].fill(case.data.row[0][row]);
    }
    first_difference(&launch::run(&plain(), &general).unwrap(), &launch::run(device, case).unwrap())
}

fn plain() -> Device {
    Device::open("cpu:plain").unwrap()
}

#[test]
fn short_ways_of_policy_losses_have_the_bits_of_the_general_one() {
    for op in OPS.iter().filter(|op| op.file == "policy_loss/mod.rs") {
        for seed in 0..48 {
            let mut case = random::random(op.name, seed).unwrap();
            let AnyOp::Policy(policy) = &mut case.params else { panic!("{}", op.name) };
            let choice = |k: usize, of: usize| Source::new(seed).fork(9).below(k, of);
            // Settings that take the CPU's short paths.
            (policy.weights, policy.per_token) = (false, false);
            policy.kl = (choice(0, 2) == 0).then(|| {
                let estimator = [KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3][choice(1, 4)];
                // The fused loss clamps k3 alone.
                let kl = if estimator == KlFormula::K3 { Kl::guarded(estimator) } else { Kl::new(estimator) };
                (Kl { straight_through: choice(2, 4) == 0, ..kl }, 0.25)
            });
            (policy.loss, policy.token_loss, policy.metrics) = (choice(3, 3) != 0, choice(4, 4) == 0, false);
            policy.token_loss &= policy.loss;
            let guards = [Guard::clamp(0.25), Guard::clamp(20.0), Guard::NONE, Guard::straight_through(0.25)];
            policy.guard = guards[choice(5, 4)];
            policy.level = match choice(6, 3) {
                0 => RatioGranularity::Sequence { log_max: if seed % 3 == 0 { 0.125 } else { 10.0 } },
                _ => RatioGranularity::Token,
            };
            let unguarded = policy.guard == Guard::NONE;
            // Bad inputs too: an alarm, and still the same bits.
            if seed >= 32 {
                let k = if seed % 2 == 0 { slot::LOGP } else { slot::LOGP_OLD };
                let bad = [f32::NAN, f32::NEG_INFINITY, 0.5, f32::INFINITY][seed as usize % 4];
                case.data.element[k].iter_mut().step_by(7).for_each(|x| *x = bad);
            } else if unguarded && seed % 2 == 0 {
                // An alarm even where every token of the row is clipped.
                case.data.row[0].iter_mut().step_by(2).for_each(|x| *x = f32::INFINITY);
            }
            assert_eq!(differs(&plain(), &case), None, "{} plain {seed}", op.name);
            assert_eq!(differs(&Device::cpu(), &case), None, "{} fast {seed}", op.name);
        }
    }
}

/// A batch larger than a selection's sample, with some equal values.
fn large(seed: u64) -> (Vec<u32>, Vec<u8>, Vec<f32>) {
    let source = Source::new(seed);
    let mut offsets = vec![0u32];
    while offsets[offsets.len() - 1] <= 24_000 {
        let row = offsets.len() - 1;
        offsets.push(offsets[row] + [0, 1, 700, 2047, 33][row % 5]);
    }
    let n = offsets[offsets.len() - 1] as usize;
    let value = |i: usize| match seed % 3 {
        0 => source.signed(i),
        1 => [0.5, -0.0, 0.0, f32::NAN, -2.0, f32::INFINITY][source.below(i, 6)],
        _ => 1.0,
    };
    let mask = (0..n).map(|i| u8::from(source.fork(1).below(i, 10) != 0 && seed != 5)).collect();
    (offsets, mask, (0..n).map(value).collect())
}

#[test]
fn one_pass_selects_what_eleven_do() {
    // Memory left over from an earlier batch of another size and content.
    let mut reused = Selection::default();
    for seed in 0..6 {
        let (offsets, mask, values) = large(seed);
        let groups = [0, offsets.len() as u32 - 1];
        let batch = Batch::with_empty_rows(&offsets, &groups, Some(&mask)).unwrap();
        let n = values.len() as u32;
        for wanted in [0, 1, n / 5000, n / 5, n] {
            for order in [Order::Largest, Order::Random { seed, first: 3 }] {
                let candidates = Candidates { order, ..Candidates::largest(&values) };
                let passes = select(&plain(), &batch, &candidates, wanted).unwrap();
                select_into(&Device::cpu(), &batch, &candidates, wanted, &mut reused).unwrap();
                assert_eq!(reused, passes, "seed {seed}, {wanted} of {n}");
                let (on, off) = (Pick::All(1.0), Pick::Each(&values[..]));
                let choose = |device: Device| passes.choose(&device, &batch, on, off).unwrap();
                let [(a, x), (b, y)] = [plain(), Device::cpu()].map(choose);
                assert!(x == y && a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}

#[test]
fn memory_that_is_reused_changes_no_bit() {
    let device = Device::cpu();
    let (mut whitened, mut moved, mut value) = (vec![7.0; 3], vec![7.0; 900], ValueOutput::default());
    for seed in 0..4 {
        let data = data(seed);
        let batch = batch(&data);
        let [logp, old] = [slot::LOGP, slot::LOGP_OLD].map(|k| &data.element[k][..]);
        let values = Advantage::PerToken(logp);
        ops::whiten_into(&device, &batch, values, &WhitenParams::VERL, &mut whitened).unwrap();
        assert_eq!(whitened, ops::whiten(&plain(), &batch, values, &WhitenParams::VERL).unwrap());
        let advantage = Advantage::PerSequence(&data.row[0]);
        let tokens = covariance_into(&device, &batch, logp, advantage, &mut moved).unwrap();
        assert_eq!(tokens, batch.counts(&device).unwrap().tokens);
        assert_eq!(moved, covariance(&plain(), &batch, logp, advantage).unwrap());
        let weight = Weight { per_row: PerRow::One, denominator: 3.0, scale: 1.0 };
        let read = ValueInput { values: logp, values_old: Some(old), returns: old, huber_delta: None };
        ops::value_loss_into(&device, &batch, &read, 0.1, &weight, seed % 2 == 0, &mut value).unwrap();
        let fresh = ops::value_loss(&plain(), &batch, &read, 0.1, &weight).unwrap();
        assert_eq!((&value.gradient, &value.row_loss), (&fresh.gradient, &fresh.row_loss));
        assert_eq!((value.loss, value.clip_fraction), (fresh.loss, fresh.clip_fraction));
        assert_eq!(value.token_loss, if seed % 2 == 0 { fresh.token_loss } else { vec![] });
    }
}

#[test]
fn recipes_reuse_buffers_without_a_trace() {
    let mut out = Loss::default();
    for seed in 0..3 {
        let data = data(seed);
        let entropy: Vec<f32> = data.element[slot::LOGP].iter().map(|x| -x).collect();
        let rollouts = Rollouts {
            entropy: Some(&entropy),
            seed: Some(&[seed]),
            logp_ref: Some(&data.element[slot::LOGP_REF]),
            ..input(&data)
        };
        let names = "kl_cov clip_cov vespo topr opsm dro top_entropy nemo_kl ppo minpro";
        for name in names.split(' ') {
            let mut recipe = Recipe::named(name).unwrap();
            if name == "clip_cov" {
                recipe.mask = MaskChoice { top_entropy: Some(0.5), ..recipe.mask };
            }
            let credit = credit(&data);
            recipe.loss_into(&Device::cpu(), &rollouts, &credit, Outputs::ALL, &mut out).unwrap();
            assert_eq!(out, recipe.loss(&plain(), &rollouts, &credit).unwrap(), "{name}");
        }
    }
}

/// Kernels that take a GPU entry point's path on a CPU.
macro_rules! general {
    ($($name:ident of $kernel:ident),*) => {$(
        lockstep_core::kernel! {
            /// The table's kernel.
            pub struct $name<'a> {
                /// The kernel.
                pub kernel: $kernel<'a>,
            }
            // The rows are those of the table's kernel.
            unsafe $kernel::NAME, rows |k| k.kernel.rows(), work |k, row| k.kernel.work(row),
                check |k| k.kernel.check_bounds();
        }

        impl Kernel for $name<'_> {
            fn row<T: Team>(&self, team: &T, row: usize) {
                self.kernel.row_as::<0, T>(team, row);
            }
        }
    )*};
}
general!(GeneralKl of KlImportance, GeneralCombine of Combine);

/// Compares a run on each level with a run on the general path of the plain one.
fn same_as_general<T: PartialEq>(at: u64, run: impl Fn(&Cpu, bool) -> T) {
    let expected = run(&Cpu::PLAIN, true);
    for cpu in [Cpu::PLAIN, Cpu::best()] {
        assert!(run(&cpu, false) == expected, "{at} {}", cpu.level());
    }
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn a_kl_term_that_knows_its_estimator_has_the_bits_of_one_that_asks() {
    for seed in 0..48 {
        let mut data = data(seed);
        let choice = |k: usize, of: usize| Source::new(seed).fork(7).below(k, of);
        // Bad inputs too, and values that overflow.
        if seed >= 32 {
            let k = [slot::LOGP, slot::LOGP_OLD, slot::LOGP_REF][choice(0, 3)];
            let bad = [f32::NAN, f32::NEG_INFINITY, 0.5, -3e38][choice(1, 4)];
            data.element[k].iter_mut().step_by(5).for_each(|x| *x = bad);
        }
        let batch = batch(&data);
        let estimator = [KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3][seed as usize % 4];
        let kl = if choice(2, 2) == 0 { Kl::new(estimator) } else { Kl::guarded(estimator) };
        same_as_general(seed, |cpu, general| {
            let (n, rows) = (batch.tokens(), batch.sequences());
            let (mut value, mut gradient) = (vec![7.0; n], vec![7.0; n]);
            let (mut row_sum, mut row_alarm) = (vec![7.0; rows], vec![7; rows]);
            let [logp, logp_old, logp_ref] =
                [slot::LOGP, slot::LOGP_OLD, slot::LOGP_REF].map(|k| In::new(&data.element[k]));
            let kernel = KlImportance {
                cu_seqlens: batch.cu_seqlens(),
                loss_mask: batch.loss_mask(),
                logp,
                logp_old,
                logp_ref,
                kl: Kl { straight_through: choice(3, 3) == 0, ..kl },
                guard: [Guard::clamp(0.25), Guard::clamp(20.0), Guard::NONE][choice(4, 3)],
                through_ratio: choice(5, 2) == 0,
                value: Some(Out::new(&mut value)),
                gradient: Some(Out::new(&mut gradient)),
                row_sum: Out::new(&mut row_sum),
                row_alarm: Out::new(&mut row_alarm),
            };
            if general {
                cpu.run_own(&GeneralKl { kernel })
            } else {
                cpu.run(&kernel)
            }
            let row_sum: Vec<u64> = row_sum.into_iter().map(f64::to_bits).collect();
            (bits(value), bits(gradient), row_sum, row_alarm)
        });
    }
}

#[test]
fn two_components_have_the_bits_of_many() {
    for seed in 0..24 {
        let source = Source::new(seed);
        let offsets = [0, 1, 1, 130, 300];
        let value = |i: usize| match source.below(i, 12) {
            0 => f32::NAN,
            1 => [-0.0, 3e38, f32::INFINITY, f32::NEG_INFINITY][source.fork(1).below(i, 4)],
            _ => source.signed(i),
        };
        let components: Vec<f32> = (0..600).map(value).collect();
        let weights = [[1.0, -0.5], [3e38, 1.0], [0.0, -0.0]][seed as usize % 3];
        let batch = Batch::with_empty_rows(&offsets, &[0, 4], None).unwrap();
        same_as_general(seed, |cpu, general| {
            let mut combined = vec![7.0; 300];
            let kernel = Combine {
                cu_groups: batch.cu_seqlens(),
                components: In::new(&components),
                weights: In::new(&weights),
                combined: Out::new(&mut combined),
            };
            if general {
                cpu.run_own(&GeneralCombine { kernel })
            } else {
                cpu.run(&kernel)
            }
            bits(combined)
        });
    }
}

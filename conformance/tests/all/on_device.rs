//! The parts of a step whose counts never leave the device: losses that read them from memory, `loss_totals`.
//! They give the bits of the step on the host.

use crate::prelude::*;
use lockstep::ops::fold_rows;
use lockstep_conformance::cases::params::weights;
use lockstep_conformance::ops::gmpo::Gmpo;
use lockstep_conformance::ops::policy_loss::{POLICY_SUMS, Policy};
use lockstep_conformance::ops::value_loss::ValueLoss;
use lockstep_conformance::output::{Output, Values, first_difference};
use lockstep_core::Error;
use lockstep_core::aggregate::totals::{COUNTS, NONEMPTY, SEQUENCES, TOKENS};
use lockstep_core::aggregate::weight::PARTS;
use lockstep_core::aggregate::{LossTotals, MetricTotals, WeightFrom};
use lockstep_core::policy_loss::sum;
use lockstep_cpu::plain::Plain;

fn devices() -> impl Iterator<Item = Device> {
    SimdLevel::available().into_iter().map(|level| Device::cpu_with(Some(level), Some(2)).unwrap())
}

/// Every loss with a weight.
fn losses() -> impl Iterator<Item = &'static str> {
    OPS.iter().map(|op| op.name).filter(|name| name.starts_with("policy_loss_") || *name == "value_loss")
}

/// The case with this weight, whose numbers are read from `counted` partial counts.
fn with(case: &Case, weight: Weight, counted: Option<usize>) -> Case {
    let params = match case.params {
        AnyOp::Policy(policy) => AnyOp::Policy(Policy { weight, counted, ..policy }),
        AnyOp::Gmpo(gmpo) => Gmpo { denominator: weight.denominator, counted, ..gmpo }.into(),
        AnyOp::ValueLoss(value) => ValueLoss { weight, counted, ..value }.into(),
        other => panic!("{other:?} has no weight"),
    };
    Case { params, ..case.clone() }
}

#[test]
fn numbers_from_memory_give_the_bits_of_numbers_by_value() {
    let (mut compared, mut ops) = (0, 0);
    for device in devices() {
        for op in losses() {
            ops += 1;
            let cases = (0..40).filter_map(|seed| random(op, seed)).filter(|c| c.data.elements() < 3000);
            for case in cases.take(12) {
                for weight in weights() {
                    let by_value = launch::run(&device, &with(&case, weight, None)).unwrap();
                    for counted in [1, 2, 7, PARTS] {
                        let read = launch::run(&device, &with(&case, weight, Some(counted))).unwrap();
                        let found = first_difference(&by_value, &read);
                        assert!(found.is_none(), "{op} {} {weight:?} {counted}: {found:x?}", case.label);
                        compared += read.iter().map(Output::len).sum::<usize>();
                    }
                }
            }
        }
    }
    assert_eq!(ops, 11 * SimdLevel::available().len(), "nine gates, GMPO and the values");
    assert!(compared > 1_000_000, "{compared}");
}

#[test]
fn weights_are_filled_from_partial_counts() {
    let constant = Weight { per_row: PerRow::Constant(7.5), denominator: 0.25, scale: 3.0 };
    let fill = |weight: Weight, denominator: Option<&[u64]>, horizon: Option<&[u64]>| {
        WeightFrom { denominator: denominator.map(In::new), horizon: horizon.map(In::new) }
            .fill(&Plain, weight)
    };
    assert_eq!(fill(constant, None, None), constant);
    assert_eq!(WeightFrom::ABSENT.fill(&Plain, constant), constant);
    let filled = Weight { per_row: PerRow::Constant(9.0), denominator: 7.0, scale: 3.0 };
    assert_eq!(fill(constant, Some(&[3, 0, 4]), Some(&[3, 9, 4])), filled);
    // A batch without tokens: the weight is 0, and the horizon does not divide by 0.
    let filled = fill(constant, Some(&[0, 0]), Some(&[0, 0]));
    assert_eq!((filled.per_row, filled.denominator, filled.of(1)), (PerRow::Constant(1.0), 0.0, 0.0));
    // Exact up to 2^53, on both sides of a word of 32 bits.
    for count in [u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, (1 << 53) - 1, 1 << 53] {
        let filled = fill(constant, Some(&[count - 1, 1]), Some(&[count, 5]));
        assert_eq!((filled.denominator, filled.per_row), (count as f64, PerRow::Constant(count as f64)));
    }
    // Only a constant has a horizon.
    let mean = Weight { per_row: PerRow::AtLeastOne, ..constant };
    assert_eq!(fill(mean, None, Some(&[3])), mean);
}

#[test]
fn partial_counts_are_checked() {
    let many = [1; PARTS + 1];
    let weight = |per_row| Weight { per_row, denominator: f64::NAN, scale: 1.0 };
    let from =
        |denominator: &'static [u64]| WeightFrom { denominator: Some(In::new(denominator)), horizon: None };
    assert_eq!(from(&[1, 2]).check(&weight(PerRow::One)), Ok(()), "the denominator by value is ignored");
    assert!(matches!(WeightFrom::ABSENT.check(&weight(PerRow::One)), Err(Error::Value { .. })));
    assert!(matches!(from(&[]).check(&weight(PerRow::One)), Err(Error::Empty { .. })));
    let from = WeightFrom { denominator: Some(In::new(&many)), horizon: None };
    assert!(matches!(from.check(&weight(PerRow::One)), Err(Error::Length { got: 65, .. })));
    let from = WeightFrom { denominator: Some(In::new(&many[1..])), horizon: Some(In::new(&many[1..])) };
    assert_eq!(from.check(&weight(PerRow::Constant(f64::NAN))), Ok(()), "so is the constant");
    assert!(matches!(from.check(&weight(PerRow::AtLeastOne)), Err(Error::Combination { .. })));
    let infinite = Weight { scale: f64::INFINITY, ..weight(PerRow::One) };
    assert!(matches!(WeightFrom { horizon: None, ..from }.check(&infinite), Err(Error::Value { .. })));
}

/// Everything that `loss_totals` computes for a batch.
#[derive(Clone, Debug, Default, PartialEq)]
struct Scalars {
    loss: u64,
    sums: Vec<u64>,
    maxima: Vec<u32>,
    counts: [u64; COUNTS],
    alarm: u32,
}

/// A policy loss's outputs for each sequence.
#[derive(Clone, Debug)]
struct Rows {
    loss: Vec<f64>,
    sums: Vec<f64>,
    maxima: Vec<f32>,
    tokens: Vec<u32>,
    alarm: Vec<u32>,
}

impl Rows {
    fn of(outputs: &[Output]) -> Rows {
        let values = |name: &str| &outputs.iter().find(|output| output.name == name).unwrap().values;
        macro_rules! own {
            ($kind:ident, $names:expr) => {
                $names.iter().flat_map(|name| match values(name) {
                    Values::$kind(values) => values.clone(),
                    other => panic!("{name}: {other:?}"),
                })
            };
        }
        Rows {
            loss: own!(F64, ["row_loss"]).collect(),
            sums: own!(F64, POLICY_SUMS).collect(),
            maxima: own!(F32, ["max_ratio", "max_neg_ratio"]).collect(),
            tokens: own!(U32, ["row_tokens"]).collect(),
            alarm: own!(U32, ["alarm"]).collect(),
        }
    }

    fn totals(&self, device: &Device) -> Scalars {
        let (mut loss, mut counts, mut alarm) = ([f64::NAN], [u64::MAX; COUNTS], [9]);
        let (mut sums, mut maxima) = ([f64::NAN; sum::SUMS], [f32::NAN; 2]);
        let kernel = LossTotals {
            row_loss: In::new(&self.loss),
            row_tokens: In::new(&self.tokens),
            row_alarm: In::new(&self.alarm),
            loss: Out::new(&mut loss),
            counts: Out::new(&mut counts),
            alarm: Out::new(&mut alarm),
            metrics: Some(MetricTotals {
                row_sums: In::new(&self.sums),
                row_maxima: In::new(&self.maxima),
                sums: Out::new(&mut sums),
                maxima: Out::new(&mut maxima),
            }),
        };
        device.run(&kernel).unwrap();
        Scalars {
            loss: loss[0].to_bits(),
            sums: sums.iter().map(|x| x.to_bits()).collect(),
            maxima: maxima.iter().map(|x| x.to_bits()).collect(),
            counts,
            alarm: alarm[0],
        }
    }
}

/// A random case of a loss with all optional outputs, padded with `sequences` empty sequences.
fn padded(op: &str, seed: u64, sequences: usize) -> Case {
    let mut case = random(op, seed).unwrap();
    match &mut case.params {
        AnyOp::Policy(policy) => policy.metrics = true,
        AnyOp::Gmpo(gmpo) => (gmpo.loss, gmpo.metrics) = (true, true),
        other => panic!("{other:?} has no metrics"),
    }
    let rows = case.data.rows() + sequences;
    let tokens = case.data.elements() as u32;
    case.data.offsets.resize(rows + 1, tokens);
    case.data.row.iter_mut().for_each(|values| values.resize(rows, -1.5));
    case
}

#[test]
fn totals_have_the_bits_of_the_hosts_folds_whatever_is_padded() {
    for device in devices() {
        for op in losses().filter(|op| *op != "value_loss") {
            for seed in 0..12 {
                let own = Rows::of(&launch::run(&device, &padded(op, seed, 0)).unwrap());
                let sequences = own.tokens.len();
                let totals = own.totals(&device);
                // As in `ops::policy_loss`.
                let fold = |rows: &[f64]| -> Vec<u64> {
                    fold_rows(&device, rows, sequences).unwrap().into_iter().map(f64::to_bits).collect()
                };
                let largest = |row: &[f32]| row.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b)).to_bits();
                let mut counts = [0; COUNTS];
                counts[TOKENS] = own.tokens.iter().map(|n| u64::from(*n)).sum();
                counts[NONEMPTY] = own.tokens.iter().filter(|n| **n > 0).count() as u64;
                counts[SEQUENCES] = sequences as u64;
                let want = Scalars {
                    loss: fold(&own.loss)[0],
                    sums: fold(&own.sums),
                    maxima: own.maxima.chunks(sequences).map(largest).collect(),
                    counts,
                    alarm: *own.alarm.iter().max().unwrap(),
                };
                assert_eq!(totals, want, "{op} {seed}");
                for more in [1, 31, 130] {
                    let with = Rows::of(&launch::run(&device, &padded(op, seed, more)).unwrap());
                    assert!(with.loss[sequences..].iter().all(|x| x.to_bits() == 0), "{op}: +0 and not -0");
                    let mut again = with.totals(&device);
                    assert_eq!(again.counts[SEQUENCES], (sequences + more) as u64);
                    again.counts[SEQUENCES] = totals.counts[SEQUENCES];
                    assert_eq!(again, totals, "{op} {seed}: {more} sequences without tokens");
                }
            }
        }
    }
}

#[test]
fn the_worst_alarm_is_found_by_its_bits() {
    // As numbers: −0, a negative number, infinity, NaN of both signs, quiet and signalling.
    let patterns =
        [0x8000_0000, 0xbf80_0000, 0x7f80_0000, 0x7f80_0001, 0xff80_0001, u32::MAX, 0x7fc0_0000, 5];
    for device in devices() {
        for rows in [1usize, 2, 31, 33, 129, 300] {
            for at in 0..rows.min(40) {
                for pattern in patterns {
                    let mut alarm = vec![1u32; rows];
                    alarm[at * 7 % rows] = pattern;
                    let own = Rows {
                        loss: vec![0.0; rows],
                        sums: vec![0.0; sum::SUMS * rows],
                        maxima: vec![f32::NEG_INFINITY; 2 * rows],
                        tokens: vec![0; rows],
                        alarm,
                    };
                    assert_eq!(own.totals(&device).alarm, pattern, "{rows} rows on {}", device.describe());
                }
            }
        }
    }
}

//! The published digest: plain produces it, every SIMD level has plain's bits, and any flipped bit changes
//! it. The corpus covers every op, scalar function and output.

mod recorded;

use lockstep_core::num::{Hard, Soft};
use lockstep_core::op::OPS;
use lockstep_cpu::plain::Plain;
use lockstep_cpu::{Cpu, SimdLevel};
use lockstep_embedded::launches::Launches;
use lockstep_embedded::{Digest, Kind, Op, POISON, POISON64, PUBLISHED, Runner};
use recorded::{Event, Name, Recorded, launches, words};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A SIMD level of this machine, whose scalar functions use the machine's fused multiply-add and square root.
struct OnCpu(Cpu);

impl Runner for OnCpu {
    type Arith = Hard;

    fn run<K: Op>(&self, kernel: &K) {
        self.0.run(kernel);
    }
}

fn digest<R: Runner>(runner: &R) -> Digest {
    lockstep_embedded::digest(runner, launches())
}

#[test]
fn plain_has_the_published_digest() {
    let digest = digest(&Plain);
    assert_eq!(
        digest.to_string(),
        PUBLISHED.trim(),
        "changed bits: if that is meant, say so in CHANGELOG section Bits and run \
         `cargo run --release -p lockstep-conformance --example embedded -- --write`"
    );
    assert!(digest.is_published());
    let mut other = digest;
    other.bytes[31] ^= 1;
    assert!(!other.is_published());
    assert!(!Digest { values: digest.values + 1, ..digest }.is_published());
}

/// What a machine or a page may run from a file.
#[test]
fn only_the_published_launches_are_taken_from_a_file() {
    let write = "run `cargo run --release -p lockstep-conformance --example embedded -- --write`";
    assert!(Launches::published(words()).is_some(), "embedded/LAUNCHES is of other launches: {write}");
    let mut changed = words().to_vec();
    changed[0] += 1;
    assert!(Launches::published(&changed).is_none());
    assert!(Launches::published(&words()[1..]).is_none());
}

#[test]
fn every_level_has_the_bits_of_plain() {
    let plain = Recorded::of(&Plain);
    for level in SimdLevel::available() {
        let same = Recorded::of(&OnCpu(Cpu::new(level, 1).expect("an available level")));
        assert_eq!(plain.0.len(), same.0.len(), "{level}");
        for (at, (a, b)) in plain.0.iter().zip(&same.0).enumerate() {
            assert_eq!(a, b, "{level}: event {at}, {:?}", plain.launch(at));
        }
        assert_eq!(plain.digest(), digest(&OnCpu(Cpu::new(level, 1).expect("as above"))).to_string());
        println!("{level}: the bits of plain");
    }
}

/// Flips a different bit of the first and the last value of every op and scalar function.
#[test]
fn one_flipped_bit_changes_the_digest() {
    let mut recorded = Recorded::of(&Plain);
    let digest = recorded.digest();
    let ends =
        recorded.names().into_iter().flat_map(|name| [name.values[0], name.values[name.values.len() - 1]]);
    for (k, at) in ends.enumerate() {
        let whole = recorded.0[at];
        let Event::Value(mut bits, width) = whole else { unreachable!("chosen above") };
        bits[k % width] ^= 1 << (k % 8);
        recorded.0[at] = Event::Value(bits, width);
        assert_ne!(recorded.digest(), digest, "{:?}", recorded.launch(at));
        recorded.0[at] = whole;
    }
    assert_eq!(recorded.digest(), digest);
}

#[test]
fn every_op_runs_in_several_variants() {
    let names = Recorded::of(&Plain).names();
    for op in OPS {
        let found = names.iter().find(|name| name.name == op.name);
        let found = found.unwrap_or_else(|| panic!("`{}` is not among the launches", op.name));
        let (launches, values) = (found.launches, found.values.len());
        println!("{}: {launches} launches, {values} values", op.name);
        assert!(launches >= 6, "{}: {launches} launches", op.name);
    }
    for Name { name, .. } in names {
        let known = name.starts_with("num::") || OPS.iter().any(|op| op.name == name);
        assert!(known, "`{name}` is in no table");
    }
}

/// Plain, recording the variants that it ran.
#[derive(Default)]
struct Variants(RefCell<BTreeSet<(&'static str, usize)>>);

impl Runner for Variants {
    type Arith = Soft;

    fn run<K: Op>(&self, kernel: &K) {
        self.0.borrow_mut().insert((K::NAME, kernel.variant()));
        Plain.run(kernel);
    }
}

#[test]
fn every_variant_of_every_op_runs() {
    let variants = Variants::default();
    Recorded::of(&variants);
    for op in OPS {
        for (variant, entry) in op.entries.iter().enumerate() {
            assert!(variants.0.borrow().contains(&(op.name, variant)), "{}: variant {entry}", op.name);
        }
    }
}

/// Every function that `core::num` exports, that is, each lower-case name in its `pub use` lines.
#[test]
fn every_scalar_function_runs() {
    let source = include_str!("../../../core/src/num/mod.rs");
    let names = Recorded::of(&Plain).names();
    let mut functions = 0;
    for line in source.lines().filter_map(|line| line.strip_prefix("pub use ")) {
        let paths =
            line.split(['{', '}', ',', ';', ' ']).map(|path| path.rsplit("::").next().unwrap_or(path));
        for function in paths.filter(|name| name.starts_with(char::is_lowercase)) {
            // A constant that every other function returns.
            if function == "canonical_nan" {
                continue;
            }
            let known = names.iter().any(|known| known.name.strip_prefix("num::") == Some(function));
            assert!(known, "`num::{function}` is not in the embedded corpus: embedded/src/scalar.rs");
            functions += 1;
        }
    }
    assert!(functions >= 15, "the lines of core/src/num/mod.rs are read no more: {functions}");
}

#[test]
fn every_output_is_written() {
    let recorded = Recorded::of(&Plain);
    for (at, event) in recorded.0.iter().enumerate() {
        if let Event::Value(bits, width) = event {
            let poison = if *width == 8 { POISON64 } else { u64::from(POISON) };
            assert_ne!(u64::from_le_bytes(*bits), poison, "event {at}, {:?}", recorded.launch(at));
        }
    }
}

/// The contract requires it: another payload or sign would be specific to this machine.
#[test]
fn every_nan_is_the_canonical_one() {
    let recorded = Recorded::of(&Plain);
    let (mut of, mut canonical) = (Kind::U32, 0);
    for (at, event) in recorded.0.iter().enumerate() {
        match *event {
            Event::Begin(..) => {}
            Event::Array(kind, _) => of = kind,
            Event::Value(bits, _) => {
                let bits = u64::from_le_bytes(bits);
                let (is_nan, nan) = match of {
                    Kind::F32 => (f32::from_bits(bits as u32).is_nan(), 0x7fc0_0000),
                    Kind::F64 => (f64::from_bits(bits).is_nan(), 0x7ff8_0000_0000_0000),
                    Kind::U32 | Kind::U64 => (false, 0),
                };
                assert!(!is_nan || bits == nan, "{bits:#x}: event {at}, {:?}", recorded.launch(at));
                canonical += u32::from(is_nan);
            }
        }
    }
    assert!(canonical > 1000, "{canonical} NaN: are there hostile inputs left?");
}

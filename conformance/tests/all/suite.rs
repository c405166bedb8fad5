//! Every backend of this machine runs the suite, with one line each at the end of the file.

use lockstep::{Device, SimdLevel};
use lockstep_conformance::cases::{Case, corpus};
use lockstep_conformance::{levels, suite};
use lockstep_cpu::Cpu;
use std::sync::LazyLock;

/// A different seed from the digest's.
static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| corpus(20_261_121));

/// Opens the device, or returns `None` after saying why; panics if it is required.
fn open(level: SimdLevel, threads: usize) -> Option<Device> {
    match levels::open(level, threads) {
        Ok(device) => {
            // Assert the path under test rather than trust it.
            assert!(device.describe().contains(level.name()), "{}", device.describe());
            assert!(device.describe().contains(&format!("{threads} thread")), "{}", device.describe());
            Some(device)
        }
        Err(absent) => {
            println!("absent: {}", absent.reason);
            assert!(!absent.required, "{}", absent.reason);
            None
        }
    }
}

/// Fails a property that compared fewer values than this, since it would have tested nothing.
fn check(at_least: usize, checked: suite::Checked) {
    let compared = checked.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{compared} values compared");
    assert!(compared >= at_least, "only {compared} values were compared");
}

macro_rules! properties {
    ($level:ident, $threads:literal; $($name:ident: $least:literal, |$device:ident| $checked:expr;)*) => {$(
        #[test]
        fn $name() {
            let Some($device) = open(SimdLevel::$level, $threads) else { return };
            check($least, $checked);
        }
    )*};
}

macro_rules! claim {
    ($name:ident, $level:ident, $threads:literal) => {
        mod $name {
            use super::*;

            properties! { $level, $threads;
                same_bits: 2_000_000, |device| suite::same_bits(&device, &levels::reference(), &CASES);
                row_alone: 1_000_000, |device| suite::row_alone(&device, &CASES);
                repacked: 5_000_000, |device| suite::repacked(&device, &CASES);
                masked_garbage: 50_000, |device| suite::masked_garbage(&device, &CASES);
                optional_outputs: 1_000_000, |device| suite::optional_outputs(&device, &CASES);
                faults_are_local: 500_000, |device| suite::faults_are_local(&device, &CASES);
            }
        }
    };
    ($level:ident: $one:ident, $two:ident, $three:ident, $alone:ident) => {
        claim!($one, $level, 1);
        claim!($two, $level, 2);
        claim!($three, $level, 3);
        // Rows alone, on the calling thread.
        properties! { $level, 1;
            $alone: 1_000_000, |_device| {
                suite::rows_are_disjoint(&Cpu::new(SimdLevel::$level, 1).unwrap(), &CASES)
            };
        }
    };
}

claim!(Plain: plain_1, plain_2, plain_3, plain_rows_are_disjoint);
claim!(Avx2: avx2_1, avx2_2, avx2_3, avx2_rows_are_disjoint);
claim!(Avx512: avx512_1, avx512_2, avx512_3, avx512_rows_are_disjoint);
claim!(Neon: neon_1, neon_2, neon_3, neon_rows_are_disjoint);

#[test]
fn schedules_decide_as_published() {
    let found = lockstep_conformance::schedules::schedules();
    assert!(found.passed(), "{found}");
}

//! Kernels that `Launch::check_bounds` accepts stay inside their arrays: every array of every op is
//! shortened, and every index made wrong.
//!
//! The judge is the CPU's plain reference, which checks each access and panics.

use lockstep_conformance::backend::{AnyKernel, ArrayLayout, Backend};
use lockstep_conformance::cases::random::random;
use lockstep_conformance::cases::{Case, corpus};
use lockstep_conformance::launch;
use lockstep_core::op::OPS;
use lockstep_cpu::Cpu;
use lockstep_gpu::{Error, Gpu, Platform};
use lockstep_gpu_testing::{HostDriver, Settings};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs each kernel with faults in it, on a GPU that must refuse whatever would leave an array.
struct Faulty {
    gpu: Gpu<HostDriver>,
    refused: Cell<usize>,
    passed: Cell<usize>,
}

impl Faulty {
    /// Either an error that names an argument before anything is launched, or a kernel that stays in bounds.
    fn judge(&self, kernel: &dyn AnyKernel, fault: &str) {
        let own = kernel.parameters();
        let (op, rows) = (own.op(), own.rows());
        match kernel.check_bounds() {
            Err(error) => {
                assert!(!error.argument().is_empty(), "{op}: {error}");
                let refused = self.gpu.run(kernel);
                assert!(matches!(refused, Err(Error::Argument(_))), "{op}, {fault}: {refused:?}");
                self.refused.set(self.refused.get() + 1);
            }
            Ok(()) => {
                let ran = catch_unwind(AssertUnwindSafe(|| kernel.rows_on(&Cpu::PLAIN, 0..rows)));
                assert!(ran.is_ok(), "{op} passed and left an array: {fault}");
                self.passed.set(self.passed.get() + 1);
            }
        }
    }
}

impl Backend for Faulty {
    fn name(&self) -> String {
        "faulty arguments".to_owned()
    }

    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.check_bounds().map_err(|error| error.to_string())?;
        let (own, layout) = (kernel.parameters(), kernel.layout());
        let (pointers, words) = own.raw();
        for (i, array) in own.arrays().iter().enumerate().filter(|(_, array)| array.bytes > 0) {
            let ArrayLayout { word, size, integers } = layout[i];
            let length = words[word];
            for shorter in [length - 1, length / 2, 0] {
                let mut words = words;
                words[word] = shorter;
                // SAFETY: what `of` encoded, with an array that is shorter than its memory.
                unsafe {
                    kernel.decoded(pointers, words, &mut |faulty| {
                        self.judge(faulty, &format!("array {i} of {length} with {shorter}"));
                    });
                }
            }
            // Offsets are checked on construction, so anything that starts at 0 and never decreases passes.
            // SAFETY: a view of the case's memory.
            let bytes = unsafe { std::slice::from_raw_parts(array.address, array.bytes) };
            let number =
                |at: usize| bytes[at * size..][..size].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
            let rising = number(0) == 0 && (1..length as usize).all(|at| number(at - 1) <= number(at));
            if !integers || size > 4 || rising {
                continue;
            }
            for (at, value) in
                [(0, u64::MAX), (length as usize / 2, length), (length as usize - 1, u64::MAX - 1)]
            {
                let mut bytes = bytes.to_vec();
                bytes[at * size..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
                // Aligned for every element.
                let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
                // SAFETY: as long, and numbers are bytes.
                unsafe {
                    aligned.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
                };
                let mut pointers = pointers;
                pointers[i] = aligned.as_mut_ptr().cast();
                // SAFETY: what `of` wrote, with a copy of one array that lives until the end of the block.
                unsafe {
                    kernel.decoded(pointers, words, &mut |faulty| {
                        self.judge(faulty, &format!("array {i}: {value} at {at} of {length}"));
                    });
                }
            }
        }
        Ok(())
    }
}

/// Small cases of every op, from the corpus and random.
fn cases(op: &str, corpus: &[Case]) -> Vec<Case> {
    let fixed = corpus.iter().filter(|case| case.op() == op && case.data.elements() <= 600);
    fixed.take(12).cloned().chain((0..12).filter_map(|seed| random(op, seed))).collect()
}

#[test]
fn what_passes_the_check_stays_inside_of_its_arrays() {
    let gpu = Platform::new(HostDriver::new(Settings::warps(1))).open(0).unwrap();
    let corpus = corpus(3);
    let hook = std::panic::take_hook();
    // A panic here is a result.
    std::panic::set_hook(Box::new(|_| ()));
    let tried: Vec<_> = OPS
        .iter()
        .map(|op| {
            let faulty = Faulty { gpu: gpu.clone(), refused: Cell::new(0), passed: Cell::new(0) };
            let judged = catch_unwind(AssertUnwindSafe(|| {
                cases(op.name, &corpus).iter().try_for_each(|case| launch::run(&faulty, case).map(drop))
            }));
            (op.name, judged, faulty.refused.get(), faulty.passed.get())
        })
        .collect();
    std::panic::set_hook(hook);
    for (op, judged, refused, passed) in tried {
        match judged {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("{op}: a good case was refused: {error}"),
            Err(panic) => panic!("{op}: {}", panic.downcast_ref::<String>().map_or("a panic", |text| text)),
        }
        // The checks have their own cases, in `bits.rs`.
        if !op.starts_with("check_") {
            assert!(refused > 0, "{op}: nothing was refused, {passed} passed");
        }
    }
}

//! The launches of the digest for machines without an operating system: small random cases of every op,
//! recorded with their arrays.

use crate::backend::{AnyKernel, Backend};
use crate::cases::Case;
use crate::cases::hash::Source;
use crate::cases::masks::garbage;
use crate::cases::random::random_within;
use crate::{launch, levels};
use lockstep::Device;
use lockstep_core::op::OPS;
use lockstep_embedded::launches::{MOST, Recorded};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Cases of each op, unless its variants need more.
const CASES: usize = 10;
/// The most elements of a row: two cycles of 128 columns and a remainder.
const LONGEST: usize = 300;
/// The most words that a case may take.
const WORDS: usize = 1200;

/// Records every launch, and runs it.
struct Recording {
    plain: Device,
    seed: u64,
    /// Launches, and variants of ops by their names.
    launched: RefCell<(Recorded, BTreeSet<(&'static str, usize)>)>,
}

impl Backend for Recording {
    fn name(&self) -> String {
        "recording".to_owned()
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        let (launches, variants) = &mut *self.launched.borrow_mut();
        let parameters = kernel.parameters();
        kernel.record(launches, self.seed as u32);
        variants.insert((parameters.op(), parameters.variant()));
        Backend::run(&self.plain, kernel)
    }
}

/// Every launch.
///
/// Errors: a case that does not run, or an op that too few small cases launch in all its variants.
pub fn launches() -> Result<Recorded, String> {
    let mut all = Recorded::default();
    let mut seen = BTreeSet::new();
    for op in OPS {
        let mut cases = 0;
        let missing = |seen: &BTreeSet<_>| (0..op.entries.len()).any(|v| !seen.contains(&(op.name, v)));
        for seed in 0.. {
            if cases >= CASES && !missing(&seen) {
                break;
            }
            if seed == 1000 {
                return Err(format!("{}: no small case of some variant", op.name));
            }
            let case = random_within(op.name, seed, LONGEST).ok_or(format!("{}: no cases", op.name))?;
            let case = if seed % 2 == 1 { hostile(case, seed) } else { case };
            let recording = Recording { plain: levels::reference(), seed, launched: RefCell::default() };
            launch::run(&recording, &case)?;
            let (launched, variants) = recording.launched.into_inner();
            let fits = launched.words().len() <= WORDS.min(MOST);
            if !fits || (cases >= CASES && variants.is_subset(&seen)) {
                continue;
            }
            cases += 1;
            seen.extend(variants);
            all.append(launched);
        }
    }
    Ok(all)
}

/// The case with values that no trainer should pass in one live token of 16: NaN with a payload, infinities,
/// positive log-probabilities.
fn hostile(mut case: Case, seed: u64) -> Case {
    let source = Source::new(seed);
    for (slot, _) in case.params.fault_slots() {
        for i in (0..case.data.elements()).filter(|i| source.fork(slot as u64).below(*i, 16) == 0) {
            case.data.element[slot][i] = garbage(i);
        }
    }
    case
}

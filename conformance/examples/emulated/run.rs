//! Runs the ops' cases in rotation.

use crate::arguments::Arguments;
use crate::device::Device;
use crate::report::{OfOp, Report};
use lockstep::Device as Reference;
use lockstep_conformance::backend::Entries;
use lockstep_conformance::cases::Case;
use lockstep_conformance::cases::random::{random, random_within};
use lockstep_conformance::output::Output;
use lockstep_conformance::{digest, launch, levels};
use lockstep_core::op::{OPS, OpInfo};
use lockstep_emulated_abi::testing::Controls;
use lockstep_gpu::{Driver, Error, Gpu};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// An op that failed this often is skipped.
const FAILURES: u64 = 3;
/// Each entry point gets at least one case per this many cases of its op.
const AIMED: u64 = 10;
/// Number of random cases of an op searched for those that hit an entry point.
const SEARCHED: u64 = 20_000;
/// Maximum number of draws in search of a small case.
const DRAWS: u64 = 16;
/// Every this many turns, a case keeps whatever size was drawn.
const LARGE: u64 = 8;
/// Longest row, and number of smaller cases tried after a failure.
const LONGEST: usize = 3000;
const SHRINKS: u64 = 64;

/// A run on a device.
pub(crate) struct Run<'a, D: Driver> {
    open: fn(usize) -> Result<Gpu<D>, Error>,
    gpu: Option<Gpu<D>>,
    controls: Option<Controls>,
    reference: Reference,
    runner: TestRunner,
    arguments: &'a Arguments,
    begun: Instant,
    ops: BTreeMap<&'static str, OfOp>,
    hits: BTreeMap<&'static str, u64>,
    failures: Vec<String>,
    counts: BTreeMap<String, [u64; 8]>,
    device: String,
}

impl<'a, D: Driver> Run<'a, D> {
    pub(crate) fn new(
        open: fn(usize) -> Result<Gpu<D>, Error>,
        library: &str,
        arguments: &'a Arguments,
    ) -> Result<Self, String> {
        let gpu = open(0).map_err(|error| error.to_string())?;
        let info = gpu.info();
        Ok(Run {
            device: format!("{}: {}, {}, {} units", arguments.backend, info.name, info.arch, info.units),
            open,
            gpu: Some(gpu),
            controls: Controls::try_open(library).ok(),
            reference: levels::reference(),
            runner: TestRunner::new_with_rng(
                Config { failure_persistence: None, ..Config::default() },
                rng(arguments.seed),
            ),
            arguments,
            begun: Instant::now(),
            ops: BTreeMap::new(),
            hits: BTreeMap::new(),
            failures: Vec::new(),
            counts: BTreeMap::new(),
        })
    }

    pub(crate) fn describe(&self) -> &str {
        &self.device
    }

    fn late(&self) -> bool {
        self.arguments.time.is_some_and(|time| self.begun.elapsed() >= time)
    }

    /// Runs random cases of the ops in rotation, so that a run that ends early has equally many of each.
    pub(crate) fn random(&mut self) {
        for turn in 0..self.arguments.cases {
            for op in &self.arguments.ops {
                if self.late() {
                    return;
                }
                self.drawn(op, turn);
            }
        }
    }

    /// The case of a turn, drawn by proptest: its number and longest row. A failing case is shrunk, and the
    /// smallest one that still fails is reported.
    fn drawn(&mut self, op: &OpInfo, turn: u64) {
        let Some(mut tree) = self.draw(op, turn) else {
            return self.failures.push(format!("{} has no random cases", op.name));
        };
        let case = |(seed, most): (u64, usize)| {
            let case = random_within(op.name, seed, most)?;
            Some(Case { label: format!("{}, rows of at most {most}", case.label), ..case })
        };
        let Some(first) = case(tree.current()) else { return };
        let before = self.failures.len();
        // Each path with both.
        let turn = (turn, (turn / 2 + turn / 16) % 2 == 1);
        self.case(op, &first, turn);
        let mut more = self.failures.len() > before && tree.simplify();
        for _ in 0..SHRINKS {
            let Some(smaller) = case(tree.current()).filter(|_| more) else { return };
            let shrunk = self.failures.len();
            self.attempt(op, &smaller, turn);
            more = if self.failures.len() > shrunk {
                // The smaller case is more informative.
                self.failures.drain(before..shrunk);
                tree.simplify()
            } else {
                tree.complicate()
            };
        }
    }

    /// Draws a case. Most are small, to keep turns short: the first of several draws below the limit,
    /// otherwise the smallest.
    fn draw(&mut self, op: &OpInfo, turn: u64) -> Option<impl ValueTree<Value = (u64, usize)> + use<D>> {
        let large = turn.is_multiple_of(LARGE);
        let mut smallest = None;
        for _ in 0..if large { 1 } else { DRAWS } {
            let tree = (0..u64::MAX, 0..=LONGEST).new_tree(&mut self.runner).ok()?;
            let (seed, most) = tree.current();
            let elements = random_within(op.name, seed, most)?.data.elements();
            if smallest.as_ref().is_none_or(|(least, _)| elements < *least) {
                smallest = Some((elements, tree));
            }
            if elements as u64 <= self.arguments.elements {
                break;
            }
        }
        smallest.map(|(_, tree)| tree)
    }

    /// Runs more cases, random or from the corpus, for entry points that few cases have hit.
    pub(crate) fn aim(&mut self) {
        let enough = (self.arguments.cases / AIMED).max(1);
        for op in &self.arguments.ops {
            let Some(all) = self.gpu.as_ref().map(|gpu| gpu.entry_points(op)) else { continue };
            // Those of a single warp, which a case needs for the others as well.
            for (of_warp, entry) in op.entries.iter().chain(op.entries).zip(all) {
                let hits = |case: &Case| {
                    let taken = Entries::default();
                    launch::run(&taken, case).is_ok() && taken.0.borrow().contains(of_warp)
                };
                let small = |case: &Case| case.data.elements() as u64 <= self.arguments.elements;
                let first = self.arguments.seed.wrapping_add(self.arguments.cases);
                let draw =
                    |i| random(op.name, first.wrapping_add(i)).filter(|case| small(case) && hits(case));
                let mut drawn = (0..SEARCHED).filter_map(draw);
                let mut missing = enough.saturating_sub(self.hits.get(entry).copied().unwrap_or(0));
                let mut cases = Vec::new();
                while missing > 0
                    && let Some(case) = drawn.next()
                {
                    cases.push(case);
                    missing -= 1;
                }
                if cases.is_empty() && !self.hits.contains_key(entry) {
                    let of_op = |case: &Case| case.op() == op.name && hits(case);
                    cases.extend(digest::cases().into_iter().find(of_op));
                }
                for (turn, case) in cases.iter().enumerate() {
                    // At least one, however late it is.
                    if !self.late() || !self.hits.contains_key(entry) {
                        self.case(op, case, (turn as u64, entry != *of_warp));
                    }
                }
            }
        }
    }

    /// `turn`: its number, and whether several warps share a row.
    fn case(&mut self, op: &OpInfo, case: &Case, turn: (u64, bool)) {
        if self.ops.get(op.name).is_some_and(|of| of.failures >= FAILURES) {
            return;
        }
        self.attempt(op, case, turn);
    }

    fn attempt(&mut self, op: &OpInfo, case: &Case, (turn, block): (u64, bool)) {
        let Some(gpu) = self.gpu.take().or_else(|| (self.open)(0).ok()) else {
            self.failures.push(format!("{}: the device cannot be opened any more", op.name));
            return;
        };
        let expected = match launch::run(&self.reference, case) {
            Ok(expected) => expected,
            Err(error) => panic!("the reference cannot fail: {error}"),
        };
        let device = Device::at_turn(&gpu, turn, block, self.controls.is_some());
        let begun = Instant::now();
        let got = launch::run(&device, case);
        let of = self.ops.entry(op.name).or_default();
        of.seconds += begun.elapsed().as_secs_f64();
        of.cases += 1;
        of.elements += case.data.elements() as u64;
        let wrong = match &got {
            Ok(got) => {
                let (values, bits, first) = differences(&expected, got);
                of.values += values;
                of.bits += bits;
                first
            }
            Err(error) => Some(error.clone()),
        };
        if wrong.is_none() {
            for entry in device.entries.borrow().iter() {
                *self.hits.entry(entry).or_default() += 1;
            }
        }
        if let Some(wrong) = wrong {
            of.failures += 1;
            let fault = self.controls.as_ref().map(Controls::fault).filter(|fault| !fault.is_empty());
            let fault = fault.map_or(String::new(), |fault| format!("\n          {fault}"));
            let (path, geometry) = (device.path, device.gpu.geometry());
            self.failures
                .push(format!("{} [{}] ({path:?}, {geometry:?}): {wrong}{fault}", op.name, case.label));
        }
        let lost = gpu.lost().is_some();
        drop(device);
        if lost {
            drop(gpu);
            self.count();
            // On a real driver only a new process would help.
            if let Some(controls) = &self.controls {
                controls.reset(&std::env::var("LOCKSTEP_EMULATOR").unwrap_or_default());
            }
        } else {
            self.gpu = Some(gpu);
        }
    }

    /// Adds what the library counted since the last reset.
    fn count(&mut self) {
        for ran in self.controls.iter().flat_map(Controls::counts) {
            let all = self.counts.entry(ran.entry).or_default();
            for (all, count) in all.iter_mut().zip(ran.counts) {
                *all += count;
            }
        }
    }

    pub(crate) fn finish(mut self) -> Report {
        let of = |op: &&'static OpInfo| self.gpu.as_ref().map(|gpu| gpu.entry_points(op));
        let wanted: BTreeSet<&'static str> = self.arguments.ops.iter().filter_map(of).flatten().collect();
        self.gpu = None;
        self.count();
        let complaints = self.controls.as_ref().map(Controls::complaints).unwrap_or_default();
        self.failures.extend(complaints.lines().map(str::to_owned));
        if let Some(controls) = &self.controls {
            for (held, what) in [(controls.live(), "live"), (controls.leaked(), "left in a context")] {
                if held != Default::default() {
                    self.failures.push(format!("{what} at the end: {held:?}"));
                }
            }
        }
        let missed = wanted.iter().filter(|entry| !self.hits.contains_key(**entry)).copied().collect();
        let short = self.ops.iter().filter(|(_, of)| of.cases < self.arguments.cases && of.failures == 0);
        Report {
            short: short.map(|(op, of)| (*op, of.cases)).collect(),
            wanted: self.arguments.cases,
            all: self.arguments.ops.len() == OPS.len(),
            entries: wanted.len(),
            missed,
            hits: self.hits,
            ops: self.ops,
            failures: self.failures,
            counts: self.counts,
            seconds: self.begun.elapsed().as_secs_f64(),
        }
    }
}

/// proptest's random numbers: the same for the same `--seed`, on both vendors.
fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Number of values compared, number of differing bits, and the first value that differs.
fn differences(expected: &[Output], got: &[Output]) -> (u64, u64, Option<String>) {
    let (mut values, mut bits, mut first) = (0, 0, None);
    for (a, b) in expected.iter().zip(got) {
        for i in 0..a.len() {
            values += 1;
            let differing = (a.bits(i) ^ b.bits(i)).count_ones();
            bits += u64::from(differing);
            if differing > 0 && first.is_none() {
                first = Some(format!("`{}`[{i}]: {:#x}, plain has {:#x}", a.name, b.bits(i), a.bits(i)));
            }
        }
    }
    (values, bits, first)
}

//! Both paths to a device, on a host driver: for every path, geometry and team, the bits equal the
//! reference's.

use lockstep_conformance::backend::{AnyKernel, Backend};
use lockstep_conformance::cases::corpus::tokens;
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::cases::masks::Mask as Masked;
use lockstep_conformance::cases::random::random;
use lockstep_conformance::cases::shapes::Shape;
use lockstep_conformance::cases::values::Range;
use lockstep_conformance::cases::{Case, corpus};
use lockstep_conformance::ops::AnyOp;
use lockstep_conformance::ops::policy_loss::Policy;
use lockstep_conformance::{launch, levels, suite};
use lockstep_core::check::{CheckOffsets, CheckValues, Domain, PASSED, rows};
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::logits::statistics::LogitsResults;
use lockstep_core::logits::vocab_parallel::unpacked;
use lockstep_core::logits::{LogitRows, LogitsStatistics, VocabParallelTop};
use lockstep_core::op::{OPS, OpInfo};
use lockstep_core::ragged::{In, Mask, Out, flag};
use lockstep_core::ratio::Guard;
use lockstep_cpu::Cpu;
use lockstep_gpu::{Buffer, Geometry, Gpu, Platform, Stopwatch, Stream};
use lockstep_gpu_testing::{HostDriver, Live, Settings};
use std::sync::Arc;

const FREE: Geometry = Geometry { teams_per_block: None, max_blocks: None, warps_per_row: None };

/// Rows that several warps share.
const fn shared(warps: u32, blocks: u32) -> Geometry {
    Geometry { teams_per_block: None, max_blocks: Some(blocks), warps_per_row: Some(warps) }
}

const GEOMETRIES: [Geometry; 8] = {
    const fn of(teams: u32, blocks: u32) -> Geometry {
        Geometry { teams_per_block: Some(teams), max_blocks: Some(blocks), warps_per_row: Some(1) }
    }
    [FREE, of(1, 1), of(1, 7), of(3, 2), of(32, 1), of(4, 65_535), shared(16, 2), shared(2, 65_535)]
};

/// A small corpus with another seed than the digest's, and every variant of the policy losses.
fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = corpus(3).into_iter().filter(|case| case.data.elements() <= 4096).collect();
    for op in OPS.iter().filter(|op| op.file == "policy_loss/mod.rs") {
        let of_op = cases.iter().find(|case| case.op() == op.name && case.data.elements() > 100);
        let of_op = of_op.unwrap_or_else(|| panic!("no small case of {}", op.name)).clone();
        let AnyOp::Policy(policy) = of_op.params else { unreachable!() };
        // Coefficients alone, with the common guard and with another; then every other output that can be
        // requested.
        for bits in 0..9 {
            let [kl, loss, metrics] = [1, 2, 4].map(|bit| bits & bit != 0 && bits < 8);
            let kl = kl.then(|| (Kl::guarded(KlFormula::K3), 0.01));
            let guard = if bits < 8 { Guard::clamp(Guard::LOG_RATIO_CLAMP) } else { Guard::NONE };
            let (per_token, weights, token_loss) = (false, false, loss);
            let policy = Policy { kl, guard, per_token, weights, loss, token_loss, metrics, ..policy };
            cases.push(Case { params: AnyOp::Policy(policy), ..of_op.clone() });
        }
    }
    cases
}

/// For each entry point, the cheapest case that launches it: a row costs hundreds of barriers of all lanes.
fn one_for_each_entry() -> Vec<Case> {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let gpu = platform.open(0).unwrap();
    let mut cases = cases();
    cases.retain(|case| case.data.elements() > 40);
    cases.sort_by_key(|case| (case.data.rows(), case.data.elements()));
    let launched = || OPS.iter().flat_map(|op| op.entries).filter(|e| platform.driver().launched(e)).count();
    cases.retain(|case| {
        let before = launched();
        launch::run(&Staged(gpu.clone()), case).unwrap();
        launched() > before
    });
    cases
}

/// Two small random cases of each op, with a row longer than a team where the op has one, so that carries
/// cross from one load to the next.
fn random_of_each_op() -> Vec<Case> {
    let longest = |case: &Case| (0..case.data.rows()).map(|row| case.data.span(row).len()).max().unwrap_or(0);
    let of = |op: &str| {
        let mut cases: Vec<Case> = (0..100).filter_map(|seed| random(op, seed)).collect();
        let enough = cases.iter().map(longest).max().unwrap_or(0).min(33);
        cases.retain(|case| longest(case) >= enough);
        cases.sort_by_key(|case| case.data.rows() * case.data.elements());
        cases.truncate(2);
        assert_eq!(cases.len(), 2, "{op}");
        cases
    };
    OPS.iter().flat_map(|op| of(op.name)).collect()
}

/// The staged path.
struct Staged(Gpu<HostDriver>);

impl Backend for Staged {
    fn name(&self) -> String {
        format!("staged, {:?}", self.0)
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        self.0.run(kernel).map_err(|error| error.to_string())
    }
}

/// The zero-copy path: arrays in device buffers, the caller's stream.
struct ZeroCopy {
    gpu: Gpu<HostDriver>,
    stream: Stream<HostDriver>,
}

impl Backend for ZeroCopy {
    fn name(&self) -> String {
        format!("zero copy, {:?}", self.gpu)
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        let host = kernel.parameters();
        let mut parameters = host.clone();
        let mut buffers: Vec<Option<Buffer<u8, HostDriver>>> = Vec::new();
        for array in parameters.arrays_mut() {
            // SAFETY: a view of the case's memory.
            let bytes = || unsafe { std::slice::from_raw_parts(array.address, array.bytes) };
            let buffer = (array.bytes > 0).then(|| self.gpu.upload(&self.stream, bytes()).unwrap());
            array.address = buffer.as_ref().map_or(array.address, Buffer::as_ptr);
            buffers.push(buffer);
        }
        // SAFETY: of the lengths that the views state, and ours until the end.
        unsafe { self.gpu.launch_encoded(&self.stream, parameters) }.unwrap();
        for (array, buffer) in host.arrays().iter().zip(&buffers) {
            if let (true, Some(buffer)) = (array.written, buffer) {
                // SAFETY: an output of the case.
                let out = unsafe { std::slice::from_raw_parts_mut(array.address, array.bytes) };
                buffer.read(&self.stream, out).unwrap();
            }
        }
        Ok(())
    }
}

fn check(checked: suite::Checked) {
    let compared = checked.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(compared > 20_000, "only {compared} values were compared");
}

/// Runs both paths over the corpus, and checks that everything is released at the end.
fn both_paths(settings: Settings, cases: &[Case]) {
    let blocks = settings.shape.max_teams_per_block > 1;
    let platform = Platform::new(HostDriver::new(settings));
    for geometry in GEOMETRIES {
        let gpu = platform.open(0).unwrap().with_geometry(geometry).with_pointer_checks(true);
        check(suite::same_bits(&Staged(gpu.clone()), &levels::reference(), cases));
        let stream = gpu.stream().unwrap();
        check(suite::same_bits(&ZeroCopy { gpu, stream }, &levels::reference(), cases));
        assert_eq!(HostDriver::entered(), 0, "contexts left entered");
    }
    assert_eq!(platform.driver().live(), Live::default());
    every_entry_was_launched(platform.driver(), blocks);
}

/// The corpus launches every entry point except those listed here; with `blocks`, those for blocks as well.
fn every_entry_was_launched(driver: &HostDriver, blocks: bool) {
    // The checks have their own cases, below.
    let elsewhere = ["check_offsets", "check_values"];
    let all = OPS.iter().flat_map(|op| op.entries.iter().chain(op.blocks.iter().filter(|_| blocks)));
    for entry in all.filter(|entry| !elsewhere.contains(entry)) {
        assert!(driver.launched(entry), "`{entry}` has no case here");
    }
}

#[test]
fn warps() {
    both_paths(Settings::warps(1), &cases());
}

#[test]
fn waves() {
    both_paths(Settings::waves(1), &cases());
}

/// Runs the GPU's team itself, with a host thread for each lane: a small case of every entry point, and
/// random ones of every op.
fn lanes(settings: Settings, geometries: &[Geometry]) {
    let platform = Platform::new(HostDriver::new(settings.on_lanes()));
    let mut cases = [one_for_each_entry(), random_of_each_op()].concat();
    for (i, &geometry) in geometries.iter().enumerate() {
        if i > 0 {
            cases.retain(|case| OpInfo::named(case.op()).is_some_and(|op| !op.blocks.is_empty()));
        }
        let gpu = platform.open(0).unwrap().with_geometry(geometry);
        let compared = suite::same_bits(&Staged(gpu), &levels::reference(), &cases);
        assert!(compared.unwrap_or_else(|violation| panic!("{violation}")) > 1000);
    }
    every_entry_was_launched(platform.driver(), geometries.len() > 1);
}

#[test]
fn warps_of_threads() {
    lanes(Settings::warps(1), &[GEOMETRIES[3], shared(3, 2)]);
}

#[test]
fn waves_of_threads() {
    lanes(Settings::waves(1), &GEOMETRIES[3..4]);
}

/// The case with other rows.
fn rows_of(case: &Case, lengths: &[u32], mask: Masked) -> Case {
    let shape = Shape { name: "lengths", catches: "", lengths: lengths.to_vec() };
    let mut data = tokens(&shape, mask, Range::Realistic, Source::new(case.data.elements() as u64));
    while data.element.len() < case.data.element.len() {
        data.element.push(data.element[0].iter().rev().copied().collect());
    }
    let of_rows = (0..lengths.len()).map(|row| [0.5, 0.0, -1.5][row % 3]).collect();
    data.row.resize(data.row.len().max(case.data.row.len()), of_rows);
    Case { label: format!("rows of {lengths:?}, {mask:?}, {}", case.label), data, ..case.clone() }
}

/// Rows that begin and end everywhere in a chunk, with a hundred and more tokens, through each entry point of
/// ops that a step calls; one case has a row of 131,072, and an op of one array, which is read several chunks
/// at once, has longer rows.
fn rows_of_all_lengths(settings: Settings, geometry: Geometry) {
    let platform = Platform::new(HostDriver::new(settings.on_lanes()));
    let gpu = platform.open(0).unwrap().with_geometry(geometry);
    let ops = ["policy_loss_ppo", "policy_loss_sapo", "token_ratio", "kl", "aggregate"];
    let cases: Vec<Case> = one_for_each_entry().into_iter().filter(|case| ops.contains(&case.op())).collect();
    let mut all = vec![rows_of(&cases[0], &[3, 131_072, 4096, 1], Masked::Random)];
    for (i, case) in cases.iter().enumerate() {
        let mask = if i % 4 == 0 { Masked::Absent } else { Masked::Random };
        let longer: &[u32] = if case.op() == "aggregate" { &[255, 256, 511, 512, 513, 1100] } else { &[] };
        all.push(rows_of(case, &[&[1, 31, 32, 33, 127, 128, 129, 0, 257], longer].concat(), mask));
    }
    // What carries a value takes four blocks at once, a recurrence with one rate only where all are live.
    let ops = ["gae", "vtrace", "row_scan", "discounted_return", "step_return", "log_ratio_scan"];
    for case in one_for_each_entry().iter().filter(|case| ops.contains(&case.op())) {
        let lengths = [300, 127, 128, 0, 129];
        all.extend([Masked::Absent, Masked::Random].map(|mask| rows_of(case, &lengths, mask)));
        if case.op() == "gae" {
            let mut case = rows_of(case, &[1100, 896], Masked::Full);
            let mask = case.data.mask.iter_mut().flatten().enumerate();
            mask.for_each(|(i, byte)| *byte = u8::from(!(250..260).contains(&(i % 900))));
            case.label = format!("a gap every 900 tokens, {}", case.label);
            all.push(case);
        }
    }
    let compared = suite::same_bits(&Staged(gpu), &levels::reference(), &all);
    assert!(compared.unwrap_or_else(|violation| panic!("{violation}")) > 140_000);
}

#[test]
fn rows_of_all_lengths_in_warps() {
    rows_of_all_lengths(Settings::warps(1), GEOMETRIES[3]);
}

#[test]
fn rows_of_all_lengths_in_waves() {
    rows_of_all_lengths(Settings::waves(1), GEOMETRIES[3]);
}

#[test]
fn rows_of_all_lengths_that_warps_share() {
    rows_of_all_lengths(Settings::warps(1), shared(3, 2));
}

/// The largest logit and its first place, in rows of several trips with an end: wherever it is, with ties of
/// both zeros, and in rows that cannot be used.
#[test]
fn the_first_largest_logit_of_long_rows() {
    let vocab = 1300;
    let places =
        [&[0][..], &[31], &[511], &[512], &[700], &[1023], &[1024], &[1299], &[1100, 40], &[900, 901]];
    let mut logits: Vec<f32> = Vec::new();
    let mut row = |base: f32, entries: &[(usize, f32)]| {
        let start = logits.len();
        logits.extend((0..vocab).map(|v| base - (v % 97) as f32));
        for &(v, value) in entries {
            logits[start + v] = value;
        }
    };
    for places in places {
        row(-1.0, &places.iter().map(|&v| (v, 3.5)).collect::<Vec<_>>());
    }
    for (first, second) in [(-0.0, 0.0), (0.0, -0.0)] {
        row(-1.0, &[(70, first), (600, second), (1200, 0.0)]);
    }
    for bad in [f32::NAN, f32::INFINITY] {
        [5, 800, 1299].iter().for_each(|&v| row(-1.0, &[(v, bad)]));
    }
    row(f32::NEG_INFINITY, &[]);
    row(f32::NEG_INFINITY, &[(1290, -2.0)]);
    let rows = logits.len() / vocab;
    for settings in [Settings::warps(1), Settings::waves(1)] {
        let platform = Platform::new(HostDriver::new(settings.on_lanes()));
        let gpu = platform.open(0).unwrap();
        let mut tops = [vec![7; rows], vec![7; rows]];
        let [a, b] = &mut tops;
        let of = |top| VocabParallelTop {
            rows: LogitRows { logits: In::new(&logits[..]), rows, vocab, live: Mask::all() },
            vocab_start: 0,
            top,
        };
        gpu.run(&of(Out::new(a))).unwrap();
        Cpu::PLAIN.run(&of(Out::new(b)));
        assert_eq!(tops[0], tops[1]);
        let found: Vec<u32> = tops[0].iter().map(|&top| unpacked(top).1).collect();
        assert_eq!(found[..12], FOUND);
    }
    // Where warps share a row, statistics alone search it.
    let labels = vec![3; rows];
    let statistics = |run: &dyn Fn(&LogitsStatistics<'_>)| {
        let mut numbers = [vec![7.0; rows], vec![7.0; rows]];
        let (mut top, mut state, mut alarm) = (vec![7; rows], vec![7.0f64; 3 * rows], vec![7; rows]);
        let [logp, lse] = &mut numbers;
        run(&LogitsStatistics {
            rows: LogitRows { logits: In::new(&logits[..]), rows, vocab, live: Mask::all() },
            labels: In::new(&labels),
            temperature: 1.0,
            results: LogitsResults {
                logp: Out::new(logp),
                lse: Out::new(lse),
                top: Out::new(&mut top),
                moments: None,
                state: Out::new(&mut state),
                row_alarm: Out::new(&mut alarm),
            },
        });
        let bad: Vec<bool> = alarm.iter().map(|&alarm| alarm > flag::LIMIT).collect();
        let bits = numbers.map(|of| of.iter().map(|x: &f32| x.to_bits()).collect::<Vec<_>>());
        (top, bits, state.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), bad)
    };
    let want = statistics(&|kernel| Cpu::PLAIN.run(kernel));
    assert_eq!(want.0[..12], FOUND);
    let platform = Platform::new(HostDriver::new(Settings::warps(1).on_lanes()));
    for warps in [2, 3, 16] {
        let gpu = platform.open(0).unwrap().with_geometry(shared(warps, 2));
        assert_eq!(statistics(&|kernel| gpu.run(kernel).unwrap()), want, "{warps} warps");
    }
    assert!(platform.driver().launched("logits_statistics_block"));
}

const FOUND: [u32; 12] = [0, 31, 511, 512, 700, 1023, 1024, 1299, 40, 900, 70, 70];

/// The checks, whose cases are not in the corpus: the same report as the reference, for every position of a
/// fault.
#[test]
fn checks_report_what_the_reference_reports() {
    let n = 9000;
    for settings in [Settings::warps(1), Settings::waves(1)] {
        let platform = Platform::new(HostDriver::new(settings));
        let gpu = platform.open(0).unwrap();
        for fault in [None, Some(0), Some(1), Some(4095), Some(4096), Some(n - 1)] {
            let mut offsets: Vec<u32> = (0..n as u32).collect();
            let mut values = vec![-0.5f32; n];
            if let Some(i) = fault {
                offsets[i] = if i == 0 { 7 } else { offsets[i - 1] - u32::from(i > 1) };
                values[i] = f32::NAN;
            }
            let mut reports = [vec![7; rows(n)], vec![7; rows(n)], vec![7; rows(n)], vec![7; rows(n)]];
            let [a, b, c, d] = &mut reports;
            let offsets =
                |out| CheckOffsets { offsets: In::new(&offsets), elements: n - 1, first_fault: out };
            let values = |out| CheckValues {
                values: In::new(&values),
                mask: Mask::all(),
                domain: Domain::LogProbability,
                first_fault: out,
            };
            gpu.run(&offsets(Out::new(a))).unwrap();
            Cpu::PLAIN.run(&offsets(Out::new(b)));
            gpu.run(&values(Out::new(c))).unwrap();
            Cpu::PLAIN.run(&values(Out::new(d)));
            assert_eq!(reports[0], reports[1], "{fault:?}");
            assert_eq!(reports[2], reports[3], "{fault:?}");
            assert_eq!(reports[2].iter().min().copied(), Some(fault.map_or(PASSED, |i| i as u32)));
        }
        assert!(platform.driver().launched("check_offsets") && platform.driver().launched("check_values"));
    }
}

#[test]
fn several_threads_and_streams_share_a_device() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let gpu = platform.open(0).unwrap();
    let cases = cases();
    std::thread::scope(|scope| {
        for quarter in cases.chunks(cases.len().div_ceil(4)) {
            let gpu = gpu.clone();
            scope.spawn(move || {
                let stream = gpu.stream().unwrap();
                suite::same_bits(&Staged(gpu.clone()), &levels::reference(), quarter).unwrap();
                suite::same_bits(&ZeroCopy { gpu, stream }, &levels::reference(), quarter).unwrap();
            });
        }
    });
    drop(gpu);
    assert_eq!(platform.driver().live(), Live::default());
}

#[test]
fn a_second_run_allocates_nothing() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let gpu = platform.open(0).unwrap();
    let cases = cases();
    let calls =
        || ["alloc", "alloc_pinned", "create_stream", "load"].map(|call| platform.driver().calls(call));
    check(suite::same_bits(&Staged(gpu.clone()), &levels::reference(), &cases));
    let first = calls();
    let [.., modules] = first;
    assert_eq!(first, [1, 1, 1, modules], "one arena serves all cases");
    check(suite::same_bits(&Staged(gpu.clone()), &levels::reference(), &cases));
    assert_eq!(calls(), first);
    gpu.trim().unwrap();
    assert_eq!(platform.driver().live(), Live { contexts: 1, modules, ..Live::default() });
}

#[test]
fn a_stopwatch_measures_every_batch_and_changes_no_bit() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let gpu = platform.open(0).unwrap();
    let stopwatch = Arc::new(Stopwatch::new(3, 2));
    let timed = Staged(gpu.with_stopwatch(&stopwatch));
    let cases: Vec<Case> = ["gae", "combine"].iter().filter_map(|op| random(op, 1)).collect();
    assert!(suite::same_bits(&Staged(gpu), &levels::reference(), &cases).unwrap() > 1000);
    assert!(stopwatch.take().is_empty(), "another clone has no stopwatch");
    let before = platform.driver().calls("launch");
    assert!(suite::same_bits(&timed, &levels::reference(), &cases).unwrap() > 1000);
    assert_eq!(platform.driver().calls("launch") - before, 2 * (1 + 3 * 2), "a run, then its repeats");
    let measured = stopwatch.take();
    assert_eq!(measured.keys().copied().collect::<Vec<_>>(), ["combine", "gae"]);
    assert!(measured.values().all(|batches| batches.len() == 3));
    assert!(stopwatch.take().is_empty());
}

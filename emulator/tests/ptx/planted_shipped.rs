//! Faults planted into a shipped entry point, one at each possible place: those that execute are caught, by a
//! fault or by bits.

use super::device::{Launch, PTX};
use lockstep_core::aggregate::{PerRow, Weight, WeightFrom};
use lockstep_core::gate::PpoClip;
use lockstep_core::policy_loss::{LossOut, PolicyLoss};
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::ratio::{Guard, RatioGranularity};
use lockstep_emulator::fault::{Fault, FaultKind};
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;
use std::cell::Cell;

const ENTRY: &str = "policy_loss_ppo_loss";

/// The entry point only: header and text from its first line to its closing brace.
fn shipped() -> Vec<String> {
    let start = PTX.find(&format!(".visible .entry {ENTRY}(")).expect("the entry point");
    let end = start + PTX[start..].find("\n}\n").expect("its end") + 3;
    let header = ".version 7.0\n.target sm_80\n.address_size 64\n";
    format!("{header}{}", &PTX[start..end]).lines().map(str::to_owned).collect()
}

const OFFSETS: [u32; 4] = [0, 40, 41, 600];
const TOKENS: usize = 600;

struct Ran {
    result: Result<(), Box<Fault>>,
    coef: Vec<u32>,
    token_loss: Vec<u32>,
    row_loss: Vec<u64>,
    row_tokens: Vec<u32>,
    memory: Memory,
}

impl Ran {
    fn same(&self, other: &Ran) -> bool {
        (&self.result, &self.coef, &self.token_loss, &self.row_loss, &self.row_tokens)
            == (&other.result, &other.coef, &other.token_loss, &other.row_loss, &other.row_tokens)
    }
}

fn run(lines: &[String]) -> Ran {
    let module =
        Module::parse(&lines.join("\n")).unwrap_or_else(|error| panic!("{error}")).with_limit(100_000);
    let wave = |i: usize, n: usize| (i * 37 % n) as f32 / (7 * n) as f32;
    let logp: Vec<f32> = (0..TOKENS).map(|i| -0.1 - wave(i, 607)).collect();
    let logp_old: Vec<f32> = (0..TOKENS).map(|i| -0.1 - wave(i, 593)).collect();
    let advantage: Vec<f32> = (0..TOKENS).map(|i| wave(i, 19) * 21.7 - 1.3).collect();
    let mask: Vec<u8> = (0..TOKENS).map(|i| u8::from(i % 5 != 3)).collect();
    let (mut coef, mut token_loss) = (vec![0.0_f32; TOKENS], vec![0.0_f32; TOKENS]);
    let (mut row_loss, mut row_tokens, mut row_alarm) = (vec![0.0_f64; 3], vec![0; 3], vec![0; 3]);
    let op = PolicyLoss {
        cu_seqlens: Offsets::new("cu_seqlens", &OFFSETS, TOKENS, "tokens").expect("offsets"),
        loss_mask: Mask::new(Some(&mask)),
        logp: In::new(&logp),
        logp_old: In::new(&logp_old),
        logp_second: None,
        advantage: In::new(&advantage),
        advantage_per_token: true,
        weights: None,
        level: RatioGranularity::Token,
        guard: Guard::NONE,
        gate: PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 3.0 },
        kl: None,
        weight: Weight { per_row: PerRow::One, denominator: 7.0, scale: 1.0 },
        weight_from: WeightFrom::ABSENT,
        coef: Out::new(&mut coef),
        loss: Some(LossOut {
            token_loss: Some(Out::new(&mut token_loss)),
            row_loss: Out::new(&mut row_loss),
        }),
        row_tokens: Out::new(&mut row_tokens),
        row_alarm: Out::new(&mut row_alarm),
        metrics: None,
    };
    let mut memory = Memory::new(1 << 20);
    memory.trace_stores();
    let launch = Launch::new(&op, 1, 2, &mut memory);
    assert_eq!(launch.entry, ENTRY);
    let result = launch.run(&module, &mut memory).map(|_| ());
    launch.back(&mut memory);
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect();
    let row_loss = row_loss.iter().map(|x| x.to_bits()).collect();
    Ran { result, coef: bits(&coef), token_loss: bits(&token_loss), row_loss, row_tokens, memory }
}

/// Whether a lane reaches this line: a trap replaces it.
fn comes_to(lines: &[String], at: usize) -> bool {
    let mut lines = lines.to_vec();
    lines[at] = "\ttrap;".into();
    run(&lines).result.is_err_and(|fault| fault.kind == FaultKind::End("a trap".into()))
}

/// Runs the entry point with one line changed, for each line that `change` changes and a lane reaches.
/// Returns their number.
fn each_change(change: impl Fn(&str) -> Option<String>, check: impl Fn(usize, &str, Ran)) -> usize {
    let lines = shipped();
    let mut planted = 0;
    for (at, line) in lines.iter().enumerate() {
        let Some(with) = change(line) else { continue };
        if !comes_to(&lines, at) {
            continue;
        }
        let mut changed = lines.clone();
        changed[at] = with;
        planted += 1;
        check(at, line, run(&changed));
    }
    planted
}

#[test]
fn every_store_one_element_too_far_is_caught() {
    let good = run(&shipped());
    assert_eq!(good.result, Ok(()));
    let further = |line: &str| {
        let size = if line.contains("st.global.b64") { 8 } else { 4 };
        line.contains("st.global.").then(|| line.replacen("],", &format!("+{size}],"), 1))
    };
    // An existing offset would become a second one, which is not PTX: such lines are left out.
    let further = |line: &str| further(line).filter(|with| with.matches('+').count() == 1);
    let planted = each_change(further, |at, line, ran| {
        assert!(!ran.same(&good), "line {}: {line}", at + 1);
        if let Err(fault) = ran.result {
            assert_eq!(fault.entry, ENTRY);
        }
    });
    assert!(planted >= 4, "{planted} stores were planted");
}

#[test]
fn every_shuffle_of_other_lanes_is_caught() {
    let good = run(&shipped());
    // Only half of the lanes are in the mask: the others are not in their own.
    let half = |line: &str| line.contains("shfl.sync").then(|| line.replacen(", -1;", ", 65535;", 1));
    let planted = each_change(half, |at, line, ran| {
        let fault = ran.result.expect_err("a fault");
        assert_eq!(fault.instruction.at, format!("line {}", at + 1), "{line}: {fault}");
        assert!(matches!(fault.kind, FaultKind::Missing { missing: 0x10000, .. }), "{fault}");
        assert_eq!((fault.place.block, fault.place.team, fault.place.lane), (0, 0, Some(16)));
    });
    assert!(planted >= 20, "{planted} shuffles were planted");
    // One lane of a warp leaves before the shuffles.
    let lines = shipped();
    let first = lines.iter().position(|line| line.contains("shfl.sync")).expect("a shuffle");
    let mut changed = lines.clone();
    changed.insert(
        first,
        "\t{ .reg .pred q; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.b32 q, t, 5; @q ret; }".into(),
    );
    let fault = run(&changed).result.expect_err("a fault");
    assert!(matches!(fault.kind, FaultKind::Missing { missing: 0x20, .. }), "{fault}");
    assert!(fault.instruction.text.starts_with("shfl.sync"), "{fault}");
    assert_eq!(good.result, Ok(()));
}

#[test]
fn wrong_bits_lead_to_their_store() {
    let good = run(&shipped());
    let other = |line: &str| line.contains("sub.rn.f32").then(|| line.replacen("sub.", "add.", 1));
    let changed = Cell::new(0);
    let planted = each_change(other, |_, _, bad| {
        assert_eq!(bad.result, Ok(()), "no fault: only bits differ");
        let outputs = [(&good.coef, &bad.coef), (&good.token_loss, &bad.token_loss)];
        let found = outputs.iter().enumerate().find_map(|(which, (want, got))| {
            Some((which, want.iter().zip(*got).position(|(want, got)| want != got)?))
        });
        let Some((which, element)) = found else { return };
        changed.set(changed.get() + 1);
        // The last two arrays with 4 bytes per token are coef and token_loss, in the order of the op's
        // fields.
        let arrays: Vec<(u64, u64)> =
            bad.memory.live().into_iter().filter(|(_, bytes)| *bytes == 4 * TOKENS as u64).collect();
        let address = arrays[arrays.len() - 2 + which].0 + 4 * element as u64;
        let store = bad.memory.last_store(address).expect("a store");
        assert_eq!((&store.entry[..], store.place.block), (ENTRY, 0), "{store}");
        assert!(store.instruction.text.starts_with("st.global.b32"), "{store}");
        let row = OFFSETS[1..3].iter().filter(|end| element >= **end as usize).count();
        assert_eq!(store.place.team as usize, row % 2, "two warps take rows in turn: {store}");
        assert_eq!(store.place.lane, Some((element as u32 - OFFSETS[row]) % 32), "{store}");
    });
    let changed = changed.get();
    assert!(planted >= 10 && changed * 3 >= planted, "{planted} were changed, {changed} changed a bit");
}

//! Every supported encoding decodes to LLVM's text, and what LLVM calls invalid is refused.

use crate::llvm;
use crate::random::Random;
use lockstep_emulator::gfx942::code::Refusal;
use lockstep_emulator::gfx942::code::compare;
use lockstep_emulator::gfx942::code::decode::decode;
use lockstep_emulator::gfx942::code::op::{ALL, Form};
use std::collections::BTreeMap;

/// Draws a nine-bit source: registers, inline constants, literals, and occasionally anything.
fn source(random: &mut Random, vector: bool) -> u32 {
    match random.below(8) {
        0..3 if vector => 256 + (random.bits(8) & !(random.bits(1))),
        0..4 => random.below(102) as u32 & !random.bits(1),
        4 => 128 + random.below(81) as u32,
        5 => 240 + random.below(9) as u32,
        6 => [106, 107, 124, 126, 127, 255, 251, 253][random.below(8) as usize],
        _ => random.bits(if vector { 9 } else { 8 }),
    }
}

/// Mostly zero.
fn rarely(random: &mut Random, count: u32) -> u32 {
    if random.one_in(3) { random.bits(count) } else { 0 }
}

fn literal(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => random.below(80) as u32,
        1 => [0x3f80_0000, 0x3e22_f983, 0x3ff0_0000, 0xffff_ffff, 0x3c00, 0xfff0][random.below(6) as usize],
        _ => random.bits(32),
    }
}

fn even(random: &mut Random) -> u32 {
    random.bits(8) & if random.one_in(4) { 255 } else { 254 }
}

/// A long vector encoding of a VOP3 opcode.
fn long(random: &mut Random, opcode: u32) -> Vec<u32> {
    let modifiers = rarely(random, 3) << 8 | rarely(random, 1) << 15;
    let modifiers = modifiers | if random.one_in(4) { random.bits(7) << 8 } else { 0 };
    let word = 0xd000_0000 | opcode << 16 | even(random) | modifiers;
    let third = if random.one_in(2) { 0 } else { source(random, true) };
    let second = if random.one_in(4) { 0 } else { source(random, true) };
    let next = source(random, true) | second << 9 | third << 18;
    vec![word, next | rarely(random, 2) << 27 | rarely(random, 3) << 29]
}

fn sdwa(random: &mut Random) -> u32 {
    let selects = random.below(7) as u32 | (random.below(7) as u32) << 8;
    let first = random.bits(8) >> random.bits(1);
    first
        | (random.below(7) as u32) << 8
        | rarely(random, 2) << 11
        | selects << 16
        | rarely(random, 1) << 19
        | rarely(random, 1) << 27
        | rarely(random, 1) << 23
        | rarely(random, 1) << 31
}

fn dpp(random: &mut Random) -> u32 {
    const CONTROLS: [u32; 12] =
        [0xe4, 0x101, 0x10f, 0x113, 0x12c, 0x130, 0x134, 0x138, 0x13c, 0x140, 0x142, 0x151];
    let control = if random.one_in(2) { CONTROLS[random.below(12) as usize] } else { random.bits(9) };
    let masks = if random.one_in(2) { 0xff } else { random.bits(8) };
    random.bits(8) | control << 8 | random.bits(1) << 19 | rarely(random, 4) << 20 | masks << 24
}

/// Random encodings of an operation, in every coding that it has.
pub(crate) fn encodings(random: &mut Random, form: Form, opcode: u16) -> Vec<Vec<u32>> {
    let op = u32::from(opcode);
    let (s0, s1) = (source(random, false), source(random, false));
    let dst = even(random);
    let scalar = [source(random, false), 106, 126, 4 * (random.bits(5))][random.below(4) as usize] & 127;
    let literal = literal(random);
    let whole =
        |word: u32, sources: &[u32]| if sources.contains(&255) { vec![word, literal] } else { vec![word] };
    let v0 = source(random, true);
    let v1 = even(random);
    match form {
        Form::Sop2 => vec![whole(0x8000_0000 | op << 23 | scalar << 16 | s1 << 8 | s0, &[s0, s1])],
        Form::Sop1 => vec![whole(0xbe80_0000 | op << 8 | scalar << 16 | s0, &[s0])],
        Form::Sopc => vec![whole(0xbf00_0000 | op << 16 | s1 << 8 | s0, &[s0, s1])],
        Form::Sopk => vec![vec![0xb000_0000 | op << 23 | scalar << 16 | literal & 0xffff]],
        Form::Sopp => vec![vec![0xbf80_0000 | op << 16 | literal & if op == 12 { 0xcf7f } else { 0xffff }]],
        Form::Smem => {
            let (base, dst) = (random.below(56) as u32, random.bits(7) & !(random.bits(4)));
            let first = 0xc002_0000 | op << 18 | dst << 6 | base | rarely(random, 1) << 16;
            vec![vec![first, literal & 0x001f_ffff]]
        }
        Form::Vop1 => {
            let short = 0x7e00_0000 | dst << 17 | op << 9;
            vec![
                whole(short | v0, &[v0]),
                long(random, op + 0x140),
                vec![short | 249, sdwa(random)],
                vec![short | 250, dpp(random)],
            ]
        }
        Form::Vop2 => {
            let short = op << 25 | dst << 17 | v1 << 9;
            let constant =
                if matches!(op, 23 | 24) { vec![short | v0, literal] } else { whole(short | v0, &[v0]) };
            vec![
                constant,
                long(random, op + 0x100),
                vec![short | 249, sdwa(random)],
                vec![short | 250, dpp(random)],
            ]
        }
        Form::Vopc => {
            let short = 0x7c00_0000 | op << 17 | v1 << 9;
            let mask = if random.one_in(2) { 0 } else { 0x8000 | random.bits(7) << 8 };
            vec![
                whole(short | v0, &[v0]),
                long(random, op),
                vec![short | 249, sdwa(random) & !0xff00 | mask],
                vec![short | 250, dpp(random)],
            ]
        }
        Form::Vop3 => vec![long(random, op)],
        Form::Ds => vec![vec![
            0xd800_0000 | op << 17 | rarely(random, 16),
            dst << 24 | v1 << 8 | v0 & 255 | rarely(random, 8) << 16,
        ]],
        Form::Global => {
            let base = if random.one_in(2) { 0x7f } else { scalar };
            let cache = rarely(random, 2) << 16 | rarely(random, 1) << 25;
            let word = 0xdc00_8000 | op << 18 | rarely(random, 13) | cache;
            let (dst, data) = if op >= 24 { (rarely(random, 8), v1) } else { (dst, rarely(random, 8)) };
            vec![vec![word, dst << 24 | base << 16 | data << 8 | even(random)]]
        }
    }
}

#[test]
fn random_encodings_decode_to_the_text_of_llvm() {
    // To test further with another seed: `LOCKSTEP_SEED=7 cargo test -p lockstep-emulator random_encodings`.
    let seed = std::env::var("LOCKSTEP_SEED").map_or(0x5eed_0942, |seed| seed.parse().unwrap());
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut cases: Vec<(String, Vec<u32>)> = Vec::new();
    for _ in 0..60 {
        for op in ALL {
            let spec = op.spec();
            for words in encodings(&mut random, spec.form, spec.opcode) {
                cases.push((spec.name.to_owned(), words));
            }
        }
        for opcode in 0..=255 {
            if compare::kind(opcode).is_some() {
                for words in encodings(&mut random, Form::Vopc, opcode.into()) {
                    cases.push((compare::name(opcode), words));
                }
            }
        }
    }
    let encoded: Vec<Vec<u32>> = cases.iter().map(|(_, words)| words.clone()).collect();
    let Some(texts) = llvm::disassemble(&encoded) else { return };
    let (mut same, mut refused, mut unsupported) = (0, 0, BTreeMap::<String, usize>::new());
    let mut wrong = Vec::new();
    for ((name, words), text) in cases.iter().zip(texts) {
        let mine = decode(words);
        match (mine, text) {
            (Ok(inst), Some(text))
                if inst.to_string() == text && usize::from(inst.size) == 4 * words.len() =>
            {
                same += 1
            }
            (Err(_), None) => refused += 1,
            (Err(Refusal::Unsupported(why)), Some(_)) => *unsupported.entry(why).or_default() += 1,
            (mine, text) => wrong.push(format!(
                "{name} {words:08x?}: {} for LLVM's {text:?}",
                mine.map_or_else(|e| e.to_string(), |i| i.to_string())
            )),
        }
    }
    println!(
        "{same} the same, {refused} refused by both, unsupported: {}",
        unsupported.values().sum::<usize>()
    );
    assert!(
        wrong.is_empty(),
        "{} of {} differ, seed {seed:#x}:\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    assert!(same * 3 > cases.len(), "only {same} of {} are instructions", cases.len());
    if std::env::var_os("LOCKSTEP_SHOW").is_some() {
        println!("{unsupported:#?}");
    }
}

#[test]
fn the_shipped_code_decodes_to_the_text_of_llvm() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/artifacts/lockstep.gfx942.co");
    let arguments = ["-d", "--mcpu=gfx942", path];
    let Some((text, _)) = llvm::run(&["llvm-objdump-19", "llvm-objdump"], &arguments, &[]) else { return };
    let mut count = 0;
    for line in text.lines() {
        // Text, address, words, and the target of a jump: `s_branch 5 // 000A3E00: BF820005
        // <aggregate+0x20>`.
        let Some((text, comment)) = line.split_once("//") else { continue };
        let words = comment.split_whitespace().skip(1).take_while(|w| w.len() == 8);
        let words: Vec<u32> = words.map_while(|w| u32::from_str_radix(w, 16).ok()).collect();
        let inst = decode(&words).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(inst.to_string(), llvm::plain(text), "{line}");
        assert_eq!(usize::from(inst.size), words.len() * 4, "{line}");
        count += 1;
    }
    assert!(count > 100_000, "{count} instructions");
}

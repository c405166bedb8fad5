//! Random instructions run or stop with a fault; none panics the interpreter.

use crate::decoding::encodings;
use crate::machine::ONE;
use crate::random::Random;
use lockstep_emulator::fault::FaultKind;
use lockstep_emulator::gfx942::code::compare;
use lockstep_emulator::gfx942::code::op::{ALL, Form};
use lockstep_emulator::gfx942::{Approximation, Module};
use lockstep_emulator::launch::Program as _;
use lockstep_emulator::memory::Memory;

#[test]
fn random_instructions_do_not_panic() {
    let seed = 0x0b57;
    let mut random = Random(seed);
    // v_mov_b32_e32 vN, any; s_mov_b32 sN, any; and VCC.
    let mut before = Vec::new();
    for n in 0..128 {
        before.extend([0x7e00_02ff | n << 17, random.bits(32)]);
    }
    for n in (0..102).chain([106, 107, 124]) {
        before.extend([0xbe80_00ff | n << 16, random.bits(32)]);
    }
    let opcodes = ALL.iter().map(|op| (op.spec().form, op.spec().opcode));
    let comparisons = (0..=255).filter(|opcode| compare::kind(*opcode).is_some());
    let opcodes: Vec<_> = opcodes.chain(comparisons.map(|opcode| (Form::Vopc, opcode.into()))).collect();
    let (mut ran, mut stopped) = (0, 0);
    for _ in 0..6 {
        for (form, opcode) in &opcodes {
            if *form == Form::Sopp {
                continue;
            }
            for words in encodings(&mut random, *form, *opcode) {
                let nop = 0xbf80_000f;
                let code = [before.as_slice(), &[0xbf06_8080, nop], &words, &[nop, 0xbf8c_0000, 0xbf81_0000]]
                    .concat();
                let module =
                    Module::from_words("any", &code, 2).with_approximation(Approximation::Perturbed(seed));
                match module.launch("any", ONE, &[0; 16], &mut Memory::new(1 << 20)) {
                    Ok(_) => ran += 1,
                    Err(fault) => {
                        stopped += 1;
                        assert!(
                            !matches!(fault.kind, FaultKind::TooSoon(_) | FaultKind::NoWait(..)),
                            "{fault}"
                        );
                    }
                }
            }
        }
    }
    println!("{ran} ran, {stopped} stopped, seed {seed:#x}");
    assert!(ran > 1000, "{ran} ran, {stopped} stopped");
}

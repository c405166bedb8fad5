//! Runs words: a program on 64 lanes with inputs a, b, c (8 bytes per lane) and one output.

use lockstep_emulator::fault::Fault;
use lockstep_emulator::gfx942::code::decode::decode;
use lockstep_emulator::gfx942::{Approximation, Module};
use lockstep_emulator::launch::{Grid, Program as _};
use lockstep_emulator::memory::Memory;

/// One wave.
pub(crate) const ONE: Grid = Grid { blocks: [1, 1, 1], threads: [64, 1, 1] };

/// s[8:15]: addresses of out, a, b, c. v1: 8 · lane. v[2:3], v[4:5], v[6:7]: a, b, c. v[8:9]: zeros.
const BEFORE: [u32; 14] = [
    0xc00e_0200,
    0x0000_0000, // s_load_dwordx8 s[8:15], s[0:1], 0x0
    0x2402_0083, // v_lshlrev_b32_e32 v1, 3, v0
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xdc54_8000,
    0x020a_0001, // global_load_dwordx2 v[2:3], v1, s[10:11]
    0xdc54_8000,
    0x040c_0001, // global_load_dwordx2 v[4:5], v1, s[12:13]
    0xdc54_8000,
    0x060e_0001, // global_load_dwordx2 v[6:7], v1, s[14:15]
    0x7e10_7080, // v_mov_b64_e32 v[8:9], 0
    0xbf8c_0f70, // s_waitcnt vmcnt(0)
    0xbf80_0004,
    0xbf80_0004, // s_nop 4
];
const AFTER: [u32; 4] = [
    0xbf80_0004, // s_nop 4
    0xdc74_8000,
    0x0008_0801, // global_store_dwordx2 v1, v[8:9], s[8:9]
    0xbf81_0000, // s_endpgm
];

/// Returns the words' text, instruction by instruction.
pub(crate) fn text(words: &[u32]) -> Vec<String> {
    let (mut at, mut lines) = (0, Vec::new());
    while at < words.len() {
        let inst = decode(&words[at..]).unwrap();
        lines.push(inst.to_string());
        at += usize::from(inst.size / 4);
    }
    lines
}

/// Returns v[8:9] of each lane after running the words.
pub(crate) fn run(
    words: &[u32],
    inputs: [&[u64; 64]; 3],
    approximation: Approximation,
) -> Result<[u64; 64], Box<Fault>> {
    let code = [BEFORE.as_slice(), words, AFTER.as_slice()].concat();
    let module = Module::from_words("tried", &code, 4).with_approximation(approximation);
    let mut memory = Memory::new(1 << 20);
    let mut params = Vec::new();
    let out = memory.alloc(512).unwrap();
    params.extend(out.to_le_bytes());
    for input in inputs {
        let address = memory.alloc(512).unwrap();
        let bytes: Vec<u8> = input.iter().flat_map(|x| x.to_le_bytes()).collect();
        memory.upload(address, &bytes).unwrap();
        params.extend(address.to_le_bytes());
    }
    module.launch("tried", ONE, &params, &mut memory)?;
    let mut bytes = [0; 512];
    memory.download(out, &mut bytes).unwrap();
    Ok(std::array::from_fn(|lane| u64::from_le_bytes(bytes[8 * lane..8 * lane + 8].try_into().unwrap())))
}

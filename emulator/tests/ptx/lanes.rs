//! One instruction on many operands: each lane has three 64-bit words and produces one.

use lockstep_emulator::fault::Fault;
use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;

/// One warp.
pub(crate) const WARP: Grid = Grid { blocks: [1, 1, 1], threads: [32, 1, 1] };

/// Returns a module around a body, with an entry point `t(p_in, p_out)`. In each lane, %d0 … %d2 are its
/// words, %r0 … and %h0 … their lower 32 and 16 bits, and %p0 … whether they are not 0; %r8 is the
/// lane, %d8 and %d9 are the addresses of its words and result.
pub(crate) fn module(body: &str) -> String {
    format!(
        ".version 7.0
.target sm_80
.address_size 64
.visible .entry t(
	.param .u64 p_in,
	.param .u64 p_out
)
{{
	.reg .pred %p<8>;
	.reg .b16 %h<8>;
	.reg .b32 %r<12>;
	.reg .b64 %d<12>;
	mov.u32 %r8, %tid.x;
	ld.param.u64 %d8, [p_in];
	ld.param.u64 %d9, [p_out];
	mul.wide.u32 %d10, %r8, 24;
	add.s64 %d8, %d8, %d10;
	mul.wide.u32 %d10, %r8, 8;
	add.s64 %d9, %d9, %d10;
	ld.global.b64 %d0, [%d8];
	ld.global.b64 %d1, [%d8+8];
	ld.global.b64 %d2, [%d8+16];
	cvt.u32.u64 %r0, %d0;
	cvt.u32.u64 %r1, %d1;
	cvt.u32.u64 %r2, %d2;
	cvt.u16.u64 %h0, %d0;
	cvt.u16.u64 %h1, %d1;
	cvt.u16.u64 %h2, %d2;
	setp.ne.b64 %p0, %d0, 0;
	setp.ne.b64 %p1, %d1, 0;
	setp.ne.b64 %p2, %d2, 0;
{body}
	ret;
}}
"
    )
}

/// The line number of a body's first line.
pub(crate) const FIRST: u32 = 32;

/// Stores `register` as the lane's result.
pub(crate) fn result(register: &str) -> String {
    match register.as_bytes()[1] {
        b'h' => format!("\tcvt.u64.u16 %d11, {register};\n\tst.global.b64 [%d9], %d11;"),
        b'r' => format!("\tcvt.u64.u32 %d11, {register};\n\tst.global.b64 [%d9], %d11;"),
        b'p' => format!("\tselp.b64 %d11, 1, 0, {register};\n\tst.global.b64 [%d9], %d11;"),
        _ => format!("\tst.global.b64 [%d9], {register};"),
    }
}

/// Runs a body on up to 32 lanes' words; the last words are repeated for the other lanes.
pub(crate) fn warp(body: &str, words: &[[u64; 3]]) -> Result<Vec<u64>, Box<Fault>> {
    let text = module(body);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut memory = Memory::new(1 << 20);
    let (from, to) = (memory.alloc(32 * 24).expect("memory"), memory.alloc(32 * 8).expect("memory"));
    let mut bytes: Vec<u8> = words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
    while let Some(last) = words.last().filter(|_| bytes.len() < 32 * 24) {
        bytes.extend(last.iter().flat_map(|word| word.to_le_bytes()));
    }
    memory.upload(from, &bytes).expect("an upload");
    memory.fill(to, 0, 32 * 8).expect("an upload");
    let params: Vec<u8> = [from, to].iter().flat_map(|address| address.to_le_bytes()).collect();
    module.launch("t", WARP, &params, &mut memory)?;
    let mut back = vec![0; 8 * words.len()];
    memory.download(to, &mut back).expect("a download");
    Ok(back.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect())
}

/// Returns the results of one instruction: it writes register 3 of its type.
pub(crate) fn run(instruction: &str, words: &[[u64; 3]]) -> Vec<u64> {
    let register = ["%p3", "%h3", "%r3", "%d3"].into_iter().find(|name| instruction.contains(*name));
    let body = format!("\t{instruction};\n{}", result(register.expect("a result in register 3")));
    let results = words.chunks(32).map(|words| warp(&body, words).unwrap_or_else(|fault| panic!("{fault}")));
    results.flatten().collect()
}

/// Checks the results of an instruction for given words.
pub(crate) fn table(instruction: &str, rows: &[([u64; 3], u64)]) {
    let words: Vec<[u64; 3]> = rows.iter().map(|(words, _)| *words).collect();
    for ((words, want), got) in rows.iter().zip(run(instruction, &words)) {
        assert_eq!(got, *want, "{instruction} of {words:#x?}: {got:#x}, expected {want:#x}");
    }
}

/// Returns how a register holds a number of binary32.
pub(crate) fn f(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// Returns how a register holds a number of binary64.
pub(crate) fn d(x: f64) -> u64 {
    x.to_bits()
}

/// Generates pseudorandom words, the same each time.
pub(crate) fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

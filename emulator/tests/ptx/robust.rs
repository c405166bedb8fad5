//! Texts that are wrong in any way: an error or a fault, never a panic or the end of the process.

use super::lanes::{WARP, module, random};
use lockstep_emulator::launch::Program;
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;

/// Every kind of step.
const BODY: &str = "\tadd.s64 %d3, %d8, 8;
	ld.global.v2.b32 {%r3, %r4}, [%d3];
	mad.lo.s32 %r3, %r3, 5, %r4;
	mul.wide.s32 %d4, %r3, -7;
	mul.hi.u64 %d4, %d4, %d0;
	bfe.s32 %r5, %r3, 5, 9;
	bfi.b32 %r5, %r3, %r5, 7, 30;
	shf.l.wrap.b32 %r5, %r3, %r5, 7;
	shl.b64 %d5, %d0, %r5;
	div.u32 %r6, %r3, 3;
	cvt.rzi.s32.f32 %r6, %r3;
	cvt.s8.s32 %r6, %r3;
	fma.rn.f32 %r6, %r3, %r4, 0f3F800000;
	setp.lt.s32 %p3, %r6, 4;
	shfl.sync.up.b32 %r7|%p4, %r6, 1, 0, -1;
	vote.sync.ballot.b32 %r7, %p3, -1;
	.shared .align 8 .b8 s[16];
	mov.u32 %r9, s;
	st.shared.v2.b32 [%r9+8], {%r8, 7};
	bar.sync 0, 32;
	ld.shared.b32 %r9, [s+12];
	@%p3 bra $L_a;
	$L_t: .branchtargets $L_a, $L_b;
	brx.idx %r1, $L_t;
$L_a:
	selp.b32 %r7, %r6, 9, %p3;
$L_b:
	st.global.v2.b32 [%d9+-8], {%r7, %r6};
	@!%p3 bra $L_a;";

#[test]
fn changed_texts_do_not_panic() {
    let text = module(BODY);
    let mut words = random(77);
    let mut next = |n: usize| (words.next().unwrap_or_default() % n as u64) as usize;
    let (mut read, mut ran) = (0, 0);
    for _ in 0..3000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=next(3) {
            // A character of the body is replaced by another one from the body: mostly other registers,
            // numbers and modifiers.
            let at = text.len() - 1 - next(BODY.len());
            bytes[at] = text.as_bytes()[text.len() - 1 - next(BODY.len())];
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let Ok(module) = Module::parse(&text) else { continue };
        read += 1;
        let module = module.with_limit(2000);
        let mut memory = Memory::new(1 << 16);
        let (from, to) = (memory.alloc(32 * 24).expect("memory"), memory.alloc(32 * 8).expect("memory"));
        let input: Vec<u8> = random(5).take(96).flat_map(|word| (word >> next(64)).to_le_bytes()).collect();
        memory.upload(from, &input).expect("an upload");
        let params: Vec<u8> = [from, to].iter().flat_map(|address| address.to_le_bytes()).collect();
        if let Err(fault) = module.launch("t", WARP, &params, &mut memory) {
            assert!(!fault.to_string().is_empty());
            ran += 1;
        }
    }
    assert!(read > 200 && ran > 100, "{read} were read, {ran} faulted");
}

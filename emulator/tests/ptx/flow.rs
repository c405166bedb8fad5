//! Divergent branches, tables, guards, ends.

use super::lanes::{WARP, module, result, warp};
use lockstep_emulator::fault::FaultKind;
use lockstep_emulator::launch::Program;
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;

fn ok(body: &str) -> Vec<u64> {
    warp(body, &[[0; 3]; 32]).unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn loops_of_different_lengths_meet_again() {
    // Lane l adds l + (l - 1) + … + 1.
    let body = format!(
        "	mov.b32 %r3, 0;
	mov.b32 %r4, %r8;
$L_loop:
	setp.eq.b32 %p3, %r4, 0;
	@%p3 bra $L_end;
	add.s32 %r3, %r3, %r4;
	add.s32 %r4, %r4, -1;
	bra.uni $L_loop;
$L_end:
	shfl.sync.idx.b32 %r3, %r3, %r8, 31, -1;
{}",
        result("%r3")
    );
    assert!(ok(&body).iter().enumerate().all(|(lane, got)| *got == (lane * (lane + 1) / 2) as u64));
}

#[test]
fn tables_send_each_lane_its_way() {
    let body = format!(
        "	and.b32 %r4, %r8, 3;
	$L_brx_0: .branchtargets
		$L_a,
		$L_b,
		$L_a,
		$L_c;
	brx.idx %r4, $L_brx_0;
$L_a:
	mov.b32 %r3, 10;
	bra.uni $L_end;
$L_b:
	mov.b32 %r3, 20;
	bra.uni $L_end;
$L_c:
	mov.b32 %r3, 30;
$L_end:
	shfl.sync.idx.b32 %r3, %r3, %r8, 31, -1;
{}",
        result("%r3")
    );
    assert!(ok(&body).iter().enumerate().all(|(lane, got)| *got == [10, 20, 10, 30][lane % 4]));
    let fault = warp(&body.replace("%r8, 3;", "%r8, 7;"), &[[0; 3]; 32]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Jump("entry 4 of a table of 4".into()));
    assert_eq!(
        (fault.place.lane, &fault.instruction.text[..]),
        (Some(4), "brx.idx %r4, $L_brx_0;"[..22].trim_end_matches(';'))
    );
}

#[test]
fn guards_keep_lanes_away() {
    let body = format!(
        "	setp.lt.u32 %p3, %r8, 5;
	mov.b32 %r3, 1;
	@%p3 add.s32 %r3, %r3, 10;
	@!%p3 add.s32 %r3, %r3, 20;
	setp.eq.b32 %p4, %r8, 6;
	@%p4 ret;
{}",
        result("%r3")
    );
    let got = ok(&body);
    assert!(
        got.iter()
            .enumerate()
            .all(|(lane, got)| *got == [11, 21, 0][if lane == 6 { 2 } else { usize::from(lane > 4) }])
    );
}

#[test]
fn ends_and_endless_loops_are_faults() {
    let fault = warp("\ttrap;", &[[0; 3]; 32]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::End("a trap".into()));
    let text = module("$L_loop:\n\tbra.uni $L_loop;");
    let module =
        Module::parse(&text).map(|module| module.with_limit(1000)).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new(1 << 16);
    let a = memory.alloc(32 * 24).expect("memory");
    memory.fill(a, 0, 32 * 24).expect("memory");
    let params: Vec<u8> = [a, a].iter().flat_map(|address| address.to_le_bytes()).collect();
    let fault = module.launch("t", WARP, &params, &mut memory).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Endless(1000));
    // A text that ends without ret.
    let text = text.replace("\tret;\n", "").replace("\tbra.uni $L_loop;", "\tmov.b32 %r3, 1;");
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let fault = module.launch("t", WARP, &params, &mut memory).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Jump("the end of the text".into()));
    // .uni on a branch on which lanes disagree.
    let fault = warp("\tsetp.lt.u32 %p3, %r8, 5;\n\t@%p3 bra.uni $L_a;\n$L_a:", &[[0; 3]; 32]).unwrap_err();
    assert!(matches!(&fault.kind, FaultKind::Jump(what) if what.contains("0x1f")));
}

#[test]
fn counts_are_of_warps_and_of_lanes() {
    let text = module("\tsetp.lt.u32 %p3, %r8, 5;\n\t@%p3 bra $L_a;\n\tmov.b32 %r3, 1;\n$L_a:");
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new(1 << 16);
    let a = memory.alloc(32 * 24).expect("memory");
    memory.fill(a, 0, 32 * 24).expect("memory");
    let params: Vec<u8> = [a, a].iter().flat_map(|address| address.to_le_bytes()).collect();
    let counts = module.launch("t", WARP, &params, &mut memory).unwrap_or_else(|fault| panic!("{fault}"));
    // 19 before the body, its 3 and a return; 27 lanes execute the move.
    assert_eq!(counts.instructions, 19 + 3 + 1);
    assert_eq!(counts.lane_instructions, (19 + 2 + 1) * 32 + 27);
    assert_eq!((counts.requests, counts.bytes_requested), (3, 3 * 32 * 8));
    assert_eq!(counts.bytes_moved[0], 3 * 32 * 24, "a stride of 24 bytes touches every sector");
}

#[test]
fn unwritten_registers_pass_through_moves_alone() {
    // %r5 is written in lanes below 7 only.
    let some = "	setp.lt.u32 %p3, %r8, 7;
	@%p3 mov.b32 %r5, 1;
	mov.b32 %r6, %r5;
	selp.b32 %r3, %r6, 2, %p3;
";
    let got = ok(&format!("{some}{}", result("%r3")));
    assert!(got.iter().enumerate().all(|(lane, got)| *got == if lane < 7 { 1 } else { 2 }));
    let fault = |body: &str| {
        let fault = warp(&format!("{some}{body}"), &[[0; 3]; 32]).unwrap_err();
        assert_eq!(fault.place.lane, Some(7), "{fault}");
        fault.kind
    };
    let unwritten = |name: &str| FaultKind::UnwrittenRegister(name.into());
    assert_eq!(fault("\tadd.s32 %r3, %r5, 1;"), unwritten("%r5"));
    assert_eq!(fault("\tadd.s32 %r3, 1, %r6;"), unwritten("%r6"));
    assert_eq!(fault("\tst.global.b32 [%d9], %r6;"), unwritten("%r6"));
    assert_eq!(fault("\tselp.b32 %r7, 2, %r6, %p3;\n\tcvt.u64.u32 %d11, %r7;"), unwritten("%r7"));
    // A predicate for which `and` determines the result, and one for which it does not.
    let some = "	setp.lt.u32 %p3, %r8, 7;
	@%p3 setp.eq.b32 %p4, %r8, 3;
	and.pred %p5, %p3, %p4;
	not.pred %p6, %p3;
	or.pred %p6, %p4, %p6;
";
    let got = ok(&format!("{some}{}", result("%p5")));
    assert!(got.iter().enumerate().all(|(lane, got)| *got == u64::from(lane == 3)));
    let got = ok(&format!("{some}{}", result("%p6")));
    assert!(got.iter().enumerate().all(|(lane, got)| *got == u64::from(lane == 3 || lane >= 7)));
    let fault = warp(&format!("{some}\tor.pred %p5, %p3, %p4;"), &[[0; 3]; 32]).unwrap_err();
    assert_eq!((fault.kind, fault.place.lane), (unwritten("%p4"), Some(7)));
}

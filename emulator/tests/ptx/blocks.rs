//! Blocks whose warps work together: barriers, and faults planted at them.

use super::lanes::random;
use lockstep_emulator::counts::Counts;
use lockstep_emulator::fault::{Fault, FaultKind};
use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;

/// Returns a module around a body, with an entry point `t(p_a)`. In each thread %r1 is its lane, %r2 its
/// warp, %r3 the address of shared memory and %r8 that of its own four bytes there, %r4 the block and %r5 its
/// warps, %r6 its number in the grid; %d0 is the address of the array and %d1 that of its own four bytes; %p0
/// is true in warp 0, %p1 in lanes below 16.
pub(crate) fn module(body: &str) -> String {
    format!(
        ".version 7.0
.target sm_80
.address_size 64
.visible .entry t(
	.param .u64 p_a
)
{{
	.reg .pred %p<8>;
	.reg .b32 %r<20>;
	.reg .b64 %d<8>;
	ld.param.u64 %d0, [p_a];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	mov.u32 %r4, %ctaid.x;
	mov.u32 %r5, %ntid.y;
	// begin inline asm
	{{ .shared .align 16 .b8 lockstep_shared[4096]; mov.u32 %r3, lockstep_shared; }}
	// end inline asm
	mad.lo.s32 %r7, %r2, 32, %r1;
	mad.lo.s32 %r8, %r7, 4, %r3;
	mul.lo.s32 %r6, %r4, %r5;
	mad.lo.s32 %r6, %r6, 32, %r7;
	mul.wide.u32 %d1, %r6, 4;
	add.s64 %d1, %d1, %d0;
	setp.eq.u32 %p0, %r2, 0;
	setp.lt.u32 %p1, %r1, 16;
{body}
	ret;
}}
"
    )
}

/// The line number of a body's first line.
pub(crate) const FIRST: usize = 27;
/// The address of the array.
pub(crate) const ARRAY: u64 = 0x1001_0000_0000;

/// Runs a body on `blocks` of `warps`, with `array[i] = i`; returns the array, one element per thread.
fn launch(body: &str, blocks: u32, warps: u32, limit: u64) -> Result<(Vec<u32>, Counts), Box<Fault>> {
    let text = module(body);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).with_limit(limit);
    let mut memory = Memory::new(1 << 20);
    let threads = 32 * blocks * warps;
    let array: Vec<u8> = (0..threads).flat_map(u32::to_le_bytes).collect();
    let address = memory.alloc(array.len() as u64).expect("memory");
    assert_eq!(address, ARRAY);
    memory.upload(address, &array).expect("an upload");
    let grid = Grid { blocks: [blocks, 1, 1], threads: [32, warps, 1] };
    let counts = module.launch("t", grid, &address.to_le_bytes(), &mut memory)?;
    let mut back = vec![0; array.len()];
    memory.download(address, &mut back).expect("a download");
    let words = back.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")));
    Ok((words.collect(), counts))
}

pub(crate) fn run(body: &str, blocks: u32, warps: u32) -> Result<Vec<u32>, Box<Fault>> {
    launch(body, blocks, warps, 1 << 20).map(|(array, _)| array)
}

pub(crate) fn ok(body: &str, blocks: u32, warps: u32) -> Vec<u32> {
    run(body, blocks, warps).unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}

/// Asserts the whole report of a fault in the line of the body that contains `line`.
pub(crate) fn fails(body: &str, (blocks, warps): (u32, u32), kind: &str, place: &str, line: &str) {
    let fault = run(body, blocks, warps).err().unwrap_or_else(|| panic!("no fault\n{body}"));
    let (at, text) = body.lines().enumerate().find(|(_, text)| text.contains(line)).expect("a line");
    let text: Vec<&str> = text.trim_end_matches(';').split_whitespace().collect();
    let want = format!("{kind} in `t`, {place}, instruction line {} `{}`", FIRST + at, text.join(" "));
    assert_eq!(fault.to_string(), want, "{body}");
}

/// `array[i] = sum of the block's array[…]`, three times over.
pub(crate) const SUM: &str = "	mov.u32 %r15, 0;
	shl.b32 %r16, %r5, 5;
$L_row:
	ld.global.u32 %r10, [%d1];
	st.shared.u32 [%r8], %r10;
	bar.sync 	0;
	mov.u32 %r11, 0;
	mov.u32 %r12, %r3;
	mov.u32 %r13, 0;
$L_add:
	ld.shared.u32 %r14, [%r12];
	add.s32 %r11, %r11, %r14;
	add.s32 %r12, %r12, 4;
	add.s32 %r13, %r13, 1;
	setp.lt.u32 %p2, %r13, %r16;
	@%p2 bra $L_add;
	st.global.u32 [%d1], %r11;
	bar.sync 0;
	add.s32 %r15, %r15, 1;
	setp.lt.u32 %p3, %r15, 3;
	@%p3 bra $L_row;";

pub(crate) fn change(old: &str, new: &str) -> String {
    assert!(SUM.contains(old), "{old}");
    SUM.replacen(old, new, 1)
}

#[test]
fn a_block_adds_up_its_terms() {
    for warps in 1..=32 {
        let (array, counts) = launch(SUM, 2, warps, 1 << 20).unwrap_or_else(|fault| panic!("{fault}"));
        let n = 32 * warps;
        for (block, sums) in array.chunks(n as usize).enumerate() {
            let first = (0..n).map(|i| i + n * block as u32).sum::<u32>();
            let third = first.wrapping_mul(n).wrapping_mul(n);
            assert!(sums.iter().all(|sum| *sum == third), "{warps} warps, block {block}: {sums:?}");
        }
        assert_eq!(counts.instructions, counts.longest * u64::from(2 * warps), "warps alike");
        assert_eq!(counts.requests, u64::from(2 * warps * 6), "of global memory alone");
    }
}

#[test]
fn the_limit_is_of_a_warp_and_of_all_its_phases() {
    let (_, counts) = launch(SUM, 1, 3, 1 << 20).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(launch(SUM, 1, 3, counts.longest).is_ok());
    let fault = launch(SUM, 1, 3, counts.longest - 1).unwrap_err();
    assert_eq!((fault.kind, fault.place.team), (FaultKind::Endless(counts.longest - 1), 0));
    let fault = launch("$L_on:\n\tbar.sync 0;\n\tbra.uni $L_on;", 1, 2, 1000).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Endless(1000));
    // The longest of different warps: warp 1 takes two steps more.
    let (_, counts) =
        launch("\t@%p0 ret;\n\tmov.u32 %r9, 1;\n\tmov.u32 %r9, 2;", 1, 2, 1000).expect("no fault");
    assert_eq!((counts.longest, counts.instructions), (counts.instructions / 2 + 2, counts.longest * 2 - 3));
}

#[test]
fn barriers_order_global_memory_within_a_block() {
    // Warp 1 loads what warp 0 stored, and stores where warp 0 loaded. Then what block 1 meets.
    for (first, second, kind, next) in [
        ("@%p0 st.global.u32 [%d0], 7", "@!%p0 ld.global.u32 %r9, [%d0]", ("load", 0, "wrote"), ("store", 0)),
        ("@%p0 ld.global.u32 %r9, [%d0]", "@!%p0 st.global.u32 [%d0], 7", ("store", 0, "read"), ("load", 1)),
        ("@%p0 st.global.u32 [%d0], 7", "@!%p0 st.global.u32 [%d0], 8", ("store", 0, "wrote"), ("store", 1)),
    ] {
        let place = "block 0, team 1, lane 0";
        let report = |(access, other, did): (&str, u32, &str)| {
            format!("{access} of 4 bytes at {ARRAY:#x}: team {other} of the grid {did} it in the same launch")
        };
        let steps = |between: &str| format!("\tbar.sync 0;\n\t{first};\n{between}\t{second};\n\tbar.sync 0;");
        fails(&format!("\t{first};\n\t{second};"), (1, 2), &report(kind), place, second);
        fails(&steps(""), (1, 2), &report(kind), place, second);
        let ordered = steps("\tbar.sync 0;\n");
        ok(&ordered, 1, 2);
        // Blocks are not ordered, whatever barriers they have.
        let kind = report((next.0, next.1, "wrote"));
        fails(&ordered, (2, 2), &kind, "block 1, team 0, lane 0", first);
    }
    // The whole report, in a later phase of a later block: warp 4 of the grid is warp 0 of block 2.
    let body = "	bar.sync 0;
	setp.eq.u32 %p2, %r4, 0;
	@%p2 st.global.u32 [%d1], 7;
	bar.sync 0;
	setp.eq.u32 %p2, %r4, 2;
	bar.sync 0;
	@%p2 ld.global.u32 %r9, [%d0+128];";
    let kind =
        format!("load of 4 bytes at {:#x}: team 1 of the grid wrote it in the same launch", ARRAY + 128);
    fails(body, (3, 2), &kind, "block 2, team 0, lane 0", "ld.global");
    ok(&body.replace("[%d0+128]", "[%d1]"), 3, 2);
}

#[test]
fn every_lane_comes_to_a_barrier() {
    let some = "it is for the whole warp, and only lanes";
    for (body, missing, here) in [
        ("\t@%p1 bra $L_on;\n\tbar.sync 0;\n$L_on:", "0xffff", "0xffff0000"),
        ("\t@%p1 bar.sync 0;", "0xffff0000", "0xffff"),
        ("\t@%p1 ret;\n\tbar.sync 0;", "0xffff", "0xffff0000"),
        ("\t@%p1 ret;\n\tbarrier.sync 0;", "0xffff", "0xffff0000"),
    ] {
        let kind = format!("lanes {missing} do not take part: {some} {here} ever come");
        let line = if body.contains("barrier") { "barrier.sync" } else { "bar.sync" };
        fails(body, (1, 2), &kind, "block 0, team 0", line);
        ok(&body.replace("%p1", "%p7").replace("\t@", "\tsetp.lt.u32 %p7, %r1, 64;\n\t@"), 1, 2);
    }
    // Lanes that come late, through code after the barrier.
    let late = "	mov.u32 %r9, 5;
	@%p1 bra $L_late;
$L_meet:
	st.shared.u32 [%r8], %r9;
	bar.sync 0;
	ld.shared.u32 %r9, [%r8];
	st.global.u32 [%d1], %r9;
	ret;
$L_late:
	mov.u32 %r9, 6;
	bra.uni $L_meet;";
    assert!(ok(late, 1, 2).iter().enumerate().all(|(i, word)| *word == if i % 32 < 16 { 6 } else { 5 }));
}

#[test]
fn the_last_warp_may_be_short() {
    let run = |body: &str| {
        let module = Module::parse(&module(body)).unwrap_or_else(|error| panic!("{error}"));
        let grid = Grid { blocks: [1, 1, 1], threads: [40, 1, 1] };
        module.launch("t", grid, &[0; 8], &mut Memory::new(1 << 16)).map(|_| ())
    };
    assert_eq!(run("\tbar.sync 0;\n\tbar.sync 0;"), Ok(()));
    let fault = run("\tsetp.eq.u32 %p2, %r1, 39;\n\t@!%p2 bar.sync 0;").unwrap_err();
    let FaultKind::Missing { missing: 0x80, why } = &fault.kind else { panic!("{fault}") };
    assert_eq!(why, "it is for the whole warp, and only lanes 0x7f ever come");
}

#[test]
fn every_warp_comes_to_the_same_barrier() {
    let ended = |team: u32| format!("team {team} of the block does not take part: it has ended");
    fails("\t@%p0 ret;\n\tbar.sync 0;", (1, 2), &ended(0), "block 0, team 1", "bar.sync");
    fails("\t@!%p0 ret;\n\tbar.sync 0;", (1, 2), &ended(1), "block 0, team 0", "bar.sync");
    // In the second phase of the second block.
    let body = "	setp.eq.u32 %p2, %r2, 2;
	setp.eq.u32 %p3, %r4, 1;
	and.pred %p2, %p2, %p3;
	bar.sync 0;
	@%p2 ret;
	barrier.sync.aligned 0;";
    ok(body, 1, 3);
    fails(body, (2, 3), &ended(2), "block 1, team 0", "barrier.sync.aligned");
    let body = "	@%p0 bra $L_other;
	bar.sync 0;
	ret;
$L_other:
	barrier.sync 0;";
    let kind = format!("team 1 of the block does not take part: it waits at line {} `bar.sync 0`", FIRST + 1);
    fails(body, (1, 2), &kind, "block 0, team 0", "barrier.sync");
}

#[test]
fn barriers_have_many_names() {
    for name in [
        "bar.sync 0",
        "bar.sync 0, 64",
        "bar.cta.sync 0",
        "barrier.sync 0",
        "barrier.sync.aligned 0, 64",
        "barrier.cta.sync 0",
        "barrier.cta.sync.aligned 0",
    ] {
        let body = SUM.replace("bar.sync 	0", "bar.sync 0").replace("bar.sync 0", name);
        assert_eq!(ok(&body, 1, 2), ok(SUM, 1, 2), "{name}");
    }
    let fault = run("\tbar.sync 0, 64;", 1, 3).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unimplemented("a barrier of 64 of the block's 96 threads".into()));
}

#[test]
fn changed_texts_do_not_panic() {
    let text = module(SUM);
    let mut words = random(91);
    let mut next = |n: usize| (words.next().unwrap_or_default() % n as u64) as usize;
    let (mut read, mut faults) = (0, 0);
    for _ in 0..2000 {
        let mut bytes = text.clone().into_bytes();
        let body = text.len() - SUM.len() - 200;
        for _ in 0..=next(3) {
            bytes[body + next(text.len() - body)] = text.as_bytes()[body + next(text.len() - body)];
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let Ok(module) = Module::parse(&text) else { continue };
        read += 1;
        let mut memory = Memory::new(1 << 16);
        let address = memory.alloc(256).expect("memory");
        memory.fill(address, 1, 256).expect("memory");
        let grid = Grid { blocks: [1, 1, 1], threads: [32, 2, 1] };
        let ran = module.with_limit(2000).launch("t", grid, &address.to_le_bytes(), &mut memory);
        faults += u32::from(ran.is_err());
    }
    assert!(read > 200 && faults > 100, "{read} were read, {faults} faulted");
}

//! Shared memory of a block: variables, types, and planted faults.

use super::blocks::{ARRAY, FIRST, SUM, change, fails, module, ok, run};
use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;

#[test]
fn accesses_stay_in_their_variable() {
    // The last thread's four bytes are beyond 252.
    let text = module(SUM).replacen("[4096]", "[252]", 1);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new(1 << 20);
    let address = memory.alloc(256).expect("memory");
    memory.fill(address, 1, 256).expect("memory");
    let grid = Grid { blocks: [1, 1, 1], threads: [32, 2, 1] };
    let fault = module.launch("t", grid, &address.to_le_bytes(), &mut memory).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "store of 4 bytes at 0x4fc: 4 bytes past the end of the shared variable of 252 bytes at 0x400 in \
         `t`, block 0, team 1, lane 31, instruction line 31 `st.shared.u32 [%r8], %r10`"
    );
    let first = "block 0, team 0, lane 0";
    fails(
        "	mov.u32 %r3, 0;
	ld.shared.u32 %r9, [%r3];",
        (1, 1),
        "load of 4 bytes at 0x0: 1024 bytes before the shared variable of 4096 bytes at 0x400",
        first,
        "ld.shared",
    );
    // An access across two variables, and one into the gap between two.
    let two = "	{ .shared .align 4 .b8 a[4]; .shared .b8 b[4]; .shared .align 16 .b8 c[4];
	mov.u32 %r9, a; mov.u32 %r10, b; mov.u32 %r11, c; }
";
    let moved = "\tst.global.u32 [%d1], %r11;";
    let across = format!("{two}\tst.shared.b64 [%r9], 0;");
    let kind = "store of 8 bytes at 0x1400: 4 bytes past the end of the shared variable of 4 bytes at 0x1400";
    fails(&across, (1, 1), kind, first, "st.shared");
    let gap = format!("{two}\tst.shared.b32 [%r10+4], 0;");
    let kind = "store of 4 bytes at 0x1408: 4 bytes past the end of the shared variable of 4 bytes at 0x1404";
    fails(&gap, (1, 1), kind, first, "st.shared");
    assert_eq!(ok(&format!("{two}{moved}"), 1, 1), [0x1410; 32]);
    // An address of global memory is none of shared memory, nor the other way round.
    let kind = format!(
        "load of 4 bytes at {ARRAY:#x}: {} bytes past the end of the shared variable of 4096 bytes at 0x400",
        ARRAY + 4 - 0x1400
    );
    fails("\tld.shared.u32 %r9, [%d0];", (1, 1), &kind, first, "ld.shared");
    let body = "\tcvt.u64.u32 %d2, %r3;\n\tld.global.u32 %r9, [%d2];";
    fails(body, (1, 1), "load of 4 bytes at 0x400: in no allocation", first, "ld.global");
    let body = "\tmov.u64 %d2, -4;\n\tst.shared.u32 [%d2], 1;";
    let kind = "store of 4 bytes at 0xfffffffffffffffc: at the end of the address space";
    fails(body, (1, 1), kind, first, "st.shared");
}

#[test]
fn an_entry_point_without_variables_has_no_shared_memory() {
    let text = module("\tst.shared.u32 [%r8], 1;");
    let start = text.find("{ .shared").expect("a scope");
    let end = start + text[start..].find('}').expect("its end") + 1;
    let text = text.replacen(&text[start..end], "mov.u32 %r3, 1024;", 1);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let grid = Grid { blocks: [1, 1, 1], threads: [32, 1, 1] };
    let mut memory = Memory::new(1 << 20);
    // Another entry point's is gone.
    memory.share(std::slice::from_ref(&(0x400..0x1400)));
    let fault = module.launch("t", grid, &[0; 8], &mut memory).unwrap_err();
    assert!(fault.to_string().starts_with("store of 4 bytes at 0x400: in no shared variable"), "{fault}");
}

#[test]
fn accesses_are_aligned_and_of_written_bytes() {
    let first = "block 0, team 0, lane 0";
    let body = change("st.shared.u32 [%r8]", "st.shared.u32 [%r8+2]");
    fails(&body, (1, 2), "store of 4 bytes at 0x402: not aligned", first, "st.shared");
    // One element too many.
    let body = change("setp.lt.u32 %p2", "setp.le.u32 %p2");
    let kind = "load of 4 bytes at 0x500: byte 0 was never written";
    fails(&body, (1, 2), kind, first, "ld.shared");
    // Two of four bytes.
    let body = "	st.shared.b16 [%r8], 7;
	ld.shared.u32 %r9, [%r8];";
    fails(body, (1, 1), "load of 4 bytes at 0x400: byte 2 was never written", first, "ld.shared");
    // Without the first barrier the other warp has not stored yet.
    let body = change("\tbar.sync 	0;\n", "");
    let kind = "load of 4 bytes at 0x480: byte 0 was never written";
    fails(&body, (1, 2), kind, first, "ld.shared");
}

#[test]
fn the_next_block_starts_with_nothing() {
    // Only block 0 stores.
    let body = "	setp.eq.u32 %p2, %r4, 0;
	@%p2 st.shared.u32 [%r8], %r7;
	bar.sync 0;
	ld.shared.u32 %r9, [%r8];
	st.global.u32 [%d1], %r9;";
    assert_eq!(ok(body, 1, 2), (0..64).collect::<Vec<u32>>());
    let kind = "load of 4 bytes at 0x400: byte 0 was never written";
    fails(body, (2, 2), kind, "block 1, team 0, lane 0", "ld.shared");
    // Also without a barrier; and what block 0 did is no race with block 1.
    let body = body.replace("\tbar.sync 0;\n", "");
    fails(&body, (2, 2), kind, "block 1, team 0, lane 0", "ld.shared");
    assert!(run(&body.replace("@%p2 ", ""), 2, 2).is_ok());
}

#[test]
fn a_wrong_store_is_one_of_global_memory() {
    let body = "\tst.shared.u32 [%r8], 6;\n\tld.shared.u32 %r9, [%r8];\n\tst.global.u32 [%d1], %r9;";
    let module = Module::parse(&module(body)).unwrap_or_else(|error| panic!("{error}"));
    let wrong = |nth| {
        let mut memory = Memory::new(1 << 20).with_flipped(Some(nth));
        let address = memory.alloc(128).expect("memory");
        let grid = Grid { blocks: [1, 1, 1], threads: [32, 1, 1] };
        module
            .launch("t", grid, &address.to_le_bytes(), &mut memory)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let mut back = [0; 128];
        memory.download(address, &mut back).expect("a download");
        back.chunks(4).position(|word| word[0] != 6)
    };
    // A warp stores 32 times, to each memory.
    assert_eq!((wrong(1), wrong(32), wrong(33)), (Some(0), Some(31), None));
}

#[test]
fn lanes_of_a_store_do_not_clash() {
    let body = "\tst.shared.u32 [%r3], %r1;";
    let kind = "store of 4 bytes at 0x400: lane 0 stores other bytes there in the same instruction";
    fails(body, (1, 1), kind, "block 0, team 0, lane 1", "st.shared");
    assert!(run("\tst.shared.u32 [%r3], 1;", 1, 1).is_ok());
}

#[test]
fn warps_race_in_shared_memory_between_barriers() {
    let raced = |access: &str, address: u64, other: u32, did: &str| {
        format!("{access} of 4 bytes at {address:#x}: team {other} of the grid {did} it in the same launch")
    };
    let barrier = "\tbar.sync 0;\n";
    for (body, place, line, kind) in [
        // The next row's term, while others still add.
        (
            change("\tbar.sync 0;\n", "BARRIER"),
            "block 1, team 1, lane 0",
            "ld.shared",
            raced("load", 0x400, 2, "wrote"),
        ),
        // A store where another warp stored, and where another warp loaded.
        (
            "	@%p0 st.shared.u32 [%r8+128], 7;
	@%p0 ld.shared.u32 %r9, [%r8+128];
BARRIER	@!%p0 st.shared.u32 [%r8], 5;"
                .to_owned(),
            "block 0, team 1, lane 0",
            "@!%p0 st.shared",
            raced("store", 0x480, 0, "wrote"),
        ),
        (
            "	@!%p0 st.shared.u32 [%r8], 7;
	bar.sync 0;
	@%p0 ld.shared.u32 %r9, [%r8+128];
BARRIER	@!%p0 st.shared.u32 [%r8], 5;"
                .to_owned(),
            "block 0, team 1, lane 0",
            "st.shared.u32 [%r8], 5",
            raced("store", 0x480, 0, "read"),
        ),
        // The same where the storing warp has loaded too.
        (
            "	@!%p0 st.shared.u32 [%r8], 7;
	bar.sync 0;
	@%p0 ld.shared.u32 %r9, [%r8+128];
	@!%p0 ld.shared.u32 %r9, [%r8];
BARRIER	@!%p0 st.shared.u32 [%r8], 5;"
                .to_owned(),
            "block 0, team 1, lane 0",
            "st.shared.u32 [%r8], 5",
            raced("store", 0x480, 0, "read"),
        ),
    ] {
        assert!(body.contains("BARRIER"));
        ok(&body.replace("BARRIER", barrier), 2, 2);
        let blocks = if place.starts_with("block 1") { (2, 2) } else { (1, 2) };
        let mut body = body.replace("BARRIER", "");
        if blocks.0 == 2 {
            // Block 0 leaves after the first row.
            body = body.replacen("setp.lt.u32 %p3, %r15, 3;", "setp.le.u32 %p3, %r15, %r4;", 1);
        }
        fails(&body, blocks, &kind, place, line);
    }
}

#[test]
fn each_declaration_is_a_variable() {
    // The same text twice, after 4096 bytes: 20 bytes each, aligned to 16.
    let scope = "\t{ .shared .align 16 .b8 s[20]; mov.u32 %r9, s; }\n";
    let store = "\tst.global.u32 [%d1], %r9;";
    assert_eq!(ok(&format!("{scope}{store}"), 1, 1), [0x1400; 32]);
    assert_eq!(ok(&format!("{scope}{scope}{store}"), 1, 1), [0x1420; 32]);
    // Words align themselves; an address may have 64 bits.
    let body = "	.shared .b8 s;
	.shared .b64 w[2];
	mov.u64 %d2, w;
	cvt.u32.u64 %r9, %d2;
";
    assert_eq!(ok(&format!("{body}{store}"), 1, 1), [0x1408; 32]);
    // A scope's register hides a variable, and the other way round.
    let body = "	.shared .b32 x;
	{ .reg .b32 x; mov.u32 x, 7; mov.u32 %r9, x; { .shared .b32 x; mov.u32 %r10, x; } }
	add.s32 %r9, %r9, %r10;
";
    assert_eq!(ok(&format!("{body}{store}"), 1, 1), [0x1404 + 7; 32]);
}

#[test]
fn an_entry_point_has_48_kib() {
    let rest = 49152 - 4096;
    let parse = |body: String| Module::parse(&module(&body)).map(|_| ());
    assert_eq!(parse(format!("\t.shared .b8 s[{rest}];")), Ok(()));
    for body in [
        format!("\t.shared .b8 s[{}];", rest + 1),
        format!("\t.shared .b8 r[{}];\n\t{{ .shared .b8 s[2]; }}", rest - 1),
        format!("\t.shared .b8 r[{}];\n\t.shared .align 16 .b8 s[4];", rest - 15),
        "\t.shared .b64 s[2000000];".to_owned(),
    ] {
        let error = parse(body.clone()).unwrap_err();
        let line = FIRST + body.matches('\n').count();
        assert_eq!(error.to_string(), format!("line {line}, at `s`: more than 49152 bytes of shared memory"));
    }
}

#[test]
fn shared_memory_has_all_types_and_vectors() {
    // 16 bytes per lane.
    let at = "	mad.lo.s32 %r9, %r1, 16, %r3;
	cvt.u64.u32 %d2, %r9;
	st.shared.v4.b32 [%r9], {%r1, 0x81828384, 3, 0f3F800000};
";
    for (load, want) in [
        ("ld.shared.b32 %r10, [%r9+4]", 0x8182_8384),
        ("ld.shared.u8 %r10, [%r9+5]", 0x83),
        ("ld.shared.s16 %r10, [%r9+6]", 0xffff_8182),
        ("ld.shared.f32 %r10, [%d2+12]", 0x3f80_0000),
        ("ld.volatile.shared.u32 %r10, [%r9+8]", 3),
        ("ld.shared.v2.u32 {%r11, %r10}, [%r9+8]", 0x3f80_0000),
        ("ld.shared.v4.f32 {_, _, %r10, _}, [%r9]", 3),
        ("ld.shared.v2.b64 {%d3, %d4}, [%r9]; cvt.u32.u64 %r10, %d4", 3),
        ("st.shared.v2.f32 [%r9], {0f3F800000, 0f3F800001}; ld.shared.b32 %r10, [%r9+4]", 0x3f80_0001),
        ("st.shared.u64 [%d2], 25769803776; ld.shared.b32 %r10, [%d2+4]", 6),
        ("ld.shared.u64 %d3, [%d2+8]; cvt.u32.u64 %r10, %d3", 3),
        ("st.volatile.shared.f64 [%r9+8], 0d3FF0000000000000; ld.shared.b32 %r10, [%r9+12]", 0x3ff0_0000),
        ("st.shared.b8 [%r9+1], 1; ld.shared.b16 %r10, [%r9]; sub.s32 %r10, %r10, %r1", 0x100),
        ("{ .shared .b32 s[2]; st.shared.b32 [s+4], 9; ld.shared.b32 %r10, [s+4]; }", 9),
    ] {
        let body = format!("{at}\t{load};\n\tst.global.u32 [%d1], %r10;");
        assert_eq!(ok(&body, 1, 1), [want; 32], "{load}");
    }
}

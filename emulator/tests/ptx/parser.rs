//! Texts that are accepted, and texts that are not.

use super::device::PTX;
use super::lanes::{FIRST, module, warp};
use lockstep_core::op::{OPS, OpInfo};
use lockstep_emulator::fault::FaultKind;
use lockstep_emulator::launch::Program;
use lockstep_emulator::ptx::Module;

#[test]
fn the_shipped_text_is_understood_whole() {
    let module = Module::parse(PTX).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(module.unimplemented(), []);
    let names: Vec<&str> = OPS.iter().flat_map(OpInfo::all_entries).collect();
    let mut entries = module.entries();
    assert_eq!(entries.len(), names.len());
    entries.retain(|entry| !names.contains(&&entry[..]));
    assert!(entries.is_empty(), "{entries:?}");
    for entry in module.entries() {
        // teams: u32, 24 pointers and 64 words.
        let parameters = module.parameters(&entry).unwrap_or_default();
        assert_eq!(parameters.len(), 1 + 24 + 64, "{entry}");
        assert!(parameters[1..].iter().enumerate().all(|(i, p)| (p.offset, p.size) == (8 + 8 * i as u32, 8)));
    }
}

/// Returns line and token of a body's error.
fn error(body: &str) -> (u32, String, String) {
    match Module::parse(&module(body)) {
        Ok(_) => panic!("read: {body}"),
        Err(error) => (error.line, error.token, error.what),
    }
}

#[test]
fn malformed_bodies_name_line_and_token() {
    for (body, line, token, what) in [
        ("\tadd.s32 %r3, %r99, %r0;", 0, "%r99", "%r has 12 registers"),
        ("\tadd.s32 %r3, %x1, %r0;", 0, "%x1", "nothing declares"),
        ("\tadd.s32 %r3, %r0", 1, "ret", "expected `;`"),
        ("\tadd.s32 %r3, %r0;", 0, "add.s32", "operand 3 is missing"),
        ("\tadd.s32 %r3, %r0, %r1, %r2;", 0, "add.s32", "1 operands too many"),
        ("\tadd.s32 %r3, %d0, %r1;", 0, "add.s32", "register of 32 bits"),
        ("\tadd.s64 %r3, %d0, %d1;", 0, "add.s64", "register of 64 bits"),
        ("\tadd.rn.f32 %r3, %r0, 1;", 0, "add.rn.f32", "constant of another type"),
        (
            "\tadd.s32 %r3, %r0, 0f3F800000;\n\tadd.s32 %r3, %r0, 4294967296;",
            1,
            "add.s32",
            "more than 32 bits",
        ),
        ("\tmov.b64 %d3, 0f3F800000;", 0, "mov.b64", "constant of another type"),
        ("\tmov.b32 %r3, 0f3F80;", 0, "0f3F80", "expected a constant"),
        ("\tmov.b32 %r3, 12x;", 0, "12x", "expected a constant"),
        ("\n\n\tbra nowhere;", 2, "nowhere", "is no label"),
        ("\tbrx.idx %r0, $L_t;", 0, "$L_t", "is no branch table"),
        ("$L_a:\n$L_a:", 1, "$L_a", "a second label"),
        ("\t@%r1 bra $L;\n$L:", 0, "%r1", "is no predicate"),
        ("\tld.param.u64 %d3, [p_none];", 0, "ld.param.u64", "is no parameter"),
        ("\tld.param.u64 %d3, [p_in+4];", 0, "ld.param.u64", "of a parameter of 8 bytes"),
        ("\tld.global.b32 %r3, %d8;", 0, "ld.global.b32", "expected an address"),
        ("\tld.global.b32 %r3, [%r8];", 0, "ld.global.b32", "register of 64 bits"),
        ("\tmov.u32 %tid.x, %r3;", 0, "mov.u32", "a special register is written"),
        ("\tst.global.b32 [%d9], %h0;", 0, "st.global.b32", "of 32 or more bits"),
        ("\t.reg .b32 %r<4>;", 0, "%r", "declared twice"),
        ("\t.reg .b32 big<4000000000>;", 0, "big", "more than"),
        ("\t.reg .f16 x;", 0, ".f16", "not implemented"),
        ("\t.local .align 4 .b8 s[16];", 0, ".local", "not implemented"),
        ("\t.shared .align 3 .b8 s[16];", 0, "3", "a power of two"),
        ("\t.shared .b8 s[0];", 0, "0", "the length of an array"),
        ("\t.shared .pred s;", 0, ".pred", "a type of a variable"),
        ("\t.shared .b8 s[4], t[4];", 0, ",", "expected `;`"),
        ("\t.shared .b8 s;\n\t.reg .b32 s;", 1, "s", "declared twice"),
        ("\t{ .shared .b8 s; }\n\tmov.u32 %r3, s;", 1, "mov.u32", "expected a register"),
        ("\t.shared .b8 s;\n\tadd.u32 %r3, s, 4;", 1, "add.u32", "expected a register"),
        ("\t.shared .b8 s;\n\tmov.f32 %r3, s;", 1, "mov.f32", "expected a register"),
        ("\t.shared .b8 s;\n\tmov.u16 %h3, s;", 1, "mov.u16", "expected a register"),
        ("\t.shared .b32 s;\n\tld.global.b32 %r3, [s];", 1, "ld.global.b32", "expected a register"),
        ("\t.shared .b32 s;\n\t@s mov.b32 %r3, 1;", 1, "s", "is no predicate"),
        ("\tld.shared.b32 %r3, [%h0];", 0, "ld.shared.b32", "register of 64 bits"),
        ("\tbar.sync;", 0, "bar.sync", "operand 1 is missing"),
        ("\tbar.sync 0, 32, 1;", 0, "bar.sync", "1 operands too many"),
        ("\t.pragma \"other\";", 0, "other", "not implemented"),
        ("\tAdd.s32 %r3, %r0, %r1;", 0, "Add.s32", "expected an instruction"),
        ("\tmov.b32 %r3, {{%h0}, %h1};", 0, "{", "expected an operand"),
        ("\té;", 0, "é", "expected an instruction"),
        ("\t{ .reg .b32 tmp; }\n\tmov.b32 tmp, 1;", 1, "mov.b32", "expected a register"),
    ] {
        let (at, found, says) = error(body);
        assert_eq!((at, &found[..]), (FIRST + line, token), "{body}: {says}");
        assert!(says.contains(what), "{body}: {says}");
    }
}

#[test]
fn malformed_modules_name_line_and_token() {
    let good = module("");
    for (old, new, line, token) in [
        (".version 7.0", ".version seven", 1, "seven"),
        (".version 7.0", ".version 99.0", 1, "99.0"),
        (".target sm_80", ".target sm_20", 2, "sm_20"),
        (".target sm_80", ".target sm_80, debug", 2, ","),
        (".address_size 64", ".address_size 32", 3, "32"),
        (".address_size 64", "", 4, ".entry"),
        (".visible .entry t", ".visible .func t", 4, ".func"),
        (".visible .entry t", ".shared .b32 s;", 4, ".shared"),
        (".param .u64 p_in", ".param .f16 p_in", 5, ".f16"),
        (".param .u64 p_in", ".param .b8 p_in[0]", 5, "0"),
        (".param .u64 p_in", ".param .align 3 .b8 p_in[8]", 5, "3"),
        (".param .u64 p_in", ".param .b64 p_in[99999999999]", 5, "99999999999"),
        (".param .u64 p_out", ".param .u64 p_in", 7, ")"),
        ("\n{", ".unknown 3\n{", 7, ".unknown"),
        ("\n}\n", "\n", 34, "end of the text"),
    ] {
        assert!(good.contains(old), "{old}");
        match Module::parse(&good.replacen(old, new, 1)) {
            Ok(_) => panic!("read: {new}"),
            Err(error) => assert_eq!((error.line, &error.token[..]), (line, token), "{new}: {error}"),
        }
    }
    for text in ["", "//", ".version 7.0", "/*", "\"", ".entry", ".entry x(", ".version 7.0\n.entry x() {"] {
        assert!(Module::parse(text).is_err(), "{text}");
    }
    let error = Module::parse(&good.replacen("sm_80", "sm_20", 1)).unwrap_err().to_string();
    assert_eq!(error, "line 2, at `sm_20`: expected sm_70 or later");
}

#[test]
fn every_cut_of_a_text_is_an_error_and_no_panic() {
    let text = module(
        "\t{ .reg .b32 tmp; mov.b64 {tmp, %r3}, %d0; }
	{ .shared .align 8 .b8 s[8]; mov.u32 %r4, s; }
	st.shared.b32 [%r4+4], 1;
	bar.sync 0, 32;
	@!%p0 st.global.v2.b32 [%d9+-8], {%r3, 0x1F};",
    );
    for end in (0..text.len() - 2).filter(|end| text.is_char_boundary(*end)) {
        assert!(Module::parse(&text[..end]).is_err(), "{}", &text[..end]);
    }
    // Each byte is replaced by others: accepted or refused, never a panic.
    for at in 0..text.len() {
        for with in ["{", "]", "-", "9", "%", ".", "\"", "<", "\u{e9}"] {
            let _ = Module::parse(&format!("{}{with}{}", &text[..at], &text[at + 1..]));
        }
    }
}

#[test]
fn what_is_not_implemented_faults_where_it_stands() {
    for instruction in [
        "add.f32 %r3, %r0, %r1",
        "add.rz.f32 %r3, %r0, %r1",
        "add.rn.ftz.f32 %r3, %r0, %r1",
        "fma.rn.sat.f32 %r3, %r0, %r1, %r2",
        "mul.f64 %d3, %d0, %d1",
        "div.approx.f32 %r3, %r0, %r1",
        "div.full.f32 %r3, %r0, %r1",
        "sqrt.approx.f32 %r3, %r0",
        "ex2.approx.f32 %r3, %r0",
        "max.ftz.f32 %r3, %r0, %r1",
        "setp.lt.ftz.f32 %p3, %r0, %r1",
        "setp.lt.and.s32 %p3, %r0, %r1, %p0",
        "setp.lo.s32 %p3, %r0, %r1",
        "setp.lt.b32 %p3, %r0, %r1",
        "mad.lo.cc.s32 %r3, %r0, %r1, %r2",
        "redux.sync.add.f32 %r3, %r0, -1",
        "add.sat.s32 %r3, %r0, %r1",
        "cvt.rz.f32.f64 %r3, %d0",
        "cvt.f32.f64 %r3, %d0",
        "cvt.rn.f16.f32 %h3, %r0",
        "cvt.u32.f32 %r3, %r0",
        "ld.b32 %r3, [%d8]",
        "ld.shared.cg.b32 %r3, [%d8]",
        "ld.shared.v8.b32 {%r3, %r4}, [%d8]",
        "ld.volatile.global.b32 %r3, [%d8]",
        "ld.global.v8.b32 {%r3, %r4}, [%d8]",
        "st.local.b32 [%d8], %r3",
        "atom.global.add.u32 %r3, [%d8], 1",
        "red.global.add.u32 [%d8], 1",
        "shfl.bfly.b32 %r3, %r0, 1, 31",
        "activemask.b32 %r3",
        "match.any.sync.b32 %r3, %r0, -1",
        "bar.sync 1",
        "bar.sync %r0",
        "bar.sync 0, %r0",
        "bar.sync 0, 2048",
        "bar.arrive 0, 64",
        "bar.red.popc.u32 %r3, 0, %p0",
        "barrier.cluster.arrive",
        "cvta.shared.u64 %d3, %d0",
        "cvta.to.shared.u64 %d3, %d0",
        "atom.shared.add.u32 %r3, [%d8], 1",
        "membar.gl",
        "call.uni foo",
        "nanosleep.u32 5",
    ] {
        let text = module(&format!("\t{instruction};"));
        let module = Module::parse(&text).unwrap_or_else(|error| panic!("{instruction}: {error}"));
        let found = module.unimplemented();
        assert_eq!(found.len(), 1, "{instruction}");
        assert_eq!((&found[0].entry[..], &found[0].instruction.at[..]), ("t", &format!("line {FIRST}")[..]));
        let fault = warp(&format!("\t{instruction};"), &[[0; 3]; 32]).unwrap_err();
        let opcode = instruction.split(' ').next().unwrap_or_default();
        assert_eq!(fault.kind, FaultKind::Unimplemented(opcode.into()));
        assert_eq!(fault.instruction.text, instruction);
    }
    // On a path that no lane takes, nothing happens.
    assert!(warp("\tbra $L_end;\n\tadd.f32 %r3, %r0, %r1;\n$L_end:", &[[0; 3]; 32]).is_ok());
}

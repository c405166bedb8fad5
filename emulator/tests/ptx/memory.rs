//! Loads and stores: widths, signs, vectors, parameters.

use super::lanes::{WARP, result, table, warp};
use lockstep_emulator::fault::FaultKind;
use lockstep_emulator::launch::{Parameter, Program};
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;

#[test]
fn loads_extend_to_their_register() {
    let word = 0x8182_8384_8586_8788;
    for (instruction, want) in [
        ("ld.global.b8 %h3, [%d8]", 0x88),
        ("ld.global.u8 %r3, [%d8+1]", 0x87),
        ("ld.global.s8 %r3, [%d8]", 0xffff_ff88),
        ("ld.global.s8 %d3, [%d8]", 0xffff_ffff_ffff_ff88),
        ("ld.global.b16 %h3, [%d8+2]", 0x8586),
        ("ld.global.s16 %r3, [%d8+6]", 0xffff_8182),
        ("ld.global.b32 %r3, [%d8+4]", 0x8182_8384),
        ("ld.global.s32 %d3, [%d8+4]", 0xffff_ffff_8182_8384),
        ("ld.global.u32 %d3, [%d8+4]", 0x8182_8384),
        ("ld.global.nc.b64 %d3, [%d8]", word),
        ("ld.global.ca.f32 %r3, [%d8]", 0x8586_8788),
    ] {
        table(instruction, &[([word, 0, 0], want)]);
    }
}

#[test]
fn vectors_are_loaded_and_stored_whole() {
    // Words of a lane begin at multiples of 24 bytes: lane 0 and 2 are aligned to 16.
    let vector = |body: &str| format!("\tsetp.eq.b32 %p3, %r8, 0;\n\t@!%p3 ret;\n{body}");
    let body = vector(&format!("\tld.global.nc.v4.b32 {{%r3, %r4, %r5, _}}, [%d8];\n{}", result("%r5")));
    assert_eq!(warp(&body, &[[1 << 32 | 2, 3 << 32 | 4, 5]]).map(|got| got[0]), Ok(4));
    let body = vector(&format!("\tld.global.v2.f64 {{%d3, %d4}}, [%d8];\n{}", result("%d4")));
    assert_eq!(warp(&body, &[[7, 8, 9]]).map(|got| got[0]), Ok(8));
    let body = vector(&format!("\tld.global.v2.s32 {{%d3, %d4}}, [%d8];\n{}", result("%d4")));
    assert_eq!(warp(&body, &[[0xffff_fffe_0000_0001, 8, 9]]).map(|got| got[0]), Ok(u64::MAX - 1));
    let body = body.replace("{%d3, %d4}", "{%r3, %d4}");
    assert!(warp(&body, &[[0; 3]]).is_err_and(|fault| matches!(fault.kind, FaultKind::Unimplemented(_))));
    let body = vector("\tst.global.v2.b32 [%d9], {%r1, 9};");
    assert_eq!(warp(&body, &[[7, 8, 9]]).map(|got| got[0]), Ok(9 << 32 | 8));
    let body = vector("\tst.global.v4.b16 [%d9], {%h0, %h1, %h2, %h0};");
    assert_eq!(warp(&body, &[[1, 2, 3]]).map(|got| got[0]), Ok(0x0001_0003_0002_0001));
    let fault = warp(&vector("\tst.global.v2.b64 [%d9+8], {%d0, %d1};"), &[[0; 3]]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Misaligned { size: 16, .. }), "{fault}");
}

#[test]
fn stores_take_the_low_bits() {
    for (instruction, want) in [
        ("st.global.b8 [%d9], %r0", 0x88),
        ("st.global.b16 [%d9+2], %h0", 0x8788_0000),
        ("st.global.b32 [%d9], %d0", 0x8586_8788),
        ("st.global.u32 [%d9], 7", 7),
    ] {
        assert_eq!(
            warp(&format!("\t{instruction};"), &[[0x8182_8384_8586_8788, 0, 0]]).map(|got| got[0]),
            Ok(want)
        );
    }
}

#[test]
fn parameters_lie_where_their_types_say() {
    let text = ".version 7.0
.target sm_80
.address_size 64
.visible .entry k(
	.param .u8 a,
	.param .u32 b,
	.param .align 16 .b8 c[20],
	.param .u64 .ptr .global .align 4 d
)
.maxntid 64, 2, 1
{
	.reg .b32 %r<4>;
	.reg .b64 %d<4>;
	ld.param.u8 %r0, [a];
	ld.param.b32 %r1, [b];
	ld.param.s8 %r2, [c+19];
	ld.param.u64 %d0, [d];
	st.global.b32 [%d0], %r0;
	st.global.b32 [%d0+4], %r1;
	st.global.b32 [%d0+8], %r2;
	ret;
}
";
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let place = |offset, size| Parameter { offset, size };
    assert_eq!(module.parameters("k"), Some(vec![place(0, 1), place(4, 4), place(16, 20), place(40, 8)]));
    assert_eq!(module.parameters("none"), None);
    let mut memory = Memory::new(1 << 16);
    let address = memory.alloc(12).expect("memory");
    let mut params = vec![0; 48];
    params[0] = 200;
    params[4..8].copy_from_slice(&77_u32.to_le_bytes());
    params[35] = 0xfe;
    params[40..].copy_from_slice(&address.to_le_bytes());
    module.launch("k", WARP, &params, &mut memory).unwrap_or_else(|fault| panic!("{fault}"));
    let mut back = [0; 12];
    memory.download(address, &mut back).expect("a download");
    assert_eq!(back, [200, 0, 0, 0, 77, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
}

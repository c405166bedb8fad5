//! Special registers, blocks of several warps, and launches that an entry point refuses.

use lockstep_emulator::fault::FaultKind;
use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::Memory;
use lockstep_emulator::ptx::Module;

fn text(register: &str, directive: &str) -> String {
    format!(
        ".version 7.0
.target sm_80
.address_size 64
.visible .entry k(
	.param .u64 out
)
{directive}
{{
	.reg .b32 %r<12>;
	.reg .b64 %d<4>;
	ld.param.u64 %d0, [out];
	mov.u32 %r0, %ctaid.z;
	mov.u32 %r1, %nctaid.y;
	mov.u32 %r2, %ctaid.y;
	mad.lo.s32 %r0, %r0, %r1, %r2;
	mov.u32 %r1, %nctaid.x;
	mov.u32 %r2, %ctaid.x;
	mad.lo.s32 %r0, %r0, %r1, %r2;
	mov.u32 %r1, %ntid.z;
	mov.u32 %r2, %tid.z;
	mad.lo.s32 %r0, %r0, %r1, %r2;
	mov.u32 %r1, %ntid.y;
	mov.u32 %r2, %tid.y;
	mad.lo.s32 %r0, %r0, %r1, %r2;
	mov.u32 %r1, %ntid.x;
	mov.u32 %r2, %tid.x;
	mad.lo.s32 %r0, %r0, %r1, %r2;
	mul.wide.u32 %d1, %r0, 4;
	add.s64 %d0, %d0, %d1;
	mov.u32 %r3, {register};
	st.global.b32 [%d0], %r3;
	ret;
}}
"
    )
}

fn run(register: &str, directive: &str, grid: Grid) -> Result<Vec<u32>, FaultKind> {
    let module = Module::parse(&text(register, directive)).unwrap_or_else(|error| panic!("{error}"));
    let threads = grid.blocks.iter().chain(&grid.threads).product::<u32>();
    let mut memory = Memory::new(1 << 20);
    let out = memory.alloc(4 * u64::from(threads.clamp(1, 1 << 16))).expect("memory");
    module.launch("k", grid, &out.to_le_bytes(), &mut memory).map_err(|fault| fault.kind)?;
    let mut back = vec![0; 4 * threads as usize];
    memory.download(out, &mut back).expect("a download");
    Ok(back.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes"))).collect())
}

#[test]
fn threads_are_numbered_x_first() {
    let grid = Grid { blocks: [2, 3, 2], threads: [5, 4, 3] };
    let index = |t: usize| (t % 5, t / 5 % 4, t / 20 % 3, t / 60 % 2, t / 120 % 3, t / 360);
    type Want = fn((usize, usize, usize, usize, usize, usize), usize) -> usize;
    let wanted: [(&str, Want); 10] = [
        ("%tid.x", |i, _| i.0),
        ("%tid.y", |i, _| i.1),
        ("%tid.z", |i, _| i.2),
        ("%ctaid.x", |i, _| i.3),
        ("%ctaid.y", |i, _| i.4),
        ("%ctaid.z", |i, _| i.5),
        ("%laneid", |_, t| t % 60 % 32),
        ("%lanemask_lt", |_, t| (1 << (t % 60 % 32)) - 1),
        ("%lanemask_ge", |_, t| 0xffff_ffff & !((1 << (t % 60 % 32)) - 1)),
        ("%nctaid.z", |_, _| 2),
    ];
    for (register, want) in wanted {
        let got = run(register, "", grid).unwrap_or_else(|kind| panic!("{kind}"));
        assert!(
            got.iter().enumerate().all(|(t, got)| *got as usize == want(index(t), t)),
            "{register}: {got:?}"
        );
    }
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let fails = |directive: &str, blocks: [u32; 3], threads: [u32; 3]| match run(
        "%tid.x",
        directive,
        Grid { blocks, threads },
    ) {
        Err(FaultKind::Launch(what)) => what,
        other => panic!("{directive} {threads:?}: {other:?}"),
    };
    assert!(fails(".reqntid 32, 2", [1, 1, 1], [64, 1, 1]).contains(".reqntid demands [32, 2, 1]"));
    assert!(fails(".maxntid 64", [1, 1, 1], [32, 3, 1]).contains(".maxntid allows [64, 1, 1]"));
    assert!(fails("", [1, 1, 1], [1025, 1, 1]).contains("1025"));
    assert!(fails("", [1, 1, 1], [32, 33, 1]).contains("up to 1024"));
    assert!(fails("", [0, 1, 1], [32, 1, 1]).contains("blocks"));
    assert!(fails("", [1, 65536, 1], [32, 1, 1]).contains("blocks"));
    assert!(
        run("%tid.x", ".reqntid 32, 2\n.minnctapersm 4", Grid { blocks: [1, 1, 1], threads: [32, 2, 1] })
            .is_ok()
    );
    let module = Module::parse(&text("%tid.x", "")).unwrap_or_else(|error| panic!("{error}"));
    let grid = Grid { blocks: [1, 1, 1], threads: [32, 1, 1] };
    let launch =
        |entry, bytes: &[u8]| module.launch(entry, grid, bytes, &mut Memory::new(1)).unwrap_err().to_string();
    assert!(launch("k", &[0; 4]).contains("4 bytes of parameters; it has 8"));
    assert!(launch("other", &[0; 8]).contains("no such entry point"));
}

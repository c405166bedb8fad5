//! Faults planted into a kernel: each is found, and the report gives its place.

use super::lanes::WARP;
use lockstep_emulator::fault::{Access, Fault, FaultKind};
use lockstep_emulator::launch::{Grid, Program};
use lockstep_emulator::memory::{LastStore, Memory};
use lockstep_emulator::ptx::Module;

/// `out[i] = 3 · x[i] + y[i]` for i < n, one warp per 32 elements, and their sum over the warp in
/// `sum[warp]`.
const AXPY: &str = ".version 7.0
.target sm_80
.address_size 64
.visible .entry axpy(
	.param .u64 x,
	.param .u64 y,
	.param .u64 out,
	.param .u64 sum,
	.param .u32 n
)
{
	.reg .pred %p<3>;
	.reg .b32 %r<16>;
	.reg .b64 %d<12>;
	ld.param.u64 %d0, [x];
	ld.param.u64 %d1, [y];
	ld.param.u64 %d2, [out];
	ld.param.u64 %d3, [sum];
	ld.param.u32 %r0, [n];
	mov.u32 %r1, %ctaid.x;
	shl.b32 %r2, %r1, 5;
	mov.u32 %r3, %tid.x;
	add.s32 %r4, %r2, %r3;
	mul.wide.u32 %d4, %r4, 4;
	add.s64 %d5, %d0, %d4;
	add.s64 %d6, %d1, %d4;
	add.s64 %d7, %d2, %d4;
	mov.b32 %r7, 0f00000000;
	setp.ge.u32 %p0, %r4, %r0;
	@%p0 bra $L_skip;
	ld.global.b32 %r5, [%d5];
	ld.global.b32 %r6, [%d6];
	mul.rn.f32 %r7, %r5, 0f40400000;
	add.rn.f32 %r7, %r7, %r6;
	st.global.b32 [%d7], %r7;
$L_skip:
	shfl.sync.bfly.b32 %r8, %r7, 16, 31, -1;
	add.rn.f32 %r7, %r7, %r8;
	setp.ne.b32 %p1, %r3, 0;
	@%p1 ret;
	mul.wide.u32 %d8, %r1, 4;
	add.s64 %d9, %d3, %d8;
	st.global.b32 [%d9], %r7;
	ret;
}
";

/// Number of elements: the second warp has five.
const N: u32 = 37;

struct Run {
    result: Result<(), Box<Fault>>,
    memory: Memory,
    /// x, y, out, sum.
    arrays: [u64; 4],
}

impl Run {
    fn out(&mut self) -> Vec<u32> {
        let mut bytes = vec![0; 4 * N as usize];
        self.memory.download(self.arrays[2], &mut bytes).expect("a download");
        bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes"))).collect()
    }

    fn fault(self) -> (Fault, [u64; 4]) {
        (*self.result.expect_err("a fault"), self.arrays)
    }
}

/// Runs the kernel with each `(old, new)` of its text replaced; `x_written` elements of x are written.
fn run(changes: &[(&str, &str)], x_written: u32) -> Run {
    let mut text = AXPY.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new(1 << 20);
    memory.trace_stores();
    let arrays = [4 * N, 4 * N, 4 * N, 8].map(|bytes| memory.alloc(u64::from(bytes)).expect("memory"));
    let floats =
        |n: u32, f: fn(f32) -> f32| (0..n).flat_map(|i| f(i as f32).to_le_bytes()).collect::<Vec<u8>>();
    memory.upload(arrays[0], &floats(x_written, |i| 1.1 + i * 0.1)).expect("an upload");
    memory.upload(arrays[1], &floats(N, |i| -3.3 - i * 0.2)).expect("an upload");
    let mut params: Vec<u8> = arrays.iter().flat_map(|address| address.to_le_bytes()).collect();
    params.extend(N.to_le_bytes());
    let grid = Grid { blocks: [2, 1, 1], ..WARP };
    let result = module.launch("axpy", grid, &params, &mut memory).map(|_| ());
    Run { result, memory, arrays }
}

/// Returns the first line of the kernel that contains a text.
fn line(text: &str) -> String {
    let at = AXPY.find(text).expect("a line of the kernel");
    format!("line {}", 1 + AXPY[..at].matches('\n').count())
}

/// Asserts the place of a fault.
fn at(fault: &Fault, line: String, block: u32, lane: Option<u32>) {
    assert_eq!(fault.entry, "axpy");
    assert_eq!((fault.place.block, fault.place.team, fault.place.lane), (block, 0, lane), "{fault}");
    assert_eq!(fault.instruction.at, line, "{fault}");
}

#[test]
fn without_a_fault_it_runs() {
    let mut run = run(&[], N);
    assert_eq!(run.result, Ok(()));
    let want: Vec<u32> =
        (0..N).map(|i| ((1.1 + i as f32 * 0.1) * 3.0 + (-3.3 - i as f32 * 0.2)).to_bits()).collect();
    assert_eq!(run.out(), want);
}

#[test]
fn a_store_one_element_too_far() {
    let (fault, arrays) = run(&[("setp.ge.u32 %p0", "setp.gt.u32 %p0")], N).fault();
    // The load comes first: element 37 of x is past its end.
    at(&fault, line("ld.global.b32 %r5"), 1, Some(5));
    let past = arrays[0] + 4 * u64::from(N);
    assert!(matches!(
        fault.kind,
        FaultKind::OutOfBounds { access: Access::Load, address, size: 4, .. } if address == past
    ));

    let (fault, arrays) = run(&[("st.global.b32 [%d7], %r7", "st.global.b32 [%d7+4], %r7")], N).fault();
    at(&fault, line("st.global.b32 [%d7]"), 1, Some(4));
    let FaultKind::OutOfBounds { access: Access::Store, address, size: 4, nearest } = &fault.kind else {
        panic!("{fault}")
    };
    assert_eq!(*address, arrays[2] + 4 * u64::from(N));
    assert!(nearest.contains("4 bytes past the end of the allocation of 148 bytes"), "{nearest}");
    let report = fault.to_string();
    assert!(
        report.contains("`axpy`, block 1, team 0, lane 4, instruction line 35 `st.global.b32 [%d7+4], %r7`"),
        "{report}"
    );
}

#[test]
fn a_shuffle_under_a_branch() {
    // The label moves behind the shuffle: lanes beyond n skip it.
    let moved = [("$L_skip:\n", ""), ("	add.rn.f32 %r7, %r7, %r8;\n", "$L_skip:\n")];
    let (fault, _) = run(&moved, N).fault();
    at(&fault, "line 36".into(), 1, None);
    let FaultKind::Missing { missing, why } = &fault.kind else { panic!("{fault}") };
    assert_eq!((*missing, &why[..]), (0xffff_ffe0, "its mask is 0xffffffff, and only lanes 0x1f ever come"));
    assert!(fault.instruction.text.starts_with("shfl.sync.bfly.b32"));
    // Lanes that have ended are also missing.
    let (fault, _) = run(&[("@%p0 bra $L_skip;", "@%p0 ret;")], N).fault();
    assert!(matches!(fault.kind, FaultKind::Missing { missing: 0xffff_ffe0, .. }), "{fault}");
}

#[test]
fn a_load_of_what_nobody_wrote() {
    let (fault, arrays) = run(&[], 35).fault();
    at(&fault, line("ld.global.b32 %r5"), 1, Some(3));
    assert_eq!(fault.kind, FaultKind::Unwritten { address: arrays[0] + 4 * 35, size: 4, byte: 0 });
}

#[test]
fn a_register_that_nobody_wrote() {
    let (fault, _) = run(&[("	mov.b32 %r7, 0f00000000;\n", "")], N).fault();
    // Lanes beyond n contribute nothing to the shuffle.
    assert_eq!(fault.kind, FaultKind::UnwrittenRegister("%r7".into()));
    at(&fault, "line 36".into(), 1, Some(5));
}

#[test]
fn two_warps_that_store_to_one_address() {
    let (fault, arrays) = run(&[("add.s64 %d9, %d3, %d8", "mov.b64 %d9, %d3")], N).fault();
    at(&fault, line("st.global.b32 [%d9]"), 1, Some(0));
    let want = FaultKind::Race { access: Access::Store, address: arrays[3], size: 4, other: 0, did: "wrote" };
    assert_eq!(fault.kind, want);
}

#[test]
fn two_lanes_that_store_different_bytes() {
    let (fault, arrays) = run(&[("@%p1 ret;", "setp.gt.u32 %p1, %r3, 1;\n\t@%p1 ret;")], N).fault();
    let moved = AXPY.find("st.global.b32 [%d9]").expect("a store");
    at(&fault, format!("line {}", 2 + AXPY[..moved].matches('\n').count()), 0, Some(1));
    assert_eq!(fault.kind, FaultKind::Clash { address: arrays[3], size: 4, other: 0 });
}

#[test]
fn an_address_that_is_not_aligned() {
    let (fault, arrays) = run(&[("ld.global.b32 %r6, [%d6]", "ld.global.b32 %r6, [%d6+2]")], N).fault();
    at(&fault, line("ld.global.b32 %r6"), 0, Some(0));
    assert_eq!(fault.kind, FaultKind::Misaligned { access: Access::Load, address: arrays[1] + 2, size: 4 });
}

#[test]
fn a_product_and_sum_that_were_contracted() {
    let fused = [
        ("	mul.rn.f32 %r7, %r5, 0f40400000;\n", ""),
        ("add.rn.f32 %r7, %r7, %r6", "fma.rn.f32 %r7, %r5, 0f40400000, %r6"),
    ];
    let (mut good, mut bad) = (run(&[], N), run(&fused, N));
    assert_eq!((&good.result, &bad.result), (&Ok(()), &Ok(())), "no fault: only bits differ");
    let (want, got) = (good.out(), bad.out());
    let first = want.iter().zip(&got).position(|(want, got)| want != got).expect("a bit differs");
    // From the element to the kernel, the instruction and the lane that stored it.
    let address = bad.arrays[2] + 4 * first as u64;
    let LastStore { entry, place, instruction } = bad.memory.last_store(address).expect("a store");
    assert_eq!((&entry[..], place.block, place.lane), ("axpy", first as u32 / 32, Some(first as u32 % 32)));
    assert_eq!((&instruction.at[..], &instruction.text[..]), ("line 34", "st.global.b32 [%d7], %r7"));
    // No kernel wrote what the host wrote.
    assert_eq!(bad.memory.last_store(bad.arrays[0]), None);
}

#[test]
fn every_planted_modifier_is_named() {
    for (old, new) in
        [("mul.rn.f32", "mul.f32"), ("mul.rn.f32", "mul.rn.ftz.f32"), ("add.rn.f32", "add.rz.f32")]
    {
        let (fault, _) = run(&[(old, new)], N).fault();
        assert_eq!(fault.kind, FaultKind::Unimplemented(new.into()));
        at(&fault, line(old), 0, None);
    }
}

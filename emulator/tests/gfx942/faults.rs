//! Planted faults: each report names kernel, workgroup, lane, instruction and address.

use lockstep_emulator::fault::{Access, Fault, FaultKind};
use lockstep_emulator::gfx942::Module;
use lockstep_emulator::launch::{Grid, Program as _};
use lockstep_emulator::memory::Memory;

// Assembled by llvm-mc-19; s[8:9] is the output's address, s[10:11] the input's, v1 four times the lane.
const LOW_HALF: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xbeff0080, // s_mov_b32 exec_hi, 0
    0xbf800004, // s_nop 4
    0xdc508000, 0x020a0001, // global_load_dword v2, v1, s[10:11]
    0x2a0600a0, // v_xor_b32_e32 v3, 32, v0
    0x24060682, // v_lshlrev_b32_e32 v3, 2, v3
    0xbf8c0f70, // s_waitcnt vmcnt(0)
    0xd87e0000, 0x04000203, // ds_bpermute_b32 v4, v3, v2
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xdc708000, 0x00080401, // global_store_dword v1, v4, s[8:9]
    0xbf810000, // s_endpgm
];
const OFF_BY_ONE: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xdc508000, 0x020a0001, // global_load_dword v2, v1, s[10:11]
    0xbf8c0f70, // s_waitcnt vmcnt(0)
    0xdc708004, 0x00080201, // global_store_dword v1, v2, s[8:9] offset:4
    0xbf810000, // s_endpgm
];
const NO_WAIT: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xdc508000, 0x020a0001, // global_load_dword v2, v1, s[10:11]
    0x68040481, // v_add_u32_e32 v2, 1, v2
    0xdc708000, 0x00080201, // global_store_dword v1, v2, s[8:9]
    0xbf810000, // s_endpgm
];
const NO_SCALAR_WAIT: &[u32] = &[
    0xc0060200, 0x00000000, // s_load_dwordx2 s[8:9], s[0:1], 0x0
    0xc0060280, 0x00000008, // s_load_dwordx2 s[10:11], s[0:1], 0x8
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc17f, // s_waitcnt lgkmcnt(1)
    0xdc708000, 0x00080001, // global_store_dword v1, v0, s[8:9]
    0xbf810000, // s_endpgm
];
const UNWRITTEN: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xdc508000, 0x02080001, // global_load_dword v2, v1, s[8:9]
    0xbf8c0f70, // s_waitcnt vmcnt(0)
    0xdc708000, 0x00080201, // global_store_dword v1, v2, s[8:9]
    0xbf810000, // s_endpgm
];
const UNWRITTEN_LANES: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0x7d9800a8, // v_cmp_gt_u32_e32 vcc, 40, v0
    0xbe8c206a, // s_and_saveexec_b64 s[12:13], vcc
    0x7e040287, // v_mov_b32_e32 v2, 7
    0xbefe010c, // s_mov_b64 exec, s[12:13]
    0xbf800004, // s_nop 4
    0x68060481, // v_add_u32_e32 v3, 1, v2
    0xdc708000, 0x00080301, // global_store_dword v1, v3, s[8:9]
    0xbf810000, // s_endpgm
];
const CLASH: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0x24020081, // v_lshlrev_b32_e32 v1, 1, v0
    0x260202c4, // v_and_b32_e32 v1, -4, v1
    0xdc708000, 0x00080001, // global_store_dword v1, v0, s[8:9]
    0xbf810000, // s_endpgm
];
const RACE: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0x7e040202, // v_mov_b32_e32 v2, s2
    0xdc708000, 0x00080201, // global_store_dword v1, v2, s[8:9]
    0xbf810000, // s_endpgm
];
const MISALIGNED: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xdc708002, 0x00080001, // global_store_dword v1, v0, s[8:9] offset:2
    0xbf810000, // s_endpgm
];
const JUMP: &[u32] = &[
    0xbf8203e8, // s_branch 1000
    0xbf810000, // s_endpgm
];
const OVERWRITTEN: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xdc508000, 0x020a0001, // global_load_dword v2, v1, s[10:11]
    0x7e040280, // v_mov_b32_e32 v2, 0
    0xbf8c0f70, // s_waitcnt vmcnt(0)
    0xbf810000, // s_endpgm
];
const IN_ORDER: &[u32] = &[
    0xc00a0200, 0x00000000, // s_load_dwordx4 s[8:11], s[0:1], 0x0
    0x24020082, // v_lshlrev_b32_e32 v1, 2, v0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0xdc508000, 0x020a0001, // global_load_dword v2, v1, s[10:11]
    0xdc508000, 0x030a0001, // global_load_dword v3, v1, s[10:11]
    0xbf8c0f71, // s_waitcnt vmcnt(1)
    0xdc708000, 0x00080201, // global_store_dword v1, v2, s[8:9]
    0xbf8c0f71, // s_waitcnt vmcnt(1)
    0x68060681, // v_add_u32_e32 v3, 1, v3
    0xbf810000, // s_endpgm
];

/// Runs words on `blocks` workgroups, with an output and an input of 64 words; returns the output's address.
fn launch(words: &[u32], blocks: u32) -> (u64, Result<Vec<u32>, Box<Fault>>) {
    let module = Module::from_words("planted", words, 2);
    let mut memory = Memory::new(1 << 20);
    let (out, input) = (memory.alloc(256).unwrap(), memory.alloc(256).unwrap());
    let bytes: Vec<u8> = (0..64u32).flat_map(|n| (n * 3).to_le_bytes()).collect();
    memory.upload(input, &bytes).unwrap();
    let params = [out.to_le_bytes(), input.to_le_bytes()].concat();
    let done =
        module.launch("planted", Grid { blocks: [blocks, 1, 1], threads: [64, 1, 1] }, &params, &mut memory);
    let words = done.map(|_| {
        let mut bytes = [0; 256];
        memory.download(out, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
    });
    (out, words)
}

/// Returns the fault, and checks its place and instruction.
fn fault(words: &[u32], blocks: u32, lane: Option<u32>, instruction: &str) -> (u64, FaultKind) {
    let (out, result) = launch(words, blocks);
    let fault = result.unwrap_err();
    assert_eq!((fault.entry.as_str(), fault.place.team), ("planted", 0));
    assert_eq!(fault.place.block, blocks - 1, "{fault}");
    assert_eq!((fault.place.lane, fault.instruction.to_string().as_str()), (lane, instruction), "{fault}");
    (out, fault.kind)
}

#[test]
fn half_a_wave_in_a_reduction_of_64() {
    let (_, kind) = fault(LOW_HALF, 1, Some(0), "+0x2c `ds_bpermute_b32 v4, v3, v2`");
    let FaultKind::Missing { missing, why } = kind else { panic!("{kind}") };
    assert_eq!(missing, 0xffff_ffff_0000_0000);
    assert_eq!(why, "lane 0 reads from one that is not active");
}

#[test]
fn a_store_one_element_too_far() {
    let (out, kind) = fault(OFF_BY_ONE, 1, Some(63), "+0x1c `global_store_dword v1, v2, s[8:9] offset:4`");
    let FaultKind::OutOfBounds { access: Access::Store, address, size: 4, nearest } = kind else {
        panic!("{kind}")
    };
    assert_eq!(address, out + 256);
    assert!(nearest.contains("4 bytes past the end"), "{nearest}");
}

#[test]
fn a_load_that_nobody_waited_for() {
    let (_, kind) = fault(NO_WAIT, 1, Some(0), "+0x18 `v_add_u32_e32 v2, 1, v2`");
    assert_eq!(kind, FaultKind::NoWait("v2".into(), "vmcnt(0) would do".into()));
    let (_, kind) = fault(OVERWRITTEN, 1, None, "+0x18 `v_mov_b32_e32 v2, 0`");
    assert_eq!(kind, FaultKind::NoWait("v2".into(), "vmcnt(0) would do".into()));
}

#[test]
fn scalar_loads_come_back_in_any_order() {
    let (_, kind) = fault(NO_SCALAR_WAIT, 1, None, "+0x18 `global_store_dword v1, v0, s[8:9]`");
    assert_eq!(kind, FaultKind::NoWait("s8".into(), "lgkmcnt(0) would do".into()));
}

#[test]
fn vector_loads_come_back_in_order() {
    let (_, result) = launch(IN_ORDER, 1);
    assert_eq!(result.unwrap()[7], 21);
}

#[test]
fn memory_and_registers_that_nobody_wrote() {
    let (out, kind) = fault(UNWRITTEN, 1, Some(0), "+0x10 `global_load_dword v2, v1, s[8:9]`");
    assert_eq!(kind, FaultKind::Unwritten { address: out, size: 4, byte: 0 });
    let (_, kind) = fault(UNWRITTEN_LANES, 1, Some(40), "+0x24 `v_add_u32_e32 v3, 1, v2`");
    assert_eq!(kind, FaultKind::UnwrittenRegister("v2".into()));
}

#[test]
fn lanes_and_workgroups_that_store_to_one_place() {
    let (out, kind) = fault(CLASH, 1, Some(1), "+0x18 `global_store_dword v1, v0, s[8:9]`");
    assert_eq!(kind, FaultKind::Clash { address: out, size: 4, other: 0 });
    let (out, kind) = fault(RACE, 2, Some(0), "+0x14 `global_store_dword v1, v2, s[8:9]`");
    assert_eq!(
        kind,
        FaultKind::Race { access: Access::Store, address: out, size: 4, other: 0, did: "wrote" }
    );
}

#[test]
fn an_odd_address_and_a_jump_to_nowhere() {
    let (out, kind) = fault(MISALIGNED, 1, Some(0), "+0x10 `global_store_dword v1, v0, s[8:9] offset:2`");
    assert_eq!(kind, FaultKind::Misaligned { access: Access::Store, address: out + 2, size: 4 });
    let (_, kind) = fault(JUMP, 1, None, "+0x0 `s_branch 1000`");
    assert!(matches!(kind, FaultKind::Jump(_)));
}

#[test]
fn launches_that_the_kernel_does_not_allow() {
    let module = Module::from_words("planted", JUMP, 2);
    let mut memory = Memory::new(1 << 20);
    let mut refuse = |entry: &str, threads: u32, params: usize| {
        let grid = Grid { blocks: [1, 1, 1], threads: [threads, 1, 1] };
        module.launch(entry, grid, &vec![0; params], &mut memory).unwrap_err().kind.to_string()
    };
    assert!(refuse("planted", 1025, 16).contains("at most 1024"));
    assert!(refuse("planted", 0, 16).contains("0, 1, 1"));
    assert!(refuse("planted", 64, 8).contains("8 bytes of arguments"));
    assert!(refuse("other", 64, 16).contains("no such kernel"));
}

// One wait state fewer than required.
const LANE: &[u32] = &[
    0x7e080500, // v_readfirstlane_b32 s4, v0
    0xbf800002, // s_nop 2
    0xd2890005, 0x00000900, // v_readlane_b32 s5, v0, s4
    0xbf810000, // s_endpgm
];
const DIVIDE: &[u32] = &[
    0x7e0202f2, // v_mov_b32_e32 v1, 1.0
    0xd1e06a02, 0x04060301, // v_div_scale_f32 v2, vcc, v1, v1, v1
    0xbf800002, // s_nop 2
    0xd1e20003, 0x04060301, // v_div_fmas_f32 v3, v1, v1, v1
    0xbf810000, // s_endpgm
];
const MASK: &[u32] = &[
    0x7d940080, // v_cmp_eq_u32_e32 vcc, 0, v0
    0xbf800000, // s_nop 0
    0x00020080, // v_cndmask_b32_e32 v1, 0, v0, vcc
    0xbf810000, // s_endpgm
];
const BASE: &[u32] = &[
    0x7e020280, // v_mov_b32_e32 v1, 0
    0xc0060200, 0x00000000, // s_load_dwordx2 s[8:9], s[0:1], 0x0
    0xbf8cc07f, // s_waitcnt lgkmcnt(0)
    0x7e040208, // v_mov_b32_e32 v2, s8
    0x7e060209, // v_mov_b32_e32 v3, s9
    0xbf800000, // s_nop 0
    0x7e140502, // v_readfirstlane_b32 s10, v2
    0x7e160503, // v_readfirstlane_b32 s11, v3
    0xbf800003, // s_nop 3
    0xdc708000, 0x000a0101, // global_store_dword v1, v1, s[10:11]
    0xbf810000, // s_endpgm
];
const RECIPROCAL: &[u32] = &[
    0x7e0202f2, // v_mov_b32_e32 v1, 1.0
    0x7e044501, // v_rcp_f32_e32 v2, v1
    0x02060302, // v_add_f32_e32 v3, v2, v1
    0xbf810000, // s_endpgm
];

#[test]
fn too_few_wait_states() {
    let why = |words: &[u32], instruction: &str| {
        let kind = fault(words, 1, None, instruction).1;
        let FaultKind::TooSoon(why) = kind else { panic!("{kind}") };
        // With one more there is no fault: `s_nop` counts its number plus one.
        let mut longer = words.to_vec();
        match longer.iter().rposition(|word| word >> 16 == 0xbf80) {
            Some(at) => longer[at] += 1,
            None => longer.insert(longer.len() - 2, 0xbf80_0000),
        }
        launch(&longer, 1).1.unwrap();
        why
    };
    assert!(
        why(LANE, "+0x8 `v_readlane_b32 s5, v0, s4`")
            .starts_with("s4 was written by a vector operation less than 4")
    );
    assert!(why(DIVIDE, "+0x10 `v_div_fmas_f32 v3, v1, v1, v1`").starts_with("vcc was written"));
    assert!(
        why(MASK, "+0x8 `v_cndmask_b32_e32 v1, 0, v0, vcc`")
            .starts_with("vcc was written by a vector operation less than 2")
    );
    assert!(why(BASE, "+0x28 `global_store_dword v1, v1, s[10:11]`").starts_with("s[10:11] was written"));
    assert!(why(RECIPROCAL, "+0x8 `v_add_f32_e32 v3, v2, v1`").contains("reciprocal"));
}

//! shfl.sync and vote.sync: modes, segments, predicates, and which lanes must be present.

use super::lanes::{result, warp};
use lockstep_emulator::fault::FaultKind;

/// Word 0 of lane l is 100 + l, word 1 is `b`, word 2 is `c`.
fn shuffle(mode: &str, b: impl Fn(u64) -> u64, c: u64) -> Vec<(u64, bool)> {
    let words: Vec<[u64; 3]> = (0..32).map(|lane| [100 + lane, b(lane), c]).collect();
    let run = |register| {
        let body = format!("\tshfl.sync.{mode}.b32 %r3|%p3, %r0, %r1, %r2, -1;\n{}", result(register));
        warp(&body, &words).unwrap_or_else(|fault| panic!("{fault}"))
    };
    run("%r3").into_iter().zip(run("%p3")).map(|(value, inside)| (value - 100, inside == 1)).collect()
}

#[test]
fn butterflies_exchange_neighbours() {
    for mask in [1, 2, 4, 8, 16, 31] {
        let got = shuffle("bfly", |_| mask, 31);
        assert!(got.iter().enumerate().all(|(lane, got)| *got == (lane as u64 ^ mask, true)));
    }
    // Beyond the clamp, a lane keeps its own word.
    let got = shuffle("bfly", |_| 16, 15);
    assert_eq!((got[3], got[20]), ((3, false), (4, true)));
}

#[test]
fn indices_are_of_the_segment() {
    assert_eq!(shuffle("idx", |lane| 31 - lane, 31)[5], (26, true));
    assert_eq!(shuffle("idx", |_| 33, 31)[5], (1, true), "five bits of an index count");
    // Segments of 8 lanes: mask 0b11000.
    let got = shuffle("idx", |_| 3, 0x1800 | 31);
    assert_eq!((got[5], got[13], got[31]), ((3, true), (11, true), (27, true)));
    let got = shuffle("idx", |_| 6, 0x1800 | 5);
    assert_eq!((got[1], got[9]), ((1, false), (9, false)), "beyond the clamp of the segment");
}

#[test]
fn up_and_down_stop_at_the_ends() {
    let got = shuffle("up", |_| 2, 0);
    assert_eq!((got[1], got[2], got[31]), ((1, false), (0, true), (29, true)));
    let got = shuffle("down", |_| 2, 31);
    assert_eq!((got[30], got[29], got[0]), ((30, false), (31, true), (2, true)));
    let got = shuffle("up", |_| 1, 0x1800);
    assert_eq!((got[8], got[9]), ((8, false), (8, true)), "a segment's first lane has nobody before it");
    let got = shuffle("down", |_| 1, 0x1800 | 31);
    assert_eq!((got[7], got[6]), ((7, false), (7, true)));
}

#[test]
fn votes_count_their_members() {
    let words: Vec<[u64; 3]> = (0..32).map(|lane| [lane % 2, 1, 0]).collect();
    let vote = |instruction: &str, register: &str| {
        warp(&format!("\t{instruction};\n{}", result(register)), &words)
            .unwrap_or_else(|fault| panic!("{fault}"))
    };
    assert_eq!(vote("vote.sync.ballot.b32 %r3, %p0, -1", "%r3"), vec![0xaaaa_aaaa; 32]);
    assert_eq!(vote("vote.sync.any.pred %p3, %p0, -1", "%p3"), vec![1; 32]);
    assert_eq!(vote("vote.sync.all.pred %p3, %p0, -1", "%p3"), vec![0; 32]);
    assert_eq!(vote("vote.sync.all.pred %p3, %p1, -1", "%p3"), vec![1; 32]);
    assert_eq!(vote("vote.sync.uni.pred %p3, %p2, -1", "%p3"), vec![1; 32]);
    assert_eq!(vote("vote.sync.uni.pred %p3, %p0, -1", "%p3"), vec![0; 32]);
}

#[test]
fn a_barrier_of_the_warp_waits_for_its_lanes() {
    let body = format!(
        "	setp.ne.u32 %p3, %r8, 0;
	@%p3 bra $L_meet;
	mov.b32 %r3, 5;
$L_meet:
	bar.warp.sync -1;
	shfl.sync.idx.b32 %r3, %r3, 0, 31, -1;
{}",
        result("%r3")
    );
    let body = format!("\tmov.b32 %r3, 7;\n{body}");
    let got = warp(&body, &[[0; 3]; 32]).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(got, vec![5; 32]);
    let fault = warp(&body.replace("@%p3 bra $L_meet", "@%p3 ret"), &[[0; 3]; 32]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Missing { missing: 0xffff_fffe, .. }), "{fault}");
}

#[test]
fn half_a_warp_exchanges_among_itself() {
    // Lanes below 16 name only themselves; the others never arrive.
    let body = format!(
        "	mov.b32 %r3, 7;
	setp.lt.u32 %p3, %r8, 16;
	@!%p3 bra $L_end;
	shfl.sync.idx.b32 %r3, %r8, 15, 31, 65535;
$L_end:
{}",
        result("%r3")
    );
    let got = warp(&body, &[[0; 3]; 32]).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(got.iter().enumerate().all(|(lane, got)| *got == if lane < 16 { 15 } else { 7 }));
    // A lane that is not named, and a word of an absent lane.
    let fault = warp(&body.replace("65535", "255"), &[[0; 3]; 32]).unwrap_err();
    assert!(matches!(
        &fault.kind,
        FaultKind::Missing { missing: 0x100, why } if why.contains("not in its own mask")
    ));
    assert_eq!(fault.place.lane, Some(8));
    let fault = warp(&body.replace("%r8, 15, 31", "%r8, 20, 31"), &[[0; 3]; 32]).unwrap_err();
    assert!(matches!(
        &fault.kind,
        FaultKind::Missing { missing: 0x10_0000, why } if why.contains("reads a word of lane 20")
    ));
}

#[test]
fn lanes_that_come_late_are_waited_for() {
    // Odd lanes take a longer way to the only shuffle, through code after it.
    let body = format!(
        "	and.b32 %r4, %r8, 1;
	setp.eq.b32 %p3, %r4, 1;
	mov.b32 %r5, 1;
	@%p3 bra $L_long;
$L_meet:
	shfl.sync.bfly.b32 %r3, %r5, 1, 31, -1;
	bra.uni $L_end;
$L_long:
	mov.b32 %r5, 2;
	bra.uni $L_meet;
$L_end:
{}",
        result("%r3")
    );
    let got = warp(&body, &[[0; 3]; 32]).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(got.iter().enumerate().all(|(lane, got)| *got == 2 - lane as u64 % 2));
}

#[test]
fn halves_with_masks_of_their_own_do_not_wait_for_each_other() {
    let masks = "	setp.lt.u32 %p3, %r8, 16;
	selp.b32 %r4, 65535, -65536, %p3;
";
    let shuffle = "	shfl.sync.bfly.b32 %r3, %r8, 1, 31, %r4;
";
    let swapped = |got: &[u64]| got.iter().enumerate().all(|(lane, got)| *got == lane as u64 ^ 1);
    let together = format!("{masks}{shuffle}{}", result("%r3"));
    assert!(warp(&together, &[[0; 3]; 32]).is_ok_and(|got| swapped(&got)));
    // One half reaches the instruction after the other has left it.
    let apart = format!(
        "{masks}	@!%p3 bra $L_long;
$L_meet:
{shuffle}	bra.uni $L_end;
$L_long:
	bra.uni $L_meet;
$L_end:
{}",
        result("%r3")
    );
    assert!(warp(&apart, &[[0; 3]; 32]).is_ok_and(|got| swapped(&got)));
    // Overlapping but unequal masks: the lanes wait for each other in vain.
    let crossed = together.replace("65535, -65536", "-1, -65536");
    let fault = warp(&crossed, &[[0; 3]; 32]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Missing { missing: 0xffff_0000, .. }), "{fault}");
}

#[test]
fn reductions_are_of_all_members() {
    let words: Vec<[u64; 3]> = (0..32).map(|lane| [(lane as i64 - 3) as u64, 1 << lane, 0]).collect();
    for (instruction, want) in [
        ("redux.sync.add.s32 %r3, %r0, -1", 32 * 31 / 2 - 3 * 32),
        ("redux.sync.add.u32 %r3, %r1, -1", 0xffff_ffff),
        ("redux.sync.min.s32 %r3, %r0, -1", 0xffff_fffd),
        ("redux.sync.min.u32 %r3, %r0, -1", 0),
        ("redux.sync.max.s32 %r3, %r0, -1", 28),
        ("redux.sync.max.u32 %r3, %r0, -1", 0xffff_ffff),
        ("redux.sync.or.b32 %r3, %r1, -1", 0xffff_ffff),
        ("redux.sync.and.b32 %r3, %r1, -1", 0),
        ("redux.sync.xor.b32 %r3, %r1, -1", 0xffff_ffff),
    ] {
        let got = warp(&format!("\t{instruction};\n{}", result("%r3")), &words);
        assert_eq!(got, Ok(vec![want; 32]), "{instruction}");
    }
}

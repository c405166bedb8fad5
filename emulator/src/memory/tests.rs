//! Refused accesses, and their names.

use super::*;

fn memory() -> (Memory, u64) {
    let mut memory = Memory::new(1 << 20);
    let address = memory.alloc(64).unwrap();
    (memory, address)
}

#[test]
fn bytes_come_back_and_the_limit_holds() {
    let (mut memory, a) = memory();
    assert_eq!(a % ALIGN, 0);
    memory.upload(a, &[1, 2, 3, 4]).unwrap();
    assert_eq!(memory.team(0).load::<4>(a).unwrap(), [1, 2, 3, 4]);
    memory.copy(a + 8, a, 4).unwrap();
    let mut back = [0; 4];
    memory.download(a + 8, &mut back).unwrap();
    assert_eq!(back, [1, 2, 3, 4]);
    assert_eq!(memory.alloc(1 << 20), None);
    assert_eq!((memory.live(), memory.used()), (vec![(a, 64)], 64));
    assert!(!memory.release(a + 8) && memory.release(a) && !memory.release(a));
    assert_eq!(memory.used(), 0);
    assert!(matches!(memory.team(0).load::<4>(a), Err(FaultKind::OutOfBounds { .. })));
}

#[test]
fn strays_are_named() {
    let (mut memory, a) = memory();
    let text = |result: Result<[u8; 4], FaultKind>| result.unwrap_err().to_string();
    assert!(text(memory.team(0).load(a + 64)).contains("4 bytes past the end of the allocation of 64 bytes"));
    assert!(text(memory.team(0).load(a - 4)).contains("4 bytes before"));
    assert!(text(memory.team(0).load(4)).contains("in no allocation"));
    assert!(text(memory.team(0).load(u64::MAX - 3)).contains("in no allocation"));
    assert!(text(memory.team(0).load(a + 2)).contains("not aligned"));
    assert!(text(memory.team(0).load(a + 4)).contains("byte 0 was never written"));
    memory.upload(a, &[1, 2, 3]).unwrap();
    assert!(text(memory.team(0).load(a)).contains("byte 3 was never written"));
}

#[test]
fn teams_race_within_a_launch_only() {
    let (mut memory, a) = memory();
    memory.fill(a, 0, 64).unwrap();
    memory.launch(3);
    memory.team(0).store(a, [1; 4]).unwrap();
    memory.team(0).store(a, [2; 4]).unwrap();
    assert_eq!(memory.team(0).load(a).unwrap(), [2; 4]);
    assert!(matches!(
        memory.team(1).store(a + 2, [3; 2]),
        Err(FaultKind::Race { other: 0, did: "wrote", .. })
    ));
    assert!(matches!(memory.team(1).load::<2>(a + 2), Err(FaultKind::Race { other: 0, did: "wrote", .. })));
    memory.team(1).load::<4>(a + 8).unwrap();
    memory.team(2).load::<4>(a + 8).unwrap();
    assert!(matches!(
        memory.team(2).store(a + 8, [3; 1]),
        Err(FaultKind::Race { other: 1, did: "read", .. })
    ));
    memory.team(2).load::<4>(a + 12).unwrap();
    memory.team(2).store(a + 12, [3; 1]).unwrap();
    memory.launch(3);
    memory.team(1).store(a, [3; 4]).unwrap();
    memory.team(1).store(a + 8, [3; 4]).unwrap();
}

#[test]
fn teams_race_within_a_phase_and_with_other_blocks() {
    let (mut memory, a) = memory();
    memory.fill(a, 0, 64).unwrap();
    let race = |result: Result<(), FaultKind>| match result {
        Err(FaultKind::Race { other, did, .. }) => Some((other, did)),
        other => other.map(|()| None).unwrap(),
    };
    let read = |memory: &mut Memory, team, at| race(memory.team(team).load::<4>(a + at).map(|_| ()));
    let write = |memory: &mut Memory, team, at| race(memory.team(team).store(a + at, [1; 4]));
    memory.launch(6);
    // Block 0: teams 0 and 1.
    memory.block(0, 2);
    assert_eq!(write(&mut memory, 0, 0), None);
    assert_eq!(read(&mut memory, 0, 4), None);
    assert_eq!(read(&mut memory, 1, 4), None);
    assert_eq!(read(&mut memory, 1, 8), None);
    assert_eq!(read(&mut memory, 1, 0), Some((0, "wrote")));
    assert_eq!((write(&mut memory, 0, 4), write(&mut memory, 1, 4)), (Some((1, "read")), Some((0, "read"))));
    memory.barrier(0, 2);
    assert_eq!((read(&mut memory, 1, 0), write(&mut memory, 1, 4)), (None, None));
    // The first reader since the barrier counts, not the one before it.
    assert_eq!(read(&mut memory, 0, 8), None);
    assert_eq!(write(&mut memory, 1, 8), Some((0, "read")));
    assert_eq!((read(&mut memory, 1, 12), read(&mut memory, 0, 12)), (None, None));
    memory.barrier(0, 2);
    assert_eq!((write(&mut memory, 0, 0), read(&mut memory, 1, 0)), (None, Some((0, "wrote"))));
    // The first reader of two since the barrier also knows of the second.
    assert_eq!((read(&mut memory, 1, 12), read(&mut memory, 0, 12)), (None, None));
    assert_eq!(
        (write(&mut memory, 1, 12), write(&mut memory, 0, 12)),
        (Some((0, "read")), Some((1, "read")))
    );
    // Block 1: no barrier orders it after block 0.
    memory.block(2, 2);
    memory.barrier(2, 2);
    assert_eq!((read(&mut memory, 2, 0), write(&mut memory, 3, 0)), (Some((0, "wrote")), Some((0, "wrote"))));
    assert_eq!((read(&mut memory, 3, 4), write(&mut memory, 2, 8)), (Some((1, "wrote")), Some((0, "read"))));
    // It reads what block 0 read, and still knows that after a barrier.
    assert_eq!((read(&mut memory, 2, 8), read(&mut memory, 2, 16)), (None, None));
    memory.barrier(2, 2);
    assert_eq!((write(&mut memory, 2, 8), write(&mut memory, 3, 8)), (Some((0, "read")), Some((0, "read"))));
    memory.block(4, 2);
    assert_eq!((write(&mut memory, 5, 16), read(&mut memory, 4, 4)), (Some((2, "read")), Some((1, "wrote"))));
    memory.launch(1);
    assert_eq!((write(&mut memory, 0, 0), write(&mut memory, 0, 8)), (None, None));
    assert_eq!((write(&mut memory, 0, 12), write(&mut memory, 0, 16)), (None, None));
}

#[test]
fn lanes_clash_when_they_store_different_bytes() {
    let store = |lane, address, byte| (lane, address, [byte; 16]);
    assert!(clash(&[store(0, 0, 1), store(1, 4, 2)], 4).is_ok());
    assert!(clash(&[store(0, 0, 1), store(1, 0, 1)], 4).is_ok());
    let (lane, kind) = clash(&[store(0, 0, 1), store(3, 0, 2)], 4).unwrap_err();
    assert_eq!((lane, kind), (3, FaultKind::Clash { address: 0, size: 4, other: 0 }));
}

#[test]
fn large_allocations_have_host_memory_where_they_are_touched() {
    let mut memory = Memory::new(1 << 40);
    let small = memory.alloc(64).unwrap();
    // More than 2³² elements of four bytes.
    let bytes = (1 << 34) + 12;
    let a = memory.alloc(bytes).unwrap();
    let behind = memory.alloc(64).unwrap();
    for offset in [0, SPACE / 2 - 4, SPACE / 2, (1 << 34) - 4, bytes - 4] {
        let value = (offset as u32 ^ 7).to_le_bytes();
        memory.team(0).store(a + offset, value).unwrap();
        assert_eq!(memory.team(0).load::<4>(a + offset).unwrap(), value, "{offset}");
        assert_eq!(memory.owner(a + offset), Some((a, bytes)));
    }
    let text = |result: Result<[u8; 4], FaultKind>| result.unwrap_err().to_string();
    assert!(text(memory.team(0).load(a + bytes)).contains("4 bytes past the end"));
    assert!(text(memory.team(0).load(a + (1 << 33))).contains("never written"));
    // Across a page, and across a number.
    for offset in [(1 << 16) - 3, SPACE / 2 - 2] {
        memory.upload(a + offset, &[1, 2, 3, 4, 5]).unwrap();
        memory.copy(small, a + offset, 5).unwrap();
        let mut back = [0; 5];
        memory.download(small, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 5]);
    }
    assert!(memory.upload(a + bytes - 1, &[1, 2]).is_err());
    assert!(memory.release(a) && !memory.release(a) && memory.release(behind));
    assert_eq!(memory.used(), 64);
    // Its numbers are reused, each separately.
    let mut again: Vec<u64> = (0..4).map(|_| memory.alloc(64).unwrap()).collect();
    assert!(again.iter().all(|b| memory.owner(*b) == Some((*b, 64))));
    again.dedup();
    assert!(again.len() == 4 && again.contains(&a) && again.contains(&(a + SPACE)));
}

//! What accesses are refused, and how they are named.

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
fn lanes_clash_when_they_store_different_bytes() {
    let store = |lane, address, byte| (lane, address, [byte; 16]);
    assert!(clash(&[store(0, 0, 1), store(1, 4, 2)], 4).is_ok());
    assert!(clash(&[store(0, 0, 1), store(1, 0, 1)], 4).is_ok());
    let (lane, kind) = clash(&[store(0, 0, 1), store(3, 0, 2)], 4).unwrap_err();
    assert_eq!((lane, kind), (3, FaultKind::Clash { address: 0, size: 4, other: 0 }));
}

//! Fuzzes any op of the table with a random case of the conformance suite, modified by the input bytes.
//! Whatever the arrays contain, nothing panics, and every level and number of threads returns plain's bits,
//! including NaN and alarms.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::core::op::OPS;
use lockstep_conformance::cases::random::random;
use lockstep_conformance::launch;
use lockstep_conformance::output::first_difference;
use lockstep_fuzz::*;

/// Larger cases only cost time.
const ELEMENTS: usize = 20_000;

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let (op, seed) = (OPS[draw.below(OPS.len())].name, draw.u64());
    let case = random(op, seed).expect("every op of the table has random cases");
    if case.data.elements() > ELEMENTS {
        return;
    }
    let mut case = reshaped(case, draw);
    mutate(&mut case, draw);
    let [plain, others @ ..] = crews() else { panic!("plain is always there") };
    let contract = launch::run(plain, &case);
    for device in others {
        match (&contract, &launch::run(device, &case)) {
            (Ok(a), Ok(b)) => {
                let found = first_difference(a, b);
                assert!(found.is_none(), "{op} {seed}: {found:x?} on {}", device.describe());
            }
            (Err(a), Err(b)) => assert_eq!(a, b, "{op} {seed}: another error on {}", device.describe()),
            (a, b) => panic!("{op} {seed}: plain {:?}, {} {:?}", a.is_ok(), device.describe(), b.is_ok()),
        }
    }
});

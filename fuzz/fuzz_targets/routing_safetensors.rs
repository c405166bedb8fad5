//! Fuzzes routing-trace files: an accepted trace validates, obeys the size law, does not differ from itself,
//! and survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::Error;
use lockstep::routing::{RoutingTrace, mismatch};

fuzz_target!(|bytes: &[u8]| {
    let trace = match RoutingTrace::from_safetensors(bytes) {
        Ok(trace) => trace,
        Err(Error::TraceFile(message)) => {
            let words = ["safetensors", "metadata `routing`", "no key `routing`", "tensor `routing`"];
            assert!(words.iter().any(|word| message.contains(word)), "{message}");
            return;
        }
        Err(Error::Argument(error)) => {
            let message = error.to_string();
            assert!(["experts", "layers", "top_k"].iter().any(|name| message.contains(name)), "{message}");
            return;
        }
        Err(Error::Trace(_)) => return,
        Err(error) => panic!("{error}"),
    };
    assert!(
        RoutingTrace::from_safetensors(&bytes[..bytes.len() - 1]).is_err(),
        "a truncated file was accepted"
    );
    let (tokens, layers, top_k) = (trace.tokens(), trace.layers(), trace.top_k());
    let wide = trace.experts() > 256 - usize::from(top_k == 1);
    assert_eq!(trace.bytes(), tokens * layers * top_k * (1 + usize::from(wide)));
    let present = trace.view().validate(tokens, trace.experts()).expect("a valid trace");
    let found = mismatch(&trace.view(), &trace.view()).expect("a trace compares with itself");
    assert_eq!((found.routers, found.differing, found.shared), (present, 0, present * top_k));
    let written = trace.to_safetensors().expect("what was read can be written");
    assert_eq!(RoutingTrace::from_safetensors(&written).expect("what was written can be read"), trace);
});
